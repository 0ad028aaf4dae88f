// Element types: one row each. Names, sizes, kinds and conversions are derived from the row. In Lua a dtype is a
// string.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lutra {

enum class DKind : uint8_t { kBool, kInt, kFloat, kComplex };

// X(enumerator, PyTorch's name, short name used by the IRs, type of an element (element_types.h), kind,
//   name in .safetensors files, name in .npy files or "", PyTorch's short name or "", the least and the greatest number
//   that converts to it: uint8 takes -255 to -1 modulo 256; int64's greatest is the largest double that fits)
#define LUTRA_DTYPES(X)                                                                               \
  X(kBool, "bool", "b8", Bool8, kBool, "BOOL", "b1", "", -HUGE_VAL, HUGE_VAL)                         \
  X(kUInt8, "uint8", "u8", uint8_t, kInt, "U8", "u1", "", -255, 255)                                  \
  X(kInt8, "int8", "i8", int8_t, kInt, "I8", "i1", "", -128, 127)                                     \
  X(kInt16, "int16", "i16", int16_t, kInt, "I16", "i2", "short", -32768, 32767)                       \
  X(kInt32, "int32", "i32", int32_t, kInt, "I32", "i4", "int", -2147483648.0, 2147483647.0)           \
  X(kInt64, "int64", "i64", int64_t, kInt, "I64", "i8", "long", -0x1p63, 0x1.fffffffffffffp62)        \
  X(kFloat16, "float16", "f16", Half, kFloat, "F16", "f2", "half", -65504, 65504)                     \
  X(kBFloat16, "bfloat16", "bf16", BFloat16, kFloat, "BF16", "", "", -0x1.fep127, 0x1.fep127)         \
  X(kFloat32, "float32", "f32", float, kFloat, "F32", "f4", "float", -0x1.fffffep127, 0x1.fffffep127) \
  X(kFloat64, "float64", "f64", double, kFloat, "F64", "f8", "double", -HUGE_VAL, HUGE_VAL)

// Stored dtypes: memory holds them, ops that only move memory accept them, and to() converts them. No other op accepts
// them.
// X(the same columns, then:
//   the carrier: the dtype of the same size that loops move instead (for a complex dtype, the dtype of its two parts),
//   the dtype that comparisons convert to)
#define LUTRA_STORED_DTYPES(X)                                                                                         \
  X(kUInt16, "uint16", "u16", uint16_t, kInt, "U16", "u2", "", -65535, 65535, kInt16, kInt32)                          \
  X(kUInt32, "uint32", "u32", uint32_t, kInt, "U32", "u4", "", -4294967295.0, 4294967295.0, kInt32, kInt64)            \
  X(kUInt64, "uint64", "u64", uint64_t, kInt, "U64", "u8", "", 0, 0x1.fffffffffffffp63, kInt64, kInt64)                \
  X(kFloat8E4M3FN, "float8_e4m3fn", "f8e4m3", Float8E4M3FN, kFloat, "F8_E4M3", "", "", -HUGE_VAL, HUGE_VAL, kUInt8,    \
    kFloat32)                                                                                                          \
  X(kFloat8E5M2, "float8_e5m2", "f8e5m2", Float8E5M2, kFloat, "F8_E5M2", "", "", -HUGE_VAL, HUGE_VAL, kUInt8,          \
    kFloat32)                                                                                                          \
  X(kInt4, "int4", "i4", Int4, kInt, "", "", "", -8, 7, kUInt8, kInt8)                                                 \
  X(kComplex64, "complex64", "c64", Complex<float>, kComplex, "C64", "c8", "cfloat", -0x1.fffffep127, 0x1.fffffep127,  \
    kFloat32, kComplex64)                                                                                              \
  X(kComplex128, "complex128", "c128", Complex<double>, kComplex, "", "c16", "cdouble", -HUGE_VAL, HUGE_VAL, kFloat64, \
    kComplex128)

// A byte holds two int4 elements: see ops/defs/packed.h.
#define LUTRA_ALL_DTYPES(X) LUTRA_DTYPES(X) LUTRA_STORED_DTYPES(X)

enum class DType : uint8_t {
#define X(e, ...) e,
  LUTRA_ALL_DTYPES(X)
#undef X
      kNone  // no dtype given
};

struct DTypeInfo {
  const char* name;
  const char* ir_name;
  const char* safetensors_name;
  const char* numpy_name;  // "" where NumPy has none
  const char* short_name;  // PyTorch's second name, or ""
  uint8_t size;            // in bytes; for a packed dtype, the size of the byte that holds two elements
  DKind kind;
  DType carrier;  // what loops move: the dtype itself; for a stored one a computed dtype of its (or its part's) size
  DType compared_as;   // the dtype itself; for a stored dtype one that keeps all its values distinct
  double least, most;  // the numbers that convert to it, without their fractions
};

const DTypeInfo& info(DType t);
inline const char* name(DType t) { return info(t).name; }
inline size_t size_of(DType t) { return info(t).size; }
// Returns whether a byte holds two elements.
inline bool is_packed(DType t) { return t == DType::kInt4; }
// Returns a dtype that can hold a single element of t, which a packed dtype cannot.
inline DType single(DType t) { return is_packed(t) ? info(t).compared_as : t; }
// Returns the bytes of n elements. Those of a packed dtype start at an even element.
inline int64_t bytes_of(DType t, int64_t n) { return is_packed(t) ? (n + 1) / 2 : n * int64_t(size_of(t)); }
inline bool is_bool(DType t) { return t == DType::kBool; }
inline bool is_float(DType t) { return info(t).kind == DKind::kFloat; }
inline bool is_integral(DType t) { return info(t).kind < DKind::kFloat; }  // bool counts, as in PyTorch
inline bool is_int(DType t) { return info(t).kind == DKind::kInt; }
inline bool is_stored(DType t) { return t > DType::kFloat64 && t != DType::kNone; }
// Returns whether an element consists of two elements of the carrier: the real part, then the imaginary part.
inline bool is_complex(DType t) { return info(t).kind == DKind::kComplex; }
// Returns the complex dtype whose parts can hold values of t.
inline DType to_complex(DType t) { return size_of(t) == 8 && is_float(t) ? DType::kComplex128 : DType::kComplex64; }
// Returns whether t is a dtype of indices.
inline bool is_index(DType t) { return t == DType::kInt64 || t == DType::kInt32; }
// Returns the dtype in which sums and functions are computed where float32 is precise enough for all dtypes but
// float64.
inline DType at_least_float32(DType t) { return t == DType::kFloat64 ? t : DType::kFloat32; }
// The least and the greatest value of an integer dtype; of bool, false and true.
int64_t least_integer(DType t);
int64_t greatest_integer(DType t);
// Finds a dtype by PyTorch's name ("float32"). Returns DType::kNone for an unknown name.
DType dtype_from_name(std::string_view name);
// Finds a dtype by the IRs' short name ("f32").
DType dtype_from_ir_name(std::string_view name);
// Find a dtype by its name in a .safetensors file ("F32"), in a .npy file ("f4").
DType dtype_from_safetensors_name(std::string_view name);
DType dtype_from_numpy_name(std::string_view name);
// torch.promote_types: returns the smallest dtype that both convert to, by PyTorch's lattice. A stored dtype promotes
// with itself only, but a complex dtype promotes with every computed one.
DType promote_types(DType a, DType b);

}  // namespace lutra
