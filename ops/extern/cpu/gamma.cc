// The incomplete gamma functions of two contiguous tensors of one shape.
#include <cmath>

#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/strided.h"

namespace lutra {
namespace {

#define DEV
#define LUTRA_DEVICE_CODE(...) __VA_ARGS__
#include "ops/extern/incomplete_gamma.inc"
#undef LUTRA_DEVICE_CODE
#undef DEV

}  // namespace

void run_incomplete_gamma(const ExternCall& call) {
  const ExternView &a = call.in[0], &x = call.in[1], &out = call.out[0];
  LUTRA_CHECK(out.numel() == 0 || (is_contiguous(a) && is_contiguous(x)), "incomplete_gamma of strided tensors");
  const int upper = call.ints[0] != 0;
  with_element_type(out.dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      const T *from = static_cast<const T*>(a.data), *at = static_cast<const T*>(x.data);
      T* to = static_cast<T*>(out.data);
      const auto body = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) to[i] = T(incomplete_gamma(double(from[i]), double(at[i]), upper));
      };
      constexpr int64_t kGrain = 256;  // elements that are worth a thread
      call.parallel ? call.parallel(out.numel(), kGrain, body) : body(0, out.numel());
    } else {
      fail_internal("incomplete_gamma of other elements than float32 and float64");
    }
  });
}

}  // namespace lutra
