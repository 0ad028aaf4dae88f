// The table of float formats.
#include "ops/core/float_format.h"

#include "ops/core/error.h"

namespace lutra {

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return {53, 0x1p-1074, 0x1.fffffffffffffp1023};
    case DType::kFloat32: return {24, 0x1p-149, 0x1.fffffep127};
    case DType::kBFloat16: return {8, 0x1p-133, 0x1.fep127};
    case DType::kFloat16: return {11, 0x1p-24, 65504};
    default: fail_internal(name(dtype), ": is computed in no format of its own");
  }
}

}  // namespace lutra
