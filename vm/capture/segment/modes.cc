#include "vm/capture/segment/modes.h"

namespace lutra {
namespace {

void guard_grad_mode(Trace& t) {
  bool matters = t.grad_mode_read;
  for (const auto& in : t.inputs) matters = matters || in.requires_grad;
  for (const auto& in : t.graph->inputs) matters = matters || in.value->requires_grad;
  for (const auto& node : t.graph->nodes) {  // a leaf made in the trace, and tensors computed from it
    for (const Tensor& y : node->results) matters = matters || (y && y->requires_grad);
  }
  if (!matters) return;
  t.check(GuardOp::kGradModeCheck, nullptr, t.initial_grad_mode, t.initial_grad_mode ? "true" : "false");
}

void guard_autocast(Trace& t) {
  if (!t.autocast.read()) return;
  t.check(GuardOp::kAutocastCheck, nullptr, pack(t.autocast.initial), describe(t.autocast.initial));
}

void guard_current_gpu(Trace& t) {
  if (current_cuda_index_reads() == t.gpu_reads) return;
  const int now = current_cuda_index();
  t.check(GuardOp::kCurrentGpuCheck, nullptr, now, str("cuda:", now));
}

void guard_default_device(Trace& t) {
  if (default_device_reads() == t.device_reads) return;
  const Device now = default_device();
  t.check(GuardOp::kDefaultDeviceCheck, nullptr, gpu_index(now), to_string(now));
}

}  // namespace

void guard_modes(Trace& t) {
  guard_grad_mode(t);
  guard_current_gpu(t);
  guard_default_device(t);
  guard_autocast(t);
}

}  // namespace lutra
