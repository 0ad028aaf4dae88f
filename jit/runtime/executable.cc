// A plan in; its launches, flattened for running. See executable.h for the invariants.
//
// A run: host expressions once, outputs and arena allocated, then each launch fills its block (kernel.h) and goes. All
// working memory of a run is in a Context; one is kept between runs, and runs that overlap make their own.
#include "jit/runtime/executable.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "jit/runtime/config.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/pool.h"
#include "jit/runtime/profile.h"
#include "jit/runtime/record.h"
#include "jit/runtime/stream.h"
#include "jit/schedule/combine.h"
#include "ops/core/error.h"
#include "ops/core/interrupt.h"
#include "ops/cuda/faults.h"
#include "ops/defs/call.h"
#include "ops/extern/cuda/recording.h"
#include "ops/extern/extern.h"

namespace lutra {

namespace {

constexpr size_t kHeadWords = sizeof(BlockHead) / 8;
constexpr size_t kMaxName = 96;

size_t align_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

// Takes the spare context or makes one; gives it back.
class Executable::ContextScope {
 public:
  explicit ContextScope(Executable& e) : e_(e), c_(e.spare_.exchange(nullptr, std::memory_order_acquire)) {
    if (c_) return;
    c_ = new Context;
    c_->values = e.program_.start_values();
    c_->buffers.assign(e.plan_.buffers.size(), nullptr);
    c_->storages.resize(e.plan_.buffers.size());
    c_->memory.reset(new uint64_t[e.block_words_ + 8]());
    c_->blocks = reinterpret_cast<uint64_t*>(align_up(reinterpret_cast<uintptr_t>(c_->memory.get()), 64));
  }
  ~ContextScope() {
    if (c_->holds_storages) {
      for (Ref<Storage>& s : c_->storages) s = nullptr;
      c_->holds_storages = false;
    }
    c_->donors.clear();
    c_->working.give_back();
    if (e_.plan_.device.type == DeviceType::kCUDA) c_->arena = nullptr;
    delete e_.spare_.exchange(c_, std::memory_order_acq_rel);
  }
  ContextScope(const ContextScope&) = delete;
  Context& operator*() { return *c_; }

 private:
  Executable& e_;
  Context* c_;
};

Executable::~Executable() {
  delete spare_.load();
  for (const Step& s : steps_) {
    if (s.site) cuda::remove_fault_site(s.site, plan_.device.index);
  }
}

std::shared_ptr<Executable> Executable::build(Plan plan, bool listing, bool at_once) {
  std::shared_ptr<Executable> e(new Executable(std::move(plan)));
  e->prepare(listing, at_once);
  return e;
}

void Executable::prepare(bool listing, bool at_once) {
  LUTRA_CHECK(plan_.env, "a plan without its SymEnv");
  program_.begin(*plan_.env, plan_.positions);
  compile_kernels(listing, at_once);
  for (size_t i = 0; i < plan_.launches.size(); i++) {
    if (const auto* kernel = std::get_if<KernelLaunch>(&plan_.launches[i])) {
      prepare_kernel(*kernel);
    } else {
      const auto& library = std::get<ExternLaunch>(plan_.launches[i]);
      for (const BufferView& v : library.in) {
        if (v.buffer >= 0) prepare_view(v);
      }
      for (const BufferView& v : library.out) prepare_view(v);
      for (ExprId e : library.ints) program_.int_slot(e);
      for (ExprId e : library.scalars) program_.number_slot(e);
      steps_.push_back({});
    }
    steps_.back().counters = counters_[i].get();
    steps_.back().launch = int32_t(i);
  }
  name_runs();
  for (size_t i = 0; i < steps_.size(); i += size_t(steps_[i].beside) + 1) {
    for (size_t k = i; k <= i + size_t(steps_[i].beside); k++) steps_[i].writes |= writes_inputs(steps_[k].launch);
  }
  if (plan_.device.type == DeviceType::kCUDA) prepare_gpu(), prepare_recordings();
  for (const PlanOutput& out : plan_.outputs) {
    if (out.kind == PlanOutput::kTensor) prepare_view(out.view);
    if (out.kind == PlanOutput::kScalar && is_number((*plan_.env)[out.scalar].op)) program_.number_slot(out.scalar);
    if (out.kind == PlanOutput::kScalar) program_.int_slot(out.scalar);
  }
  for (const ArenaSlot& s : plan_.slots) program_.int_slot(s.bytes);
  for (const Buffer& b : plan_.buffers) {
    if (b.kind == Buffer::kOutput) program_.int_slot(b.elements);
    int32_t position = b.kind == Buffer::kInput ? b.index : -1;
    if (position >= 0 && !plan_.positions.empty()) position = plan_.positions.at(size_t(position));
    input_of_.push_back(position);
    input_count_ = std::max(input_count_, position + 1);
  }
  input_count_ = std::max(input_count_, program_.input_count());
}

// Steps side by side are counted as one launch.
void Executable::name_runs() {
  for (size_t i = 0; i < steps_.size(); i += size_t(steps_[i].beside) + 1) {
    std::string names = counters_[i]->name;
    while (size_t(steps_[i].beside) + i + 1 < steps_.size()) {
      const Launch& next = plan_.launches[i + size_t(steps_[i].beside) + 1];
      const auto* kernel = std::get_if<KernelLaunch>(&next);
      if (!kernel || !kernel->beside || steps_[i].beside + 1 == kMaxBeside) break;
      steps_[i].beside++;
      names += " | " + kernel->kernel.name;
    }
    if (!steps_[i].beside) continue;
    if (names.size() > kMaxName) names = str(names.substr(0, kMaxName), "...");
    run_counters_.push_back(named_counters(str(steps_[i].beside + 1, " kernels: ", names)));
    steps_[i].counters = run_counters_.back().get();
  }
}

void Executable::prepare_view(const BufferView& view) {
  for (ExprId id : view.sizes) program_.int_slot(id);
  for (ExprId id : view.strides) program_.int_slot(id);
  program_.int_slot(view.offset);
}

// Compiles on all threads; counters_ has an entry a launch then.
void Executable::compile_kernels(bool listing, bool at_once) {
  struct Job {
    Executable& executable;
    const bool listing, at_once;
  } job{*this, listing, at_once};
  counters_.resize(plan_.launches.size());
  run_chunks(
      int(plan_.launches.size()),
      [](void* arg, int i) {
        const Job& j = *static_cast<Job*>(arg);
        j.executable.compile_launch(size_t(i), j.listing, j.at_once);
      },
      &job);
}

void Executable::compile_launch(size_t i, bool listing, bool at_once) {
  check_stop();
  const bool on_gpu = plan_.device.type != DeviceType::kCPU;
  if (const auto* library = std::get_if<ExternLaunch>(&plan_.launches[i])) {
    counters_[i] = library_counters(name(library->op));
    if (on_gpu) prepare_extern(*library);
    return;
  }
  const auto& launch = std::get<KernelLaunch>(plan_.launches[i]);
  KernelTarget target{plan_.device, current_isa(), {}, false, at_once};
  if (on_gpu) {
    for (ExprId e : launch.ints) target.hints.push_back((*plan_.env)[e].i);
    target.several = launch.beside || (i + 1 < plan_.launches.size() && is_beside(plan_.launches[i + 1]));
  }
  counters_[i] = cached_kernel(launch.kernel, target, listing);
}

namespace {

// A library's call, its numbers by expression and its data by view; `o` holds what it points to.
template <class Operands, class Int, class Number, class Data>
ExternCall call_of(const ExternLaunch& launch, Operands& o, const Int& int_of, const Number& number_of,
                   const Data& data_of) {
  const auto view_of = [&](const BufferView& v) {
    ExternView e;
    if (v.buffer < 0) return e;
    e.dtype = info(v.dtype).carrier;
    e.dim = int32_t(v.sizes.size());
    if (e.dim > kExternDims) fail_dims(name(launch.op), size_t(e.dim));
    for (int32_t d = 0; d < e.dim; d++) {
      e.sizes[d] = int_of(v.sizes[size_t(d)]);
      e.strides[d] = int_of(v.strides[size_t(d)]);
    }
    e.data = data_of(v);
    return e;
  };
  for (const BufferView& v : launch.in) o.in.push_back(view_of(v));
  for (const BufferView& v : launch.out) o.out.push_back(view_of(v));
  for (ExprId e : launch.ints) o.ints.push_back(int_of(e));
  for (ExprId e : launch.scalars) o.scalars.push_back(number_of(e));
  o.strings.assign(launch.strings.begin(), launch.strings.end());
  ExternCall call;
  call.op = launch.op, call.in = {o.in.begin(), o.in.size()}, call.out = {o.out.begin(), o.out.size()};
  call.ints = {o.ints.begin(), o.ints.size()}, call.scalars = {o.scalars.begin(), o.scalars.size()};
  call.strings = o.strings;
  return call;
}

}  // namespace

// What a call of the likely sizes needs on a GPU.
void Executable::prepare_extern(const ExternLaunch& launch) const {
  CallOperands o;
  ExternCall call = call_of(
      launch, o, [&](ExprId e) { return (*plan_.env)[e].i; }, [](ExprId) { return 1.0; },
      [](const BufferView&) { return reinterpret_cast<void*>(uintptr_t(512)); });  // present
  call.device = plan_.device;
  cuda::prepare(call);
}

namespace {

bool uses_random(const std::vector<loop::Stmt>& body) {
  return std::any_of(body.begin(), body.end(), [](const loop::Stmt& s) {
    const auto* l = std::get_if<std::unique_ptr<loop::Loop>>(&s);
    return l ? uses_random((*l)->body) : loop::info(std::get<loop::Inst>(s).op).rule == loop::TypeRule::kRandom;
  });
}

}  // namespace

void Executable::prepare_kernel(const KernelLaunch& launch) {
  const loop::Kernel& k = launch.kernel;
  LUTRA_CHECK(launch.buffers.size() == k.params.size() && launch.ints.size() == size_t(k.ints) &&
                  launch.scalars.size() == size_t(k.scalars),
              "launch of ", k.name, " with other arguments than the kernel's");
  kernel_count_++;
  Step s;
  s.kernel = counters_[steps_.size()].get();
  s.first = int32_t(operands_.size());
  s.random = uses_random(k.body);
  s.ptrs = int32_t(launch.buffers.size()), s.ints = k.ints, s.nums = k.scalars;
  for (int32_t b : launch.buffers) operands_.push_back(b);
  for (ExprId id : launch.ints) operands_.push_back(program_.int_slot(id));
  for (ExprId id : launch.scalars) operands_.push_back(program_.number_slot(id));
  s.words = int32_t(kHeadWords) + s.ptrs + s.ints + s.nums;
  s.block = int32_t(block_words_);
  block_words_ += align_up(size_t(s.words), 8);
  if (launch.extent) {
    s.extent = program_.int_slot(launch.extent);
    s.work = launch.work ? program_.int_slot(launch.work) : -1;
  }
  steps_.push_back(s);
}

std::string Executable::listings() const {
  std::string text;
  for (const Step& s : steps_) {
    if (s.kernel) text += s.kernel->code->listing;
  }
  return text;
}

size_t storage_bytes(int64_t n, size_t size) {
  LUTRA_CHECK(n >= 0, "a buffer of ", n, " elements");
  if (size_t(n) > SIZE_MAX / 2 / size) throw Error(ErrorKind::kMemory, str("out of memory: ", n, " elements"));
  return size_t(n) * size;
}

// Everything that a run computes and allocates before its first launch.
void Executable::set_buffers(Context& c, const InputView* inputs, const double* scalars, void* const* outputs) const {
  program_.run(c.values.data(), inputs, scalars);
  for (size_t i = 0; i < plan_.buffers.size(); i++) {
    const Buffer& b = plan_.buffers[i];
    c.buffers[i] = nullptr;
    if (b.kind == Buffer::kInput) c.buffers[i] = inputs[input_of_[i]].data;
    if (b.kind == Buffer::kConstant) c.buffers[i] = plan_.constants[size_t(b.index)]->data();
  }
  for (size_t i = 0; outputs && i < plan_.outputs.size(); i++) {
    const PlanOutput& out = plan_.outputs[i];
    if (out.kind != PlanOutput::kTensor || plan_.buffers[size_t(out.view.buffer)].kind != Buffer::kOutput) continue;
    const int64_t offset = program_.int_value(c.values.data(), out.view.offset) * int64_t(size_of(out.view.dtype));
    c.buffers[size_t(out.view.buffer)] = static_cast<char*>(outputs[i]) - offset;
  }
  if (!plan_.slots.empty()) set_arena(c);
}

// Outputs that nobody brought; a recording's are used again.
void Executable::make_outputs(Context& c, const Recording* recording) const {
  for (size_t i = 0; i < plan_.buffers.size(); i++) {
    const Buffer& b = plan_.buffers[i];
    if (b.kind != Buffer::kOutput || c.buffers[i]) continue;
    if (recording) c.storages[i] = recording->result(int32_t(i));
    const size_t bytes = storage_bytes(program_.int_value(c.values.data(), b.elements), size_of(b.dtype));
    if (Storage* d = c.storages[i] ? nullptr : c.donor(int32_t(i)); d && d->refs == 1 && d->nbytes == bytes) {
      c.storages[i] = Ref<Storage>(d);
    }
    if (!c.storages[i]) c.storages[i] = allocate(bytes, plan_.device);
    c.buffers[i] = c.storages[i]->data;
    c.holds_storages = true;
  }
}

void Executable::fill_block(const Context& c, const Step& step, BlockHead* head) const {
  const int32_t* operand = operands_.data() + step.first;
  auto* word = reinterpret_cast<uint64_t*>(head) + kHeadWords;
  for (int32_t i = 0; i < step.ptrs; i++) *word++ = reinterpret_cast<uint64_t>(c.buffers[size_t(*operand++)]);
  for (int32_t i = 0; i < step.ints + step.nums; i++) *word++ = uint64_t(c.values[size_t(*operand++)].i);
}

// wrote: on a GPU, whether something that existed before the run has been given to be written.
void Executable::launch_steps(Context& c, bool& wrote) const {
  Generator& generator = default_generator();
  const bool watched = launches_watched(), on_gpu = plan_.device.type == DeviceType::kCUDA;
  std::optional<LaunchTimer> timer;
  if (watched) wait_for(plan_.device);
  StoppableLoops loops(false);
  for (size_t i = 0; i < steps_.size(); i += size_t(steps_[i].beside) + 1) {
    check_stop();
    const Step& step = steps_[i];
    loops.set(!step.writes);
    if (watched) timer.emplace();
    if (on_gpu && step.kernel) {
      for (int32_t g = step.gpu_first; g < step.gpu_end; g++) {
        launch_on_gpu(c, gpu_groups_[size_t(g)]);
        wrote = wrote || step.writes;
      }
    } else if (step.beside) {
      launch_beside(c, &step, generator);
    } else if (step.kernel) {
      launch_kernel(c, step, generator);
    } else {
      launch_extern(c, step);
      wrote = wrote || step.writes;
    }
    if (watched) wait_for(plan_.device);
    if (watched) note_launch(c.values.data(), &step, timer->stop());
  }
  generator.next_call += uint64_t(plan_.rng_calls);
}

// False where its loop runs no time at all.
bool Executable::make_part(const Context& c, const Step& step, const Generator& generator, Part& part) const {
  part = {&step, reinterpret_cast<BlockHead*>(c.blocks + step.block), 1, 1, 1, 0};
  if (step.extent >= 0) {
    part.extent = c.values[size_t(step.extent)].i;
    if (step.work >= 0) part.work = c.values[size_t(step.work)].i;
    if (part.extent <= 0) return false;
    part.chunks = std::min(chunk_count(part.extent, part.work), kMaxChunks);
  }
  fill_block(c, step, part.head);
  part.head->begin = 0, part.head->end = part.extent;
  if (step.random) part.head->seed = generator.seed, part.head->call = generator.next_call;
  return true;
}

ExternCall Executable::make_call(const Context& c, const ExternLaunch& launch, CallOperands& o) const {
  const HostValue* const values = c.values.data();
  ExternCall call = call_of(
      launch, o, [&](ExprId e) { return program_.int_value(values, e); },
      [&](ExprId e) { return program_.number_value(values, e); },
      [&](const BufferView& v) {
        char* const buffer = static_cast<char*>(c.buffers[size_t(v.buffer)]);
        return buffer + program_.int_value(values, v.offset) * int64_t(size_of(v.dtype));
      });
  call.parallel = parallel_for, call.isa = current_extern_isa();
  call.device = plan_.device, call.stream = stream_of(plan_.device);
  return call;
}

// What the arena does not need meanwhile is the library's to use.
void Executable::launch_extern(Context& c, const Step& step) const {
  CallOperands operands;
  const size_t i = size_t(step.launch);
  if (c.working) {
    const ArenaGap gap = i < c.layout.gaps.size() ? c.layout.gaps[i] : ArenaGap();
    c.working.scratch().lend(c.arena_base ? c.arena_base + gap.offset : nullptr, gap.bytes);
  }
  if (c.order) c.order->begin({&step.launch, 1});
  const auto& launch = std::get<ExternLaunch>(plan_.launches[i]);
  const cuda::PlaceScope place(launch.file, launch.line);
  run_extern(make_call(c, launch, operands));
  if (c.order) c.order->end();
}

// "gather: index 12 is out of bounds for dimension 1 with size 10"
Error fault_error(const std::vector<Fault>& faults, const Fault& launch, const LaunchFault& fault, int64_t size) {
  Fault at = launch;
  bool known = false;
  for (const Fault& f : faults) {
    if (f.arg != fault.arg) continue;
    at = f, known = true;
    if (!at.op) at.op = launch.op;
    if (!at.file) at.file = launch.file, at.line = launch.line;
  }
  const int64_t index = at.wraps && fault.index < 0 ? fault.index - size : fault.index;
  std::string what = "integer division by zero";
  if (at.text) {
    what = at.text;
  } else if (at.target) {
    what = str("target ", index, " is out of bounds for ", size, " classes");
  } else if (!known || at.dim >= 0) {
    what = str("index ", index, " is out of bounds", known ? str(" for dimension ", at.dim) : "", " with size ", size);
  }
  Error error(ErrorKind::kData, str(at.op && *at.op ? at.op : "kernel", ": ", what));
  error.file = at.file;
  error.line = at.line;
  return error;
}

void Executable::report(const Step& step, const BlockHead* head, const LaunchFault& fault) const {
  const auto& launch = std::get<KernelLaunch>(plan_.launches[size_t(step.launch)]);
  const auto* words = reinterpret_cast<const int64_t*>(head) + kHeadWords + step.ptrs;
  throw fault_error(launch.faults, {fault.arg, -1, launch.op, launch.file, launch.line}, fault, words[fault.arg]);
}

Tensor Executable::make_output(const Context& c, const BufferView& v, const std::vector<Tensor>& inputs) const {
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
    const Tensor& t =
        b.kind == Buffer::kConstant ? plan_.constants[size_t(b.index)] : inputs[size_t(input_of_[size_t(v.buffer)])];
    impl->storage = t->storage;
    offset += t->offset.hint;
  }
  impl->offset = offset;
  return Tensor(std::move(impl));
}

std::vector<Value> Executable::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                   const std::vector<Donor>& donors) {
  LUTRA_CHECK(inputs.size() >= size_t(input_count_), "run with ", inputs.size(), " inputs");
  ContextScope scope(*this);
  Context& c = *scope;
  set_views(c, inputs);
  if (plan_.device.type == DeviceType::kCUDA) set_moved(c, inputs);
  if (recordings_) c.working.take(plan_.device);
  set_buffers(c, c.inputs.data(), scalars.data(), nullptr);
  set_donors(c, donors);
  const cuda::ScratchScope scratch(recordings_ ? &c.working.scratch() : nullptr);
  std::unique_lock<std::mutex> lock;
  Recording* recording = recordings_ ? pick_recording(c, inputs, lock) : nullptr;
  make_outputs(c, recording);
  std::vector<Value> results;
  results.reserve(plan_.outputs.size());
  for (const PlanOutput& out : plan_.outputs) {
    if (out.kind == PlanOutput::kTensor) {
      results.emplace_back(make_output(c, out.view, inputs));
    } else if (out.kind == PlanOutput::kNone) {
      results.emplace_back();
    } else if (is_number((*plan_.env)[out.scalar].op)) {
      results.emplace_back(Scalar(program_.number_value(c.values.data(), out.scalar)));
    } else {
      results.emplace_back(Scalar::of_int(program_.int_value(c.values.data(), out.scalar)));
    }
  }
  if (recording) {
    launch_recorded(c, *recording);
  } else {
    launch_all(c);
  }
  bump_versions(inputs);
  return results;
}

void Executable::run_into(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                          const std::vector<Tensor>& outputs) {
  LUTRA_CHECK(inputs.size() >= size_t(input_count_) && outputs.size() == plan_.outputs.size());
  ContextScope scope(*this);
  Context& c = *scope;
  set_views(c, inputs);
  c.outputs.clear();
  for (const Tensor& t : outputs) c.outputs.push_back(t ? t->data() : nullptr);
  set_buffers(c, c.inputs.data(), scalars.data(), c.outputs.data());
  make_outputs(c, nullptr);
  launch_all(c);
  bump_versions(inputs);
}

void Executable::run_views(const InputView* inputs, const double* scalars, void* const* outputs) {
  ContextScope scope(*this);
  set_buffers(*scope, inputs, scalars, outputs);
  make_outputs(*scope, nullptr);
  launch_all(*scope);
}

// Reading a freed or fake tensor raises here.
void Executable::set_views(Context& c, const std::vector<Tensor>& inputs) const {
  c.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    c.inputs[i] = {inputs[i]->data(), inputs[i]->sizes.begin(), inputs[i]->strides.begin()};
  }
}

void Executable::bump_versions(const std::vector<Tensor>& inputs) const {
  for (int32_t i : plan_.mutated) {
    const int32_t position = plan_.positions.empty() ? i : plan_.positions.at(size_t(i));
    if (position >= 0) inputs[size_t(position)]->storage->version++;
  }
}

}  // namespace lutra
