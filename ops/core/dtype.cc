// DTypes in, their rows and PyTorch's promotion lattice out.
#include "ops/core/dtype.h"

#include "ops/core/error.h"

namespace lutra {
namespace {

const DTypeInfo kInfos[] = {
#define X(e, name, ir, size, kind) {name, ir, size, DKind::kind},
    LUTRA_DTYPES(X)
#undef X
        {"none", "none", 0, DKind::kBool},
};

}  // namespace

const DTypeInfo& info(DType t) { return kInfos[size_t(t)]; }

DType dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < size_t(DType::kNone); i++) {
    if (name == kInfos[i].name) return DType(i);
  }
  return DType::kNone;
}

DType dtype_from_ir_name(std::string_view name) {
  for (size_t i = 0; i < size_t(DType::kNone); i++) {
    if (name == kInfos[i].ir_name) return DType(i);
  }
  return DType::kNone;
}

DType promote_types(DType a, DType b) {
  if (a == b || b == DType::kNone) return a;
  if (a == DType::kNone) return b;
  if (a > b) std::swap(a, b);
  // The rows are ordered so that the later type wins, but for two pairs that neither converts to the other.
  if (a == DType::kUInt8 && b == DType::kInt8) return DType::kInt16;
  if (a == DType::kFloat16 && b == DType::kBFloat16) return DType::kFloat32;
  return b;
}

}  // namespace lutra
