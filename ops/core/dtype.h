// Element types: one row each, from which names, sizes and kinds are derived. DTypes are strings for Lua.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lutra {

enum class DKind : uint8_t { kBool, kInt, kFloat };

// X(enumerator, PyTorch's name, short name used by the IRs, bytes, kind)
#define LUTRA_DTYPES(X)                       \
  X(kBool, "bool", "b8", 1, kBool)            \
  X(kUInt8, "uint8", "u8", 1, kInt)           \
  X(kInt8, "int8", "i8", 1, kInt)             \
  X(kInt16, "int16", "i16", 2, kInt)          \
  X(kInt32, "int32", "i32", 4, kInt)          \
  X(kInt64, "int64", "i64", 8, kInt)          \
  X(kFloat16, "float16", "f16", 2, kFloat)    \
  X(kBFloat16, "bfloat16", "bf16", 2, kFloat) \
  X(kFloat32, "float32", "f32", 4, kFloat)    \
  X(kFloat64, "float64", "f64", 8, kFloat)

enum class DType : uint8_t {
#define X(e, name, ir, size, kind) e,
  LUTRA_DTYPES(X)
#undef X
      kNone  // no dtype given
};

struct DTypeInfo {
  const char* name;
  const char* ir_name;
  uint8_t size;
  DKind kind;
};

const DTypeInfo& info(DType t);
inline const char* name(DType t) { return info(t).name; }
inline size_t size_of(DType t) { return info(t).size; }
inline bool is_bool(DType t) { return t == DType::kBool; }
inline bool is_float(DType t) { return info(t).kind == DKind::kFloat; }
inline bool is_integral(DType t) { return info(t).kind != DKind::kFloat; }  // bool counts, as in PyTorch
// What whole positions are given in.
inline bool is_index(DType t) { return t == DType::kInt64 || t == DType::kInt32; }
// By PyTorch's name ("float32"); DType::kNone where there is none.
DType dtype_from_name(std::string_view name);
// By the IRs' short name ("f32").
DType dtype_from_ir_name(std::string_view name);
// torch.promote_types: the smallest type both convert to, by PyTorch's lattice.
DType promote_types(DType a, DType b);

}  // namespace lutra
