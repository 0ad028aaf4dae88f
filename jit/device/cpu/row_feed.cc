// Invariants of a feed:
// 1. Kernel and scatter are adjacent launches. No other launch accesses the temporary, and none of the kernel's other
//    buffers shares its memory. The scatter reads nothing else that the kernel writes. Its result is not one of its
//    operands.
// 2. The kernel has one parallel loop. Iteration i accesses only the elements [i * row, (i + 1) * row) of the
//    temporary; all of it has extent * row elements.
#include "jit/device/cpu/row_feed.h"

#include <algorithm>
#include <optional>

#include "jit/loop/walk.h"

namespace lutra {
namespace {

bool names(const Launch& launch, int32_t buffer) {
  if (const auto* k = std::get_if<KernelLaunch>(&launch)) {
    return std::find(k->buffers.begin(), k->buffers.end(), buffer) != k->buffers.end();
  }
  const auto& e = std::get<ExternLaunch>(launch);
  const auto is = [&](const BufferView& v) { return v.buffer == buffer; };
  return std::any_of(e.in.begin(), e.in.end(), is) || std::any_of(e.out.begin(), e.out.end(), is);
}

bool share_memory(const Buffer& a, const Buffer& b) { return a.kind == b.kind && a.index == b.index; }

// Returns the kernel's only loop if it is parallel, otherwise null.
const loop::Loop* only_loop(const loop::Kernel& kernel) {
  const loop::Loop* only = nullptr;
  for (const loop::Stmt& s : kernel.body) {
    const auto* l = std::get_if<std::unique_ptr<loop::Loop>>(&s);
    if (l && (only || !(*l)->parallel)) return nullptr;
    if (l) only = l->get();
  }
  return only;
}

// Returns the stride of an access along a loop. None if it has several, or if the access depends on a value of the
// kernel.
std::optional<loop::Coef> stride_along(const loop::Access& access, const loop::Loop& loop) {
  std::optional<loop::Coef> stride;
  for (const auto& term : access.terms) {
    if (term.is_value) return {};
    if (term.id != loop.id) continue;
    if (stride) return {};
    stride = term.stride;
  }
  return stride;
}

// Returns the stride along the parallel loop if all accesses of the pointer have the same.
std::optional<loop::Coef> row_of(const loop::Kernel& kernel, int32_t pointer) {
  const loop::Loop* outer = only_loop(kernel);
  if (!outer) return {};
  std::optional<loop::Coef> row;
  bool same = true;
  loop::for_each_inst(kernel.body, [&](const loop::Inst& in) {
    if (!loop::has_access(in.op) || in.access.ptr != pointer) return;
    const std::optional<loop::Coef> stride = stride_along(in.access, *outer);
    const bool at_start = in.op != loop::Op::kStoreAdd && in.access.offset == loop::Coef::of(0);
    same = same && at_start && stride && (!row || *row == *stride);
    row = stride;
  });
  return same ? row : std::nullopt;
}

}  // namespace

RowFeed row_feed(const FlatPlan& flat, size_t i) {
  const LaunchStep& step = flat.steps[i];
  if (!step.kernel || step.beside || step.random || step.writes || step.extent < 0 || i + 1 >= flat.steps.size())
    return {};
  const LaunchStep& next = flat.steps[i + 1];
  if (next.kernel || next.launch != step.launch + 1 || next.writes || next.unbacked >= 0) return {};
  const Plan& plan = flat.plan;
  const auto& kernel = std::get<KernelLaunch>(plan.launches[size_t(step.launch)]);
  const auto& scatter = std::get<ExternLaunch>(plan.launches[size_t(next.launch)]);
  if (kernel.beside || !info(scatter.op).has(kScatters) || scatter.in.size() != 3 || scatter.out.size() != 1) return {};
  const int32_t fed = scatter.in[2].buffer, out = scatter.out[0].buffer;
  const auto place = std::find(kernel.buffers.begin(), kernel.buffers.end(), fed);
  if (place == kernel.buffers.end() || plan.buffers[size_t(fed)].kind != Buffer::kTemp) return {};
  for (size_t l = 0; l < plan.launches.size(); l++) {
    if (int32_t(l) != step.launch && int32_t(l) != next.launch && names(plan.launches[l], fed)) return {};
  }
  for (size_t p = 0; p < kernel.buffers.size(); p++) {
    const int32_t b = kernel.buffers[p];
    if (b != fed && kernel.kernel.params[p].written && names(plan.launches[size_t(next.launch)], b)) return {};
    if (b != fed && share_memory(plan.buffers[size_t(b)], plan.buffers[size_t(fed)])) return {};
    if (b == out) return {};
  }
  for (int k = 0; k < 2; k++) {
    const int32_t b = scatter.in[size_t(k)].buffer;
    if (b < 0 || b == fed || b == out) return {};
  }
  const auto pointer = int32_t(place - kernel.buffers.begin());
  const std::optional<loop::Coef> row = row_of(kernel.kernel, pointer);
  return row ? RowFeed{pointer, *row} : RowFeed{};
}

}  // namespace lutra
