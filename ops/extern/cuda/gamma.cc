// The incomplete gamma functions of two contiguous tensors of one shape.
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

#define LUTRA_DEVICE_CODE(...) #__VA_ARGS__
const ExternSource kGamma = {"incomplete_gamma",
#include "ops/extern/incomplete_gamma.inc"
                             R"cuda(
KERNEL gamma_each(const T0* a, const T0* x, T0* out, i64 n, int upper) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= n) return;
  out[i] = Num<T0>::down((Num<T0>::A)incomplete_gamma(Num<T0>::wide(a[i]), Num<T0>::wide(x[i]), upper));
}
)cuda"};
#undef LUTRA_DEVICE_CODE

}  // namespace

void run_incomplete_gamma(const ExternCall& call) {
  Launcher l(call);
  const int64_t n = call.out[0].numel();
  l.each({kGamma, "gamma_each", {call.out[0].dtype}}, n, call.in[0].data, call.in[1].data, call.out[0].data, n,
         int(call.ints[0] != 0));
}

}  // namespace lutra::cuda
