// Sets the condition of a conditional graph node from a flag.
#include "ops/extern/cuda/condition.h"

namespace lutra::cuda {
namespace {

const ExternSource kSource = {"condition", R"cuda(
#ifndef LUTRA_EMULATED
extern "C" __device__ void cudaGraphSetConditional(u64 handle, u32 value);
#endif
KERNEL set_condition(u64 handle, const T0* flag, u32 holds, const volatile i32* stop) {
  sync_dependencies();
  const bool is_set = convert<double, T0>(*flag) != 0.0;
  cudaGraphSetConditional(handle, is_set == (holds != 0) && !(stop && *stop));
}
)cuda"};

}  // namespace

void set_condition(Device device, uint64_t handle, const void* flag, DType dtype, bool holds, const int32_t* stop) {
  ExternCall call;
  call.op = OpId::cond, call.device = device;
  Launcher l(call);
  l.run({kSource, "set_condition", {dtype}}, {}, 1, handle, flag, uint32_t(holds), stop);
}

}  // namespace lutra::cuda
