// Runs plans on a GPU: launches each kernel, or several parallel launches of one kernel as a single launch.
#include "jit/device/cuda/runner.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "jit/device/cuda/decide.h"
#include "jit/device/cuda/record.h"
#include "jit/runtime/executable.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/schedule/combine.h"
#include "ops/core/place.h"
#include "ops/cuda/allocator.h"
#include "ops/cuda/faults.h"
#include "ops/defs/call.h"
#include "ops/defs/control.h"

namespace lutra {

const cuda::LaunchCode& code_of(const CachedKernel& kernel) {
  return static_cast<const cuda::LaunchCode&>(*kernel.code);
}

CudaRunner::CudaRunner(const FlatPlan& flat)
    : Runner(flat), decider_(new ConditionalNodes(flat.plan.device)), gpu_steps_(flat.steps.size()) {
  add_sites();
  for (size_t i = 0; i < steps_.size(); i += size_t(steps_[i].beside) + 1) {
    if (steps_[i].kernel) add_groups(i);
  }
  recorder_ = Recorder::make(*this);
}

CudaRunner::~CudaRunner() {
  for (const GpuStep& s : gpu_steps_) {
    if (s.site) cuda::remove_fault_site(s.site, plan_.device.index);
  }
}

void CudaRunner::begin(RunContext& base, const std::vector<Tensor>& inputs) const {
  GpuRun& c = of(base);
  set_moved(c, inputs);
  if (recorder_) c.working.take(plan_.device);
}

void CudaRunner::choose(RunContext& base, const std::vector<Tensor>& inputs, const std::vector<Donor>& donors) const {
  GpuRun& c = of(base);
  set_donors(c, donors);
  c.scratch.emplace(recorder_ ? &c.working.scratch() : nullptr);
  c.recording = recorder_ ? recorder_->pick(c, inputs) : nullptr;
}

void* CudaRunner::arena(RunContext& base, size_t bytes) const {
  GpuRun& c = of(base);
  if (c.working) return c.working.arena(bytes);
  LaunchOrder* const order = LaunchOrder::current();
  return order ? order->arena(this, bytes, plan_.device) : Runner::arena(c, bytes);
}

// Reuses the results of a recording.
Ref<Storage> CudaRunner::output(RunContext& base, int32_t buffer, size_t bytes) const {
  const GpuRun& c = of(base);
  if (c.recording) {
    if (Ref<Storage> s = c.recording->result(buffer)) return s;
  }
  Storage* const d = c.donor(buffer);
  return d && d->refs == 1 && d->nbytes == bytes ? Ref<Storage>(d) : Runner::output(base, buffer, bytes);
}

void CudaRunner::launch(RunContext& base) const {
  GpuRun& c = of(base);
  c.recording ? recorder_->launch(c, *c.recording) : launch_all(c);
}

void CudaRunner::end(RunContext& base) const {
  GpuRun& c = of(base);
  c.recording = nullptr;
  c.lock = {};
  c.scratch.reset();
  c.donors.clear();
  c.working.give_back();
  c.arena = nullptr;
}

bool CudaRunner::is_recording() const { return LaunchOrder::current() != nullptr; }

Decider* CudaRunner::decider(RunContext&) const { return LaunchOrder::current() ? decider_.get() : nullptr; }

void CudaRunner::launch_kernels(RunContext& base, const LaunchStep& first, const Generator&, bool& wrote) const {
  const GpuStep& s = gpu_steps_[size_t(&first - steps_.data())];
  for (int32_t g = s.first; g < s.end; g++) {
    launch_group(of(base), groups_[size_t(g)]);
    wrote = wrote || (first.writes && !first.in_place);
  }
}

// Lends a library the part of the arena that is free during its launch. Launches that run functions lend nothing, since
// the libraries in functions run in parallel.
void CudaRunner::launch_library(RunContext& base, const LaunchStep& step) const {
  GpuRun& c = of(base);
  const size_t i = size_t(step.launch);
  const auto& launch = std::get<ExternLaunch>(plan_.launches[i]);
  const bool runs_functions = !launch.functions.empty();
  if (c.working) {
    const ArenaGap gap = i < c.layout.gaps.size() && !runs_functions ? c.layout.gaps[i] : ArenaGap();
    c.working.scratch().lend(c.arena_base ? c.arena_base + gap.offset : nullptr, gap.bytes);
  }
  LaunchOrder* const order = LaunchOrder::current();
  if (order) check_recordable(c, launch), put_in_order(*order, c, {&step.launch, 1});
  if (order && runs_functions) order->enter();
  const PlaceScope place(step.file, step.line);
  Runner::launch_library(base, step);
  if (order && runs_functions) order->leave();
  if (order) order->end();
}

// Identifies memory of functions by address: a recording passes the same memory to its functions each time.
MemoryRange CudaRunner::range_of(const LaunchOrder& order, const GpuRun& c, int32_t buffer) const {
  if (c.recording) return order.range_of(buffer);
  const Buffer& b = plan_.buffers[size_t(buffer)];
  const size_t from = reinterpret_cast<size_t>(c.buffers[size_t(buffer)]);
  size_t bytes = 0;
  switch (b.kind) {
    case Buffer::kInput: bytes = c.given[size_t(flat_.input_of[size_t(buffer)])].bytes; break;
    case Buffer::kOutput: bytes = size_t(program_.int_value(c.values.data(), b.elements)) * size_of(b.dtype); break;
    case Buffer::kTemp: bytes = c.layout.bytes[size_t(b.index)]; break;
    case Buffer::kConstant: break;  // nothing writes it
  }
  return MemoryRange::of(MemoryRange::kAddresses, 0, from, from + bytes);
}

void CudaRunner::put_in_order(LaunchOrder& order, const GpuRun& c, std::span<const int32_t> launches) const {
  order.begin();
  for (int32_t i : launches) {
    const auto touch = [&](int32_t b, bool written) { order.touch(range_of(order, c, b), written); };
    for_buffers(plan_.launches[size_t(i)], touch);
  }
  order.wait();
}

// Registers the descriptions of faults. Faults are reported after the launch, so each description is kept in the table
// of fault sites.
void CudaRunner::add_sites() {
  for (size_t i = 0; i < steps_.size(); i++) {
    if (!steps_[i].kernel) continue;
    const auto& launch = std::get<KernelLaunch>(plan_.launches[size_t(steps_[i].launch)]);
    if (launch.faults.empty()) continue;
    const Fault at = fault_of(launch);
    gpu_steps_[i].site = cuda::add_fault_site(
        [faults = launch.faults, at](const LaunchFault& fault) { return fault_error(faults, at, fault, fault.bound); });
  }
}

// Groups parallel steps. Steps of the same kernel become one launch, as far as one launch takes them.
void CudaRunner::add_groups(size_t first) {
  GpuStep& head = gpu_steps_[first];
  head.first = int32_t(groups_.size());
  for (size_t i = first; i <= first + size_t(steps_[first].beside); i++) {
    const int most = code_of(*steps_[i].kernel).most;
    auto fits = [&](const std::vector<int32_t>& g) {
      return steps_[size_t(g[0])].kernel == steps_[i].kernel && int(g.size()) < most;
    };
    auto group = std::find_if(groups_.begin() + head.first, groups_.end(), fits);
    if (group == groups_.end()) group = groups_.insert(group, std::vector<int32_t>());
    group->push_back(int32_t(i));
  }
  head.end = int32_t(groups_.size());
}

void CudaRunner::fill_head(const GpuRun& c, BlockHead* head, int32_t step, cuda::Context& gpu) const {
  head->fault = cuda::fault_record(gpu);
  head->stream = gpu.stream;
  head->device = plan_.device.index;
  head->step = c.recording ? step : -1;
  const int64_t site = gpu_steps_[size_t(step)].site;
  const LaunchStep& s = steps_[size_t(step)];
  // An eager op's kernel is used from many lines; a segment's kernel knows its line.
  head->site = site && !s.file ? cuda::site_here(site) : site;
}

bool CudaRunner::make_launch(const GpuRun& c, const std::vector<int32_t>& group, GroupLaunch& out) const {
  cuda::Context& gpu = cuda::context(plan_.device);
  const cuda::LaunchCode& code = code_of(*steps_[size_t(group[0])].kernel);
  const size_t words = size_t(steps_[size_t(group[0])].words), begin = 1 + size_t(code.most);
  const bool alone = group.size() == 1;
  unsigned blocks = 0;
  uint64_t count = 0;
  for (int32_t i : group) {
    FilledStep part;
    if (!fill(c, steps_[size_t(i)], default_generator(), part)) continue;
    fill_head(c, part.head, i, gpu);
    if (!code.prepare(part.head, out.grid)) continue;
    if (alone) out.param = reinterpret_cast<uint64_t*>(part.head);
    if (!alone) {
      out.several[1 + count] = blocks;
      std::memcpy(out.several + begin + count * words, part.head, words * 8);
    }
    blocks += out.grid.blocks[0];
    count++;
  }
  out.function = static_cast<cuda::FunctionHandle>(alone ? code.function : code.several);
  out.words = alone ? words : begin + count * words;
  if (!alone) out.several[0] = count, out.param = out.several, out.grid.blocks[0] = blocks;
  return count > 0;
}

// Runs the kernels by the interpreter. This never happens in a recording: a run is recorded only when all kernels are
// ready.
void CudaRunner::interpret(const GpuRun& c, const std::vector<int32_t>& group) const {
  cuda::Context& gpu = cuda::context(plan_.device);
  for (int32_t i : group) {
    FilledStep part;
    if (!fill(c, steps_[size_t(i)], default_generator(), part)) continue;
    fill_head(c, part.head, i, gpu);
    steps_[size_t(i)].kernel->code->run(part.head);
    const LaunchStep& s = steps_[size_t(i)];
    cuda::launched(gpu, s.op, s.file, s.line);
  }
}

// Launches the whole loop. A failure is reported when the host next waits.
void CudaRunner::launch_group(const GpuRun& c, const std::vector<int32_t>& group) const {
  cuda::Context& gpu = cuda::context(plan_.device);
  const cuda::LaunchCode& code = code_of(*steps_[size_t(group[0])].kernel);
  if (!code.ready()) return interpret(c, group);
  GroupLaunch l;
  if (!make_launch(c, group, l)) return;
  void* params[] = {l.param};
  LaunchOrder* const order = LaunchOrder::current();
  if (order) {
    SmallVec<int32_t, 16> launches;
    for (int32_t s : group) launches.push_back(steps_[size_t(s)].launch);
    put_in_order(*order, c, {launches.begin(), launches.end()});
  }
  LUTRA_CUDA(launch(l.function, l.grid.blocks[0], l.grid.blocks[1], l.grid.blocks[2], l.grid.threads[0],
                    l.grid.threads[1], l.grid.threads[2], l.grid.shared_bytes, gpu.stream, params, nullptr));
  if (order) order->end();
  const LaunchStep& s = steps_[size_t(group[0])];
  cuda::launched(gpu, s.op, s.file, s.line);
}

// Returns true if no launch uses the interpreter any more.
bool CudaRunner::kernels_ready() const {
  const auto is_ready = [](const LaunchStep& s) { return !s.kernel || code_of(*s.kernel).ready(); };
  const auto are_ready = [](const auto& f) { return static_cast<const CudaRunner&>(f->runner()).kernels_ready(); };
  return std::all_of(steps_.begin(), steps_.end(), is_ready) &&
         std::all_of(flat_.functions.begin(), flat_.functions.end(), are_ready);
}

// A segment may have inputs that its plan does not read; these may be on any device.
bool CudaRunner::reads_input(int32_t position) const {
  bool found = false;
  for (const Launch& l : plan_.launches) {
    for_buffers(l, [&](int32_t b, bool) { found = found || flat_.input_of[size_t(b)] == position; });
  }
  return found;
}

// Copies CPU inputs without dimensions to the GPU.
void CudaRunner::set_moved(GpuRun& c, const std::vector<Tensor>& inputs) const {
  c.moved.clear();
  for (size_t i = 0; i < inputs.size(); i++) {
    const Tensor& t = inputs[i];
    if (t->device() == plan_.device || !reads_input(int32_t(i))) continue;
    LUTRA_CHECK(t->sizes.empty(), "an input on ", to_string(t->device()), " of a run on ", to_string(plan_.device));
    c.moved.push_back(make_tensor({}, t->dtype, plan_.device));
    copy_bytes(c.moved.back()->data(), plan_.device, t->data(), t->device(), size_of(t->dtype));
    c.inputs[i].data = c.moved.back()->data();
  }
}

void CudaRunner::set_donors(GpuRun& c, const std::vector<Donor>& donors) const {
  c.donors.clear();
  if (donors.empty()) return;
  c.donors.assign(plan_.buffers.size(), nullptr);
  for (const Donor& d : donors) {
    const PlanOutput& out = plan_.outputs[size_t(d.output)];
    const bool made = out.kind == PlanOutput::kTensor && plan_.buffers[size_t(out.view.buffer)].kind == Buffer::kOutput;
    if (!made || d.storage->device != plan_.device || d.storage->freed || !cuda::is_block(*d.storage)) continue;
    c.donors[size_t(out.view.buffer)] = d.storage;
  }
}

// Throws where the launch cannot be part of the graph.
void CudaRunner::check_recordable(const GpuRun& c, const ExternLaunch& launch) const {
  const Control control = control_of(launch.op);
  const bool decides = control == Control::kCond || control == Control::kWhileLoop;
  if (control == Control::kScan || (decides && cuda::has_conditional_nodes())) return;
  if (decides) throw std::runtime_error(str(name(launch.op), " waits for the GPU: the driver is older than CUDA 12.4"));
  CallOperands operands;
  const char* candidate = control == Control::kNone ? extern_candidate(make_call(c, launch, operands)) : "host";
  if (candidate && !std::strcmp(candidate, "host"))
    throw std::runtime_error(str(name(launch.op), " waits for the GPU"));
}

}  // namespace lutra
