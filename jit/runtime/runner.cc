// The part of a run that all kinds of devices share.
#include "jit/runtime/runner.h"

#include <optional>

#include "jit/device/backend.h"
#include "jit/graph/unbacked.h"
#include "jit/runtime/config.h"
#include "jit/runtime/lines.h"
#include "jit/runtime/pool.h"
#include "jit/runtime/profile.h"
#include "ops/core/foreign.h"
#include "ops/core/intern.h"
#include "ops/core/interrupt.h"
#include "ops/core/late_error.h"
#include "ops/core/own_memory.h"
#include "ops/decompose/emit.h"
#include "ops/defs/call.h"
#include "ops/grad/tape.h"

namespace lutra {

size_t storage_bytes(int64_t n, size_t size) {
  LUTRA_CHECK(n >= 0, "a buffer of ", n, " elements");
  if (size_t(n) > SIZE_MAX / 2 / size) throw Error(ErrorKind::kMemory, str("out of memory: ", n, " elements"));
  return size_t(n) * size;
}

// Takes the spare context or makes one. The destructor gives it back.
class Runner::ContextScope {
 public:
  explicit ContextScope(Runner& r) : r_(r), c_(r.spare_.exchange(nullptr, std::memory_order_acquire)) {
    if (c_) return;
    c_ = r.make_context();
    c_->values = r.program_.start_values();
    c_->buffers.assign(r.plan_.buffers.size(), nullptr);
    c_->storages.resize(r.plan_.buffers.size());
    c_->memory.reset(new uint64_t[r.flat_.block_words + 8]());
    c_->blocks = reinterpret_cast<uint64_t*>((reinterpret_cast<uintptr_t>(c_->memory.get()) + 63) / 64 * 64);
  }
  ~ContextScope() {
    if (c_->holds_storages) {
      for (int32_t i : r_.made_) c_->storages[size_t(i)] = nullptr;
      c_->holds_storages = false;
    }
    c_->unbacked_memory.clear();
    r_.end(*c_);
    delete r_.spare_.exchange(c_, std::memory_order_acq_rel);
  }
  ContextScope(const ContextScope&) = delete;
  RunContext& operator*() { return *c_; }

 private:
  Runner& r_;
  RunContext* c_;
};

Runner::Runner(const FlatPlan& flat) : flat_(flat), plan_(flat.plan), program_(flat.program), steps_(flat.steps) {
  for (size_t i = 0; i < plan_.buffers.size(); i++) {
    const Buffer& b = plan_.buffers[i];
    switch (b.kind) {
      case Buffer::kInput: given_.push_back({int32_t(i), flat_.input_of[i]}); break;
      case Buffer::kConstant: constants_.push_back({int32_t(i), b.index}); break;
      case Buffer::kTemp: temporaries_.push_back({int32_t(i), b.index}); break;
      case Buffer::kOutput: made_.push_back(int32_t(i)); break;
    }
  }
}
Runner::~Runner() { delete spare_.load(); }

// Computes and allocates everything that a run needs before its first launch.
void Runner::set_buffers(RunContext& c, const InputView* inputs, const double* scalars, void* const* outputs) const {
  c.given = inputs;
  program_.run(c.values.data(), inputs, scalars);
  void** const buffers = c.buffers.data();
  for (const auto& [i, input] : given_) buffers[i] = inputs[input].data;
  for (const auto& [i, constant] : constants_) buffers[i] = flat_.constants[size_t(constant)]->data();
  for (int32_t i : made_) buffers[i] = nullptr;
  for (size_t i = 0; outputs && i < plan_.outputs.size(); i++) {
    const PlanOutput& out = plan_.outputs[i];
    if (out.kind != PlanOutput::kTensor || plan_.buffers[size_t(out.view.buffer)].kind != Buffer::kOutput) continue;
    const int64_t offset = bytes_of(out.view.dtype, program_.int_value(c.values.data(), out.view.offset));
    c.buffers[size_t(out.view.buffer)] = static_cast<char*>(outputs[i]) - offset;
  }
  if (!plan_.slots.empty()) set_arena(c);
}

// Places the slots again if a size differs from the last run's.
void Runner::set_arena(RunContext& c) const {
  const ArenaRules& rules = flat_.backend.preferences.arena;
  ArenaLayout& layout = c.layout;
  bool changed = layout.offsets.size() != plan_.slots.size();
  layout.bytes.resize(plan_.slots.size());
  for (size_t s = 0; s < plan_.slots.size(); s++) {
    const ExprId wanted = plan_.slots[s].bytes;
    const size_t bytes = flat_.level(wanted) ? 0 : storage_bytes(program_.int_value(c.values.data(), wanted), 1);
    if (layout.bytes[s] != bytes) changed = true, layout.bytes[s] = bytes;
  }
  if (changed) {
    layout.place(plan_.slots, rules.align, rules.spare);
    for (size_t i = 0; rules.lends_gaps && i < plan_.launches.size(); i++) {
      if (std::holds_alternative<ExternLaunch>(plan_.launches[i])) layout.find_gap(plan_.slots, int32_t(i));
    }
  }
  c.arena_base = static_cast<char*>(arena(c, layout.total));
  for (const auto& [i, place] : temporaries_) c.buffers[size_t(i)] = c.arena_base + layout.offsets[size_t(place)];
}

void* Runner::arena(RunContext& c, size_t bytes) const {
  if (!c.arena || c.arena->nbytes < bytes) {
    const OwnMemory kept;
    c.arena = nullptr, c.arena = allocate(bytes, plan_.device);
  }
  return c.arena->data;
}

Ref<Storage> Runner::output(RunContext&, int32_t, size_t bytes) const { return allocate(bytes, plan_.device); }

// Makes the outputs that the caller did not pass.
void Runner::make_outputs(RunContext& c) const {
  for (int32_t at : made_) {
    if (!c.buffers[size_t(at)] && !flat_.level(plan_.buffers[size_t(at)].elements)) make_output_buffer(c, at);
  }
}

void Runner::make_output_buffer(RunContext& c, int32_t at) const {
  const auto i = size_t(at);
  const Buffer& b = plan_.buffers[i];
  const size_t bytes = storage_bytes(program_.int_value(c.values.data(), b.elements), size_of(b.dtype));
  c.storages[i] = output(c, at, bytes);
  c.buffers[i] = c.storages[i]->data;
  c.holds_storages = true;
}

void Runner::launch_all(RunContext& c) const {
  bool wrote = false, in_place = false;
  try {
    launch_steps(c, wrote, in_place);
  } catch (const Error& e) {
    // A run that has written results must not be repeated from its start. After in-place writes it may be, but nobody
    // repeats a run that was stopped.
    const auto [file, line] = flat_.first_place();
    if (wrote || (in_place && e.kind == ErrorKind::kInterrupt))
      throw LateError(Error(e.kind, str(e.what(), "; ", file ? str("the segment at ", file, ":", line) : "it",
                                        " had begun to write its results")));
    throw;
  } catch (const std::bad_alloc&) {
    if (wrote) throw LateError(Error(ErrorKind::kMemory, "out of memory"));
    throw;
  }
}

void Runner::launch_steps(RunContext& c, bool& wrote, bool& in_place) const {
  Generator& generator = default_generator();
  const bool watched = launches_watched();
  std::optional<LaunchTimer> timer;
  if (watched) flat_.backend.wait(plan_.device);
  c.unsettled = false;
  const bool unseen = loops_are_stoppable;  // the caller drops the results
  StoppableLoops loops(unseen);
  for (const LaunchStep* step = steps_.data(); step != flat_.end(); step = FlatPlan::after(step)) {
    check_stop();
    loops.set(unseen || !step->writes || step->in_place);
    if (watched) timer.emplace(flat_.backend);
    in_place = in_place || step->in_place;
    step->kernel ? launch_kernels(c, *step, generator, wrote) : launch_library(c, *step);
    wrote = wrote || (step->writes && !step->in_place);
    if (watched) flat_.backend.wait(plan_.device);
    if (watched) note_launch(flat_, c.values.data(), step, c.library, timer->stop());
  }
  if (is_tuned()) note_tuning(c);
  generator.next_call += uint64_t(plan_.rng_calls);
}

// Fills in the kernel's block. Returns false if its loop has no iterations.
bool Runner::fill(const RunContext& c, const LaunchStep& step, const Generator& generator, FilledStep& out) const {
  out = {&step, reinterpret_cast<BlockHead*>(c.blocks + step.block), 1, 1};
  if (step.extent >= 0) {
    out.extent = c.values[size_t(step.extent)].i;
    if (out.extent <= 0) return false;
  }
  if (step.work >= 0) out.work = c.values[size_t(step.work)].i;
  const int32_t* operand = flat_.operands.data() + step.first;
  auto* word = reinterpret_cast<uint64_t*>(out.head) + kHeadWords;
  for (int32_t i = 0; i < step.ptrs; i++) *word++ = reinterpret_cast<uint64_t>(c.buffers[size_t(*operand++)]);
  for (int32_t i = 0; i < step.ints + step.nums; i++) *word++ = uint64_t(c.values[size_t(*operand++)].i);
  out.head->begin = 0, out.head->end = out.extent;
  if (step.random) out.head->seed = generator.seed, out.head->call = generator.next_call;
  return true;
}

ExternCall Runner::make_call(const RunContext& c, const ExternLaunch& launch, CallOperands& o) const {
  const HostValue* const values = c.values.data();
  ExternCall call = call_of(
      launch, o, [&](ExprId e) { return program_.int_value(values, e); },
      [&](ExprId e) { return program_.number_value(values, e); },
      [&](const BufferView& v) {
        char* const buffer = static_cast<char*>(c.buffers[size_t(v.buffer)]);
        return buffer + program_.int_value(values, v.offset) * int64_t(size_of(v.dtype));
      });
  call.parallel = parallel_for, call.threads = thread_count(), call.isa = current_extern_isa();
  call.device = plan_.device, call.stream = flat_.backend.stream(plan_.device);
  return call;
}

void Runner::launch_library(RunContext& c, const LaunchStep& step) const {
  const auto& launch = std::get<ExternLaunch>(plan_.launches[size_t(step.launch)]);
  if (!launch.functions.empty()) return launch_control(c, launch);
  if (step.unbacked >= 0) return launch_unbacked(c, step);
  CallOperands operands;
  c.library = run_library(flat_.backend, make_call(c, launch, operands), tuning());
  c.unsettled |= c.library.why == LibraryChoice::kMeasuring;
}

Tuning Runner::tuning() const {
  if (!is_tuned()) return Tuning::kOff;
  if (is_recording()) return Tuning::kSettled;
  return runtime_config().tune ? Tuning::kAtOnce : Tuning::kInFlight;
}

void Runner::note_tuning(const RunContext& c) const {
  if (c.unsettled)
    unsettled_ = true;
  else if (unsettled_.exchange(false))
    settled_times_++;
}

Fault fault_of(const KernelLaunch& launch) { return {-1, -1, launch.op, launch.file, launch.line}; }

void Runner::launch_unbacked(RunContext& c, const LaunchStep& step) const {
  const auto& launch = std::get<ExternLaunch>(plan_.launches[size_t(step.launch)]);
  const Results made = make_unbacked(c, launch);
  const int32_t number = flat_.unbacked[size_t(step.unbacked)].number;
  const double value = determined_value(launch.op, made[0]);
  c.scalars[size_t(number)] = value;
  program_.run(c.values.data(), c.given, c.scalars.data());
  if (!program_.guards_hold(c.values.data(), step.unbacked + 1)) throw UnbackedMiss(launch.op, number, value);
  allocate_unbacked(c, step.unbacked + 1);
  for (size_t r = 0; r < made.size(); r++) {
    const auto place = size_t(launch.out[r].buffer);
    const bool leaves = plan_.buffers[place].kind == Buffer::kOutput;
    (leaves ? c.storages[place] : c.unbacked_memory.emplace_back()) = made[r]->storage;
    c.holds_storages |= leaves;
    c.buffers[place] = made[r]->storage->data;
  }
}

// Runs the op on the device, or on the CPU if the device has no kernel.
Results Runner::make_unbacked(const RunContext& c, const ExternLaunch& launch) const {
  Args args;
  size_t in = 0, ints = 0, scalars = 0;
  for (const ArgInfo& arg : info(launch.op).args) {
    switch (arg.type) {
      case ArgType::kScalar:
        args.push_back(Scalar(program_.number_value(c.values.data(), launch.scalars[scalars++])));
        break;
      case ArgType::kTensor: {
        const BufferView& v = launch.in[in++];
        args.push_back(v.buffer < 0 ? Value() : Value(operand(c, v)));
        break;
      }
      case ArgType::kInt: {
        const int64_t n = program_.int_value(c.values.data(), launch.ints[ints++]);
        args.push_back(n == kNoInt ? Value() : vint(n));
        break;
      }
      case ArgType::kBool: args.push_back(program_.int_value(c.values.data(), launch.ints[ints++]) != 0); break;
      default: fail_internal(name(launch.op), ": an argument that no launch has");
    }
  }
  const GradModeScope no_grad(false);
  return call_op(launch.op, std::move(args));
}

// Allocates the memory whose size is known now that `level` sizes are.
void Runner::allocate_unbacked(RunContext& c, int32_t level) const {
  std::vector<void*> slots(plan_.slots.size(), nullptr);
  for (const auto& [i, slot] : temporaries_) {
    const ExprId bytes = plan_.slots[size_t(slot)].bytes;
    if (flat_.level(bytes) != level) continue;
    if (!slots[size_t(slot)]) {
      c.unbacked_memory.push_back(allocate(storage_bytes(program_.int_value(c.values.data(), bytes), 1), plan_.device));
      slots[size_t(slot)] = c.unbacked_memory.back()->data;
    }
    c.buffers[size_t(i)] = slots[size_t(slot)];
  }
  for (int32_t i : made_) {
    if (flat_.level(plan_.buffers[size_t(i)].elements) == level) make_output_buffer(c, i);
  }
}

// Returns a tensor over an operand of a library launch.
Tensor Runner::operand(const RunContext& c, const BufferView& v) const {
  Sizes sizes, strides;
  for (ExprId id : v.sizes) sizes.push_back(program_.int_value(c.values.data(), id));
  for (ExprId id : v.strides) strides.push_back(program_.int_value(c.values.data(), id));
  if (numel(sizes) == 0) return make_tensor(sizes, v.dtype, plan_.device);
  char* const data = static_cast<char*>(c.buffers[size_t(v.buffer)]);
  const int64_t offset = bytes_of(v.dtype, program_.int_value(c.values.data(), v.offset));
  return tensor_over(data + offset, sizes, &strides, v.dtype, plan_.device, {});
}

// Makes an error like "gather: index 12 is out of bounds for dimension 1 with size 10".
Error fault_error(const std::vector<Fault>& faults, const Fault& launch, const LaunchFault& fault, int64_t size) {
  Fault at = launch;
  bool known = false;
  for (const Fault& f : faults) {
    if (f.arg != fault.arg) continue;
    at = f, known = true;
    if (at.op.empty()) at.op = launch.op;
    if (at.file.empty()) at.file = launch.file, at.line = launch.line;
  }
  const int64_t index = at.wraps && fault.index < 0 ? fault.index - size : fault.index;
  std::string what = "integer division by zero";
  if (!at.text.empty()) {
    what = at.text;
  } else if (at.target) {
    what = str("target ", index, " is out of bounds for ", size, " classes");
  } else if (!known || at.dim >= 0) {
    what = str("index ", index, " is out of bounds", known ? str(" for dimension ", at.dim) : "", " with size ", size);
  }
  Error error(ErrorKind::kData, str(at.op.empty() ? "kernel" : at.op, ": ", what));
  error.file = at.file.empty() ? nullptr : intern(at.file);
  error.line = at.line;
  return error;
}

void Runner::report(const FilledStep& filled, const LaunchFault& fault) const {
  const LaunchStep& step = *filled.step;
  const auto& launch = std::get<KernelLaunch>(plan_.launches[size_t(step.launch)]);
  const auto* words = reinterpret_cast<const int64_t*>(filled.head) + kHeadWords + step.ptrs;
  throw fault_error(launch.faults, fault_of(launch), fault, words[fault.arg]);
}

Tensor Runner::make_output(const RunContext& c, const BufferView& v, const std::vector<Tensor>& inputs) const {
  const Buffer& b = plan_.buffers[size_t(v.buffer)];
  Ref<TensorImpl> impl = make_ref<TensorImpl>();
  impl->dtype = v.dtype;
  const HostValue* values = c.values.data();
  for (ExprId id : v.sizes) impl->sizes.push_back(program_.int_value(values, id));
  for (ExprId id : v.strides) impl->strides.push_back(program_.int_value(values, id));
  int64_t offset = program_.int_value(values, v.offset);
  if (b.kind == Buffer::kOutput) {
    impl->storage = c.storages[size_t(v.buffer)];
  } else {
    LUTRA_CHECK(b.kind != Buffer::kTemp, "an output in the arena");
    const Tensor& t = b.kind == Buffer::kConstant ? flat_.constants[size_t(b.index)]
                                                  : inputs[size_t(flat_.input_of[size_t(v.buffer)])];
    impl->storage = t->storage;
    offset += t->offset.hint * bytes_of(t->dtype, 2) / bytes_of(v.dtype, 2);
  }
  impl->offset = offset;
  return Tensor(std::move(impl));
}

std::vector<Value> Runner::make_results(const RunContext& c, const std::vector<Tensor>& inputs) const {
  std::vector<Value> results;
  results.reserve(plan_.outputs.size());
  for (const PlanOutput& out : plan_.outputs) {
    if (out.kind == PlanOutput::kTensor) {
      results.emplace_back(make_output(c, out.view, inputs));
    } else if (out.kind == PlanOutput::kNone) {
      results.emplace_back();
    } else if (is_number(plan_.exprs[size_t(out.scalar)].op)) {
      results.emplace_back(Scalar(program_.number_value(c.values.data(), out.scalar)));
    } else {
      results.emplace_back(Scalar::of_int(program_.int_value(c.values.data(), out.scalar)));
    }
  }
  return results;
}

// Counts writes even if the launches failed after they had begun to write.
template <class F>
void Runner::count_writes(const std::vector<Tensor>& inputs, const F& launch) const {
  try {
    launch();
  } catch (const LateError&) {
    bump_versions(inputs);
    throw;
  }
  bump_versions(inputs);
}

std::vector<Value> Runner::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                               const std::vector<Donor>& donors, std::vector<InputView>* views) {
  note_lines(&plain_, 1);
  std::vector<Value> plain;
  if (plain_ && plain_->run(inputs, views ? views->data() : nullptr, scalars.data(), plain)) return plain;
  LUTRA_CHECK(inputs.size() >= size_t(flat_.input_count), "run with ", inputs.size(), " inputs");
  ContextScope scope(*this);
  RunContext& c = *scope;
  set_views(c, inputs, views);
  begin(c, inputs);
  if (flat_.unbacked.empty()) {
    set_buffers(c, c.inputs.data(), scalars.data(), nullptr);
    choose(c, inputs, donors);
    make_outputs(c);
    std::vector<Value> results = make_results(c, inputs);
    count_writes(inputs, [&] { launch(c); });
    return results;
  }
  c.scalars = scalars;
  for (const UnbackedSize& s : flat_.unbacked) c.scalars[size_t(s.number)] = s.hint;
  set_buffers(c, c.inputs.data(), c.scalars.data(), nullptr);
  choose(c, inputs, donors);
  make_outputs(c);
  count_writes(inputs, [&] { launch(c); });
  try {
    return make_results(c, inputs);
  } catch (const std::bad_alloc&) {
    if (plan_.mutated.empty()) throw;
    throw LateError(Error(ErrorKind::kMemory, "no memory for results; the inputs have been written"));
  }
}

void Runner::run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                      const std::vector<Tensor>& outputs) {
  LUTRA_CHECK(inputs.size() >= size_t(flat_.input_count) && outputs.size() == plan_.outputs.size());
  LUTRA_CHECK(flat_.unbacked.empty(), "results of sizes that nobody knows");
  ContextScope scope(*this);
  RunContext& c = *scope;
  set_views(c, inputs, nullptr);
  c.outputs.clear();
  for (const Tensor& t : outputs) c.outputs.push_back(t ? t->data() : nullptr);
  set_buffers(c, c.inputs.data(), scalars.data(), c.outputs.data());
  make_outputs(c);
  count_writes(inputs, [&] { launch_all(c); });
}

void Runner::run_views(const InputView* inputs, const double* scalars, void* const* outputs) {
  ContextScope scope(*this);
  set_buffers(*scope, inputs, scalars, outputs);
  make_outputs(*scope);
  launch_all(*scope);
}

void Runner::prepare(const std::vector<Tensor>& like, const std::vector<double>& scalars) {
  if (plan_.slots.empty() || !flat_.backend.preferences.arena.cleared_late) return;
  ContextScope scope(*this);
  RunContext& c = *scope;
  c.inputs.clear();
  for (const Tensor& t : like) c.inputs.push_back({nullptr, t->sizes.begin(), t->strides.begin()});
  program_.run(c.values.data(), c.inputs.data(), scalars.data());
  try {
    set_arena(c);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kMemory) throw;  // memory may be free when it runs
  }
}

// Makes views of the inputs. Throws for a freed or fake tensor.
void Runner::set_views(RunContext& c, const std::vector<Tensor>& inputs, std::vector<InputView>* known) const {
  if (known) {
    std::swap(c.inputs, *known);
    const Tensor* input = inputs.data();
    for (InputView *view = c.inputs.data(), *end = view + inputs.size(); view != end; view++, input++) {
      if (!view->data) *view = view_of(*input->get());
    }
    return;
  }
  c.inputs.resize(inputs.size());
  InputView* view = c.inputs.data();
  for (const Tensor& input : inputs) *view++ = view_of(*input.get());
}

void Runner::bump_versions(const std::vector<Tensor>& inputs) const {
  for (int32_t i : plan_.mutated) {
    const int32_t position = plan_.positions.empty() ? i : plan_.positions.at(size_t(i));
    if (position >= 0) inputs[size_t(position)]->storage->version++;
  }
}

}  // namespace lutra
