// Launches of a plan in; the same with independent kernels side by side, each such run of them one fork and join, out.
#pragma once
#include "jit/schedule/plan.h"

namespace lutra {

// Invariants:
// 1. Kernels side by side neither write what another of them touches nor can fail.
// 2. A launch moves only before launches that it does not depend on, and a write to an input never before what may
// fail.
void combine_launches(Plan& plan);

inline bool is_beside(const Launch& l) {
  const auto* k = std::get_if<KernelLaunch>(&l);
  return k && k->beside;
}

// f(buffer, written) for each buffer that the launch touches.
template <class F>
void for_buffers(const Launch& l, const F& f) {
  if (const auto* k = std::get_if<KernelLaunch>(&l)) {
    for (size_t i = 0; i < k->buffers.size(); i++) f(k->buffers[i], k->kernel.params[i].written);
    return;
  }
  const ExternLaunch& e = std::get<ExternLaunch>(l);
  for (const BufferView& v : e.in) {
    if (v.buffer >= 0) f(v.buffer, false);
  }
  for (const BufferView& v : e.out) f(v.buffer, true);
}

}  // namespace lutra
