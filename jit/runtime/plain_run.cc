// Runs flat plans of a few small kernels.
#include "jit/runtime/plain_run.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/lines.h"
#include "jit/runtime/pool.h"
#include "jit/runtime/profile.h"
#include "jit/runtime/runner.h"
#include "ops/core/interrupt.h"
#include "ops/defs/call.h"

namespace lutra {
namespace {

template <class T, unsigned N>
void note_elements(const SmallVec<T, N>& all) {
  note_lines(all.begin(), all.size() * sizeof(T));
}

}  // namespace

std::unique_ptr<PlainRun> PlainRun::of(const FlatPlan& flat) {
  const Plan& plan = flat.plan;
  if (!flat.unbacked.empty() || !plan.functions.empty() || !plan.slots.empty() || !plan.mutated.empty()) return nullptr;
  if (flat.program.size() > kMaxValues || flat.steps.size() > kMaxSteps || flat.steps.empty()) return nullptr;
  if (plan.outputs.size() > kMaxOutputs) return nullptr;
  std::unique_ptr<PlainRun> run(new PlainRun(flat));
  const std::vector<HostValue>& start = flat.program.start_values();
  run->start_.assign(start.begin(), start.end());
  return run->add_outputs() && run->add_steps() ? std::move(run) : nullptr;
}

int32_t PlainRun::output_at(int32_t buffer) const {
  const auto& all = flat_->plan.outputs;
  const auto at = std::find_if(all.begin(), all.end(), [&](const PlanOutput& o) { return o.view.buffer == buffer; });
  return at == all.end() ? -1 : int32_t(at - all.begin());
}

// Returns false unless each output is a tensor in a buffer of its own.
bool PlainRun::add_outputs() {
  const Plan& plan = flat_->plan;
  for (size_t i = 0; i < plan.outputs.size(); i++) {
    const PlanOutput& o = plan.outputs[i];
    if (o.kind != PlanOutput::kTensor || plan.buffers[size_t(o.view.buffer)].kind != Buffer::kOutput) return false;
    if (output_at(o.view.buffer) != int32_t(i) || plan.buffers[size_t(o.view.buffer)].dtype != o.view.dtype)
      return false;
    const int32_t elements = program_->place_of_int(plan.buffers[size_t(o.view.buffer)].elements);
    outputs_.push_back({o.view.dtype, int32_t(o.view.sizes.size()), elements, program_->place_of_int(o.view.offset),
                        int32_t(places_.size())});
    for (ExprId id : o.view.sizes) places_.push_back(program_->place_of_int(id));
    for (ExprId id : o.view.strides) places_.push_back(program_->place_of_int(id));
  }
  return std::none_of(plan.buffers.begin(), plan.buffers.end(), [&](const Buffer& b) {
    return b.kind == Buffer::kTemp || (b.kind == Buffer::kOutput && output_at(int32_t(&b - plan.buffers.data())) < 0);
  });
}

bool PlainRun::add_steps() {
  const Plan& plan = flat_->plan;
  for (const LaunchStep& s : flat_->steps) {
    if (!s.kernel || s.beside || s.writes || s.in_place || size_t(s.words) > kMaxWords) return false;
    steps_.push_back({s.kernel->code.get(), &s, s.extent, s.work, s.words, int32_t(places_.size()), s.random});
    const int32_t* operand = flat_->operands.data() + s.first;
    for (int32_t i = 0; i < s.ptrs; i++) {
      const int32_t at = *operand++;
      const Buffer& b = plan.buffers[size_t(at)];
      if (b.kind == Buffer::kInput && size_t(flat_->input_of[size_t(at)]) >= kMaxInputs) return false;
      places_.push_back(b.kind == Buffer::kInput      ? word_of(kInput, flat_->input_of[size_t(at)])
                        : b.kind == Buffer::kConstant ? word_of(kConstant, b.index)
                                                      : word_of(kOutput, output_at(at)));
    }
    for (int32_t i = 0; i < s.ints + s.nums; i++) places_.push_back(*operand++);
  }
  return true;
}

// Returns true if each loop is a single chunk that takes negligible time.
bool PlainRun::is_small(const HostValue* values) const {
  constexpr int64_t kSurely = 1 << 10, kMost = 1 << 16;
  for (const Step& s : steps_) {
    const int64_t extent = s.extent < 0 ? 1 : values[s.extent].i, work = s.work < 0 ? 1 : values[s.work].i;
    const int64_t total = total_work(extent, work);
    if (total > kSurely && (total > kMost || (s.extent >= 0 && chunk_count(extent, work) > 1))) return false;
  }
  return true;
}

void PlainRun::launch(const Step& step, const HostValue* values, const InputView* views, void* const* outputs) const {
  check_stop();
  const int64_t extent = step.extent < 0 ? 1 : values[step.extent].i;
  if (extent <= 0) return;
  alignas(64) uint64_t block[kMaxWords];
  auto* head = new (block) BlockHead;
  head->end = extent;
  const int32_t* place = places_.begin() + step.first;
  for (int32_t w = int32_t(kHeadWords); w < step.words; w++) {
    const int32_t p = *place++;
    if (p >= 0) {
      std::memcpy(&block[w], &values[p], sizeof block[w]);
      continue;
    }
    const int32_t i = ~p >> 2, kind = ~p & 3;
    const void* data = kind == kInput    ? views[i].data
                       : kind == kOutput ? outputs[i]
                                         : flat_->constants[size_t(i)]->data();
    std::memcpy(&block[w], &data, sizeof block[w]);
  }
  if (step.random) head->seed = default_generator().seed, head->call = default_generator().next_call;
  LaunchFault fault;
  head->fault = &fault;
  step.code->run(block);
  if (!fault.set) return;
  const auto& launch = std::get<KernelLaunch>(flat_->plan.launches[size_t(step.launch->launch)]);
  throw fault_error(launch.faults, fault_of(launch), fault,
                    int64_t(block[int32_t(kHeadWords) + step.launch->ptrs + fault.arg]));
}

void PlainRun::note_memory() const {
  note_lines(this, sizeof *this);
  note_elements(steps_), note_elements(outputs_), note_elements(start_), note_elements(places_);
  for (const Step& s : steps_) {
    note_lines(s.code, 1);
    if (s.code->entry) note_lines(reinterpret_cast<const void*>(s.code->entry), 128);
  }
}

// Memory for views, which costs nothing before they are made.
union PlainRun::Views {
  Views() {}
  InputView views[kMaxInputs];
};

bool PlainRun::run(const std::vector<Tensor>& inputs, const InputView* views, const double* scalars,
                   std::vector<Value>& results) const {
  const size_t n = inputs.size();
  if (n < input_count_ || n > kMaxInputs || launches_watched()) return false;
  if (noted_lines) [[unlikely]]
    note_memory();
  Views memory;
  InputView* const seen = memory.views;
  for (size_t i = 0; i < n; i++)
    new (&seen[i]) InputView(views && views[i].data ? views[i] : view_of(*inputs[i].get()));
  HostValue values[kMaxValues];
  std::copy(start_.begin(), start_.end(), values);
  if (reckons_) program_->run(values, seen, scalars);
  if (!is_small(values)) return false;
  void* data[kMaxOutputs];
  results.reserve(outputs_.size());
  for (const Output& o : outputs_) {
    Ref<TensorImpl> t = make_ref<TensorImpl>();
    t->dtype = o.dtype;
    const int32_t* place = places_.begin() + o.first;
    for (int32_t d = 0; d < o.rank; d++) t->sizes.push_back(values[*place++].i);
    for (int32_t d = 0; d < o.rank; d++) t->strides.push_back(values[*place++].i);
    t->offset = values[o.offset].i;
    t->storage = allocate(storage_bytes(values[o.elements].i, size_of(o.dtype)), device_);
    data[results.size()] = t->storage->data;
    results.emplace_back(Tensor(std::move(t)));
  }
  for (const Step& s : steps_) launch(s, values, seen, data);
  default_generator().next_call += rng_calls_;
  return true;
}

}  // namespace lutra
