// The table of dtypes, and PyTorch's promotion lattice.
#include "ops/core/dtype.h"

#include <cmath>

#include "ops/core/element_types.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

const DTypeInfo kInfos[] = {
#define X(e, name, ir, type, kind, safetensors, numpy, other, least, most) \
  {name, ir, safetensors, numpy, other, sizeof(type), DKind::kind, DType::e, DType::e, least, most},
    LUTRA_DTYPES(X)
#undef X
#define X(e, name, ir, type, kind, safetensors, numpy, other, least, most, carrier, compared) \
  {name, ir, safetensors, numpy, other, sizeof(type), DKind::kind, DType::carrier, DType::compared, least, most},
        LUTRA_STORED_DTYPES(X)
#undef X
            {"none", "none", "", "", "", 0, DKind::kBool, DType::kNone, DType::kNone, 0, 0},
};

DType find(std::string_view name, const char* DTypeInfo::*column) {
  for (size_t i = 0; i < size_t(DType::kNone); i++) {
    if (!name.empty() && name == kInfos[i].*column) return DType(i);
  }
  return DType::kNone;
}

}  // namespace

const DTypeInfo& info(DType t) { return kInfos[size_t(t)]; }

int64_t least_integer(DType t) {
  return with_element_type(t, []<class T>() {
    if constexpr (std::is_integral_v<T>) return int64_t(std::numeric_limits<T>::min());
    return int64_t(0);
  });
}

int64_t greatest_integer(DType t) {
  return with_element_type(t, []<class T>() {
    if constexpr (std::is_integral_v<T>) return int64_t(std::numeric_limits<T>::max());
    return int64_t(1);
  });
}

DType dtype_from_name(std::string_view name) { return find(name, &DTypeInfo::name); }
DType dtype_from_ir_name(std::string_view name) { return find(name, &DTypeInfo::ir_name); }
DType dtype_from_safetensors_name(std::string_view name) { return find(name, &DTypeInfo::safetensors_name); }
DType dtype_from_numpy_name(std::string_view name) { return find(name, &DTypeInfo::numpy_name); }

DType promote_types(DType a, DType b) {
  if (a == b || b == DType::kNone) return a;
  if (a == DType::kNone) return b;
  const bool pairs = is_complex(a) || is_complex(b);
  if (pairs && (!is_stored(a) || is_complex(a)) && (!is_stored(b) || is_complex(b))) {
    const auto wide = [](DType t) { return t == DType::kFloat64 || t == DType::kComplex128; };
    return wide(a) || wide(b) ? DType::kComplex128 : DType::kComplex64;
  }
  if (is_stored(a) || is_stored(b)) {
    fail("promote_types: ", name(a), " and ", name(b), " have no common dtype; convert one by x:to(dtype)");
  }
  if (a > b) std::swap(a, b);
  // The rows are ordered so that the later type wins, except for two pairs where neither converts to the other.
  if (a == DType::kUInt8 && b == DType::kInt8) return DType::kInt16;
  if (a == DType::kFloat16 && b == DType::kBFloat16) return DType::kFloat32;
  return b;
}

}  // namespace lutra
