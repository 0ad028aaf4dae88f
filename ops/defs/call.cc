// Runs a call of an op: autocast, tape, modes from the top, executor.
// Invariants:
// 1. The tape is entered at most once a call: code below it runs with grad mode off.
// 2. A mode's handler sees the modes below it only; a ModeScope made inside it goes on top of those.
#include "ops/defs/call.h"

#include "ops/core/late_error.h"
#include "ops/core/overlap.h"
#include "ops/defs/autocast.h"
#include "ops/defs/control.h"
#include "ops/defs/each_tensor.h"
#include "ops/defs/modes.h"
#include "ops/defs/on_parts.h"
#include "ops/defs/packed.h"
#include "ops/defs/to_device.h"

namespace lutra {

// Defined in ops/grad. Declared here because ops/grad includes ops/defs, not the other way round.
Results tape_call(OpId op, Args& args);
Tensor tape_call_inplace(OpId op, Args& args);
void refresh_view(const Tensor& view);

struct CallStack {
  static thread_local ModeScope* top;
  // Makes the mode below the current one for a scope.
  struct Below {
    ModeScope* saved = top;
    Below() { top = saved->below_; }
    ~Below() { top = saved; }
  };
  static void push(ModeScope* scope) { top = scope; }
  static void pop(ModeScope* scope) { top = scope->below_; }
  static Mode* mode() { return top ? top->mode_ : nullptr; }
};
thread_local ModeScope* CallStack::top = nullptr;

ModeScope::ModeScope(Mode* mode) : mode_(mode), below_(CallStack::top) { CallStack::push(this); }
ModeScope::~ModeScope() { CallStack::pop(this); }
Mode* current_mode() { return CallStack::mode(); }

namespace {

Executor* executor = nullptr;

void check_usable(const OpInfo& op, size_t i, const Tensor& t, const Tensor*& device_of) {
  if (t->storage->freed) fail(op.name, ": argument '", op.args[i].name, "' was freed (x:free())");
  // A zero-dimensional CPU tensor goes with every device.
  if (t->sizes.empty() && t->device().type == DeviceType::kCPU) return;
  if (device_of && !((*device_of)->device() == t->device())) {
    fail(op.name, ": expected all tensors to be on the same device, but found at least two devices, ",
         to_string((*device_of)->device()), " and ", to_string(t->device()), "!");
  }
  device_of = &t;
}

[[noreturn]] void refuse_stored(const OpInfo& op, size_t i, DType dtype) {
  fail(op.name, ": argument '", op.args[i].name, "': not defined for ", name(dtype),
       ", which tensors can only be stored in; convert by x:to(dtype)");
}

[[noreturn]] void refuse_complex_history(const char* op) {
  fail(op, ": complex tensors have no gradients yet; x:detach() the argument, or call it in lt.no_grad");
}

struct Inspected {
  bool wants_grad = false;  // the tape must see the call
  bool stored = false;      // an argument is or has a stored dtype
};

// Checks the tensors among the arguments.
Inspected inspect(const OpInfo& op, const Args& args) {
  Inspected seen;
  const bool grad_mode = modes().grad;
  const bool moves = op.has(kMoves) || op.takes_as_parts();
  for (size_t i = 0; i < args.size(); i++) {
    if (!args[i].is<DType>() || !is_stored(args[i].as<DType>())) continue;
    if (!moves) refuse_stored(op, i, args[i].as<DType>());
    seen.stored = true;
  }
  CallWatch* watch = modes().watch.get();
  const Tensor *device_of = nullptr, *other = nullptr;
  each_argument_tensor(args, [&](size_t i, const Tensor& t) {
    if (!t) fail(op.name, ": argument '", op.args[i].name, "' has a nil among its tensors");
    // copy_ copies from any device to any device.
    const bool stored = is_stored(t->dtype);
    if (!moves && stored) refuse_stored(op, i, t->dtype);
    seen.stored |= stored;
    check_usable(op, i, t, op.id == OpId::copy_ && i == 1 ? other : device_of);
    if (watch) watch->takes(t);
    if (!grad_mode) return;
    if (t->view && t->view->version != t->storage->version) refresh_view(t);
    seen.wants_grad |= t->requires_grad;
    if (lost_history(t) && op.id != OpId::detach) refuse_complex_history(op.name);
  });
  return seen;
}

// Copies indices on the CPU to the device of the tensor. They may be used with a tensor of any device.
void bring_indices(Args& args) {
  if (!args[0].is<Tensor>() || !args[0].as<Tensor>() || !args[1].is<std::vector<Tensor>>()) return;
  const Device device = args[0].as<Tensor>()->device();
  if (device == Device{}) return;
  for (Tensor& t : args[1].as<std::vector<Tensor>>()) {
    if (t && t->device() == Device{}) t = op1(OpId::to_device, {t, device});
  }
}

}  // namespace

Ref<ViewHistory> step_by_places(const Tensor& t) {
  auto* step = new ViewStep;
  step->version = t->storage->version;
  step->op = OpId::as_strided;
  step->args = {Value(), t->sizes, t->strides, Scalar::of_sym(t->offset)};
  return Ref<ViewHistory>(step);
}

namespace {

// Records a view's base, so that the tape sees writes through either. A complex view of a float tensor starts a new
// base, because histories end there.
void track_view(OpId op, const Args& args, const Tensor& result) {
  const Tensor& input = args[0].as<Tensor>();
  if ((!is_float(result->dtype) && !is_complex(result->dtype)) || result.same(input)) return;
  const bool begins = !input->base || (is_complex(input->dtype) && !is_complex(input->base->dtype));
  result->base = begins ? input : input->base;
  if (!modes().grad || (input->base && !input->view)) return;
  const Ref<ViewHistory> previous = begins ? Ref<ViewHistory>() : input->view;
  const auto* before = static_cast<const ViewStep*>(previous.get());
  if (before && before->length == kMaxViewSteps) {
    result->view = step_by_places(result);
    return;
  }
  Ref<ViewStep> step = make_ref<ViewStep>();
  step->version = input->storage->version;
  step->op = op;
  step->args = args;
  step->args[0] = Value();
  step->previous = previous;
  step->length = before ? before->length + 1 : 1;
  result->view = Ref<ViewHistory>(step.get());
}

bool same_layout(const ResultSpec& spec, const Tensor& t) {
  if (spec.dtype != t->dtype || spec.sizes.size() != t->sizes.size()) return false;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    bool same = spec.strides[d].hint == t->strides[d].hint && spec.strides[d].expr == t->strides[d].expr;
    if (!same && t->sizes[d] != 1 && spec.strides[d] != t->strides[d]) return false;
  }
  return true;
}

Results view_results(OpId op, const Args& args, const ResultSpecs& specs) {
  const Tensor& input = args[0].as<Tensor>();
  Results results;
  for (const ResultSpec& s : specs) results.push_back(alias(op, input, s));
  return results;
}

Executor& bottom(const OpInfo& op, const Args& args) {
  each_argument_tensor(args, [&](size_t i, const Tensor& t) {
    if (t->is_fake()) fail_internal(op.name, ": argument '", op.args[i].name, "' is a FakeTensor outside of tracing");
  });
  LUTRA_CHECK(executor, "no executor is installed");
  return *executor;
}

Results run_bottom(OpId id, Args& args) {
  const OpInfo& op = info(id);
  ResultSpecs specs = op.meta(id, args);
  if (op.has(kView)) {
    if (args[0].as<Tensor>()->is_fake()) bottom(op, args);
    return view_results(id, args, specs);
  }
  if (id == OpId::to_device) return {copy_to(args[0].as<Tensor>(), args[1].as<Device>())};
  if (id == OpId::empty) return {make_tensor(specs[0].sizes, specs[0].dtype, result_device(op, args))};
  GradModeScope off(false);
  return bottom(op, args).run(id, args, specs);
}

void run_bottom_inplace(OpId id, Args& args) {
  const OpInfo& op = info(id);
  ResultSpecs specs = op.meta(id, args);
  check_inplace(id, args, specs[0]);
  Executor& exec = bottom(op, args);
  Tensor self = args[0].as<Tensor>();
  if (self->numel() == 0) return;
  GradModeScope off(false);
  if (id == OpId::copy_ && args[1].as<Tensor>()->device() != self->device()) {
    if (copy_bytes_into(self, args[1].as<Tensor>())) return;
    args[1] = copy_to(args[1].as<Tensor>(), self->device());
  }
  const bool at_call = op.takes_as_parts();  // its numbers select its parts
  if (!at_call && !reads_written(id, args)) return exec.run_inplace(id, args, specs);
  Tensor value = id == OpId::copy_ ? op1(OpId::clone, {args[1]})
                 : at_call         ? decompose_named(op, args)[0]
                                   : exec.run(id, args, specs)[0];
  Args copy = {self, value};
  exec.run_inplace(OpId::copy_, copy, info(OpId::copy_).meta(OpId::copy_, copy));
}

}  // namespace

namespace {

// How an op treats an argument that shares memory with the written tensor, as in PyTorch.
enum class Sharing : uint8_t {
  kElementwise,  // each element is read before it is written: harmless if the layouts are equal
  kRefused,
  kReadFirst,
};

Sharing sharing_of(const OpInfo& op, size_t argument) {
  const bool fills = op.id == OpId::index_fill || op.id == OpId::masked_fill;
  if (fills && op.args[argument].name == "value") return Sharing::kReadFirst;
  if (op.has(kScatters)) return Sharing::kRefused;
  return op.has(kPointwise) || op.has(kMutates) ? Sharing::kElementwise : Sharing::kReadFirst;
}

}  // namespace

bool reads_written(OpId id, const Args& args) {
  const OpInfo& op = info(id);
  const Tensor& self = args[0].as<Tensor>();
  bool first = false;
  each_argument_tensor(args, [&](size_t i, const Tensor& t) {
    if (i == 0) return;
    const Overlap o = overlap(self, t);
    if (o == Overlap::kNone) return;
    const Sharing sharing = sharing_of(op, i);
    if (o == Overlap::kSame && sharing == Sharing::kElementwise) return;
    if (o != Overlap::kUnknown && sharing != Sharing::kReadFirst) {
      fail(inplace_name(id), ": argument '", op.args[i].name,
           "' and the written-to tensor share some memory; clone() one of them before the operation");
    }
    first = true;
  });
  return first;
}

std::string inplace_name(OpId id) { return info(id).has(kMutates) ? name(id) : std::string(name(id)) + "_"; }

void check_inplace(OpId id, const Args& args, const ResultSpec& spec) {
  std::string op = inplace_name(id);
  const Tensor& self = args[0].as<Tensor>();
  bool same = spec.sizes.size() == self->sizes.size();
  for (size_t d = 0; same && d < spec.sizes.size(); d++) same = spec.sizes[d] == self->sizes[d];
  if (!same) {
    fail(op, ": output with shape ", to_string(self->sizes), " doesn't match the broadcast shape ",
         to_string(spec.sizes));
  }
  bool castable = id == OpId::copy_ || info(spec.dtype).kind <= info(self->dtype).kind;
  // A running sum in place has the tensor's own dtype, so asking for another one is an error.
  const bool running = (id == OpId::cumsum || id == OpId::cumprod) && !args[2].is_none();
  if (running && args[2].as<DType>() != self->dtype) castable = false;
  if (!castable) {
    fail(op, ": result type ", name(spec.dtype), " can't be cast to the desired output type ", name(self->dtype));
  }
  if (overlaps_itself(self)) {
    fail(op,
         ": more than one element of the written-to tensor refers to a single memory location; clone() it "
         "before writing");
  }
}

namespace {
thread_local OpId origin = OpId::kCount;
}
OpId current_origin() { return origin; }
OriginScope::OriginScope(OpId op) : saved(origin) {
  if (origin == OpId::kCount) origin = op;
}
OriginScope::~OriginScope() { origin = saved; }

Device result_device(const OpInfo& op, const Args& args) {
  for (size_t i = 0; i < args.size(); i++) {
    if (op.args[i].type == ArgType::kDevice && args[i].is<Device>()) return args[i].as<Device>();
  }
  Device device;
  each_argument_tensor(args, [&](size_t, const Tensor& t) {
    if (t && device == Device{}) device = t->device();
  });
  return device;
}

bool lost_history(const Tensor& t) {
  return t->requires_grad &&
         (is_complex(t->dtype) || (t->base && is_complex(t->base->dtype) && t->base->requires_grad));
}

void rethrow_named(const Error& error, const std::string& name) {
  const std::string text = error.what();
  const size_t colon = text.find(": ");
  if (dynamic_cast<const NeedsData*>(&error) || dynamic_cast<const LateError*>(&error)) throw;
  if (error.kind == ErrorKind::kInternal || colon == std::string::npos) throw;
  const std::string other = text.substr(0, colon);
  const bool inplace = other.ends_with('_') && find_op(other.substr(0, colon - 1)) != OpId::kCount;
  if (other == name || (!inplace && find_op(other) == OpId::kCount)) throw;
  Error named(error.kind, name + text.substr(colon));
  named.file = error.file, named.line = error.line;
  throw named;
}

Results decompose_named(const OpInfo& op, const Args& args, bool opmath) {
  try {
    return opmath ? decompose(op, args) : op.decompose(args);
  } catch (const Error& error) {
    rethrow_named(error, op.name);
  }
}

void fail_dynamic(OpId op) { throw NeedsData(str("the shape that ", name(op), " gives depends on the elements")); }

Results call_parts(const OpInfo& op, const Args& args) {
  OriginScope origin(op.has(kInternal) ? OpId::kCount : op.id);
  return decompose_named(op, args);
}

Executor* set_executor(Executor* e) { return std::exchange(executor, e); }

Results call_below_tape(OpId id, Args& args) {
  const OpInfo& op = info(id);
  if (op.has(kIdentity)) {
    ResultSpec spec = op.meta(id, args)[0];
    if (same_layout(spec, args[0].as<Tensor>())) return {args[0].as<Tensor>()};
  }
  Mode* mode = CallStack::mode();
  if (!mode) {
    Results results = run_bottom(id, args);
    if (CallWatch* watch = modes().watch.get()) {
      for (const Tensor& t : results) watch->made(t);
    }
    return results;
  }
  CallStack::Below below;
  return mode->call(id, args);
}

Tensor call_inplace_below_tape(OpId id, Args& args) {
  Tensor self = args[0].as<Tensor>();
  uint32_t version = self->storage->version;
  Mode* mode = CallStack::mode();
  if (mode) {
    check_inplace(id, args, info(id).meta(id, args)[0]);
    reads_written(id, args);
    CallStack::Below below;
    mode->call_inplace(id, args);
  } else {
    if (CallWatch* watch = modes().watch.get()) watch->writes(self);
    try {
      run_bottom_inplace(id, args);
    } catch (const LateError&) {  // a write that has begun counts as a write
      if (self->storage->version == version) self->storage->version++;
      throw;
    }
  }
  if (self->storage->version == version) self->storage->version++;
  return self;
}

namespace {

bool autocast_is_on() { return modes().autocast.watched && modes().autocast.mode.any(); }

// Runs the rest of call_op, after autocast, on complete arguments.
Results call_cast(const OpInfo& op, Args& args) {
  const OpId id = op.id;
  const auto [wants_grad, stored] = inspect(op, args);
  if (stored && takes_parts(op, args)) return {call_on_parts(op, args, false)};
  if (stored && has_packed(op, args)) return {call_packed(op, args)};
  // If autocast is still on here, the policies of the parts apply.
  const bool by_parts = op.has(kByParts) && (!CallStack::mode() || autocast_is_on());
  if (by_parts || op.has(kAtCall)) return call_parts(op, args);
  // On real tensors the condition is known, so the function runs and the tape records its ops.
  if (wants_grad && op.has(kControl) && !CallStack::mode()) return run_control(id, args);
  bool taped = wants_grad && (op.vjp || op.vjp_decomposes);
  Results results = taped ? tape_call(id, args) : call_below_tape(id, args);
  if (wants_grad && !results.empty() && is_complex(results[0]->dtype) && id != OpId::detach)
    refuse_complex_history(op.name);
  if (op.has(kView) && id != OpId::detach) track_view(id, args, results[0]);
  return results;
}

Results call_autocast(const OpInfo& op, Args& args) {
  inspect(op, args);
  const bool apart = autocast(op, args, result_device(op, args));
  if (!apart) return call_cast(op, args);
  AutocastOff off;
  return call_cast(op, args);
}

}  // namespace

Results call_op(OpId id, Args args) {
  const OpInfo& op = info(id);
  if (op.has(kMutates)) return {call_inplace(id, std::move(args))};
  complete_args(op, args);
  if (id == OpId::empty && installed_account && installed_account->cleared) {
    return call_op(OpId::full, {args[0], Scalar(0.0), args[1], args[2]});
  }
  if (Mode* mode = CallStack::mode()) mode->enter(id, args);
  if (id == OpId::index || id == OpId::index_put) bring_indices(args);
  return modes().autocast.watched ? call_autocast(op, args) : call_cast(op, args);
}

bool call_same(OpId id, const Tensor& a, const Tensor& b, Tensor& out) {
  if (id != OpId::add && id != OpId::sub && id != OpId::mul && id != OpId::div) return false;
  if (CallStack::top || modes().watch || !executor || a->dtype != b->dtype || !is_float(a->dtype)) return false;
  if (is_stored(a->dtype)) return false;
  const bool grad_mode = modes().grad;
  for (const Tensor* t : {&a, &b}) {
    const TensorImpl& x = *t->get();
    if (grad_mode && (x.requires_grad || x.view)) return false;
    if (x.storage->freed || x.storage->fake) return false;
  }
  if (!(a->device() == b->device())) return false;
  const size_t rank = a->sizes.size();
  if (rank == 0 || b->sizes.size() != rank) return false;
  int64_t n = 1;
  for (size_t d = rank; d-- > 0;) {
    if (a->sizes[d].hint != b->sizes[d].hint || a->strides[d].hint != n || b->strides[d].hint != n) return false;
    n *= a->sizes[d].hint;
  }
  return n > 0 && executor->run_same(id, a, b, n, out);
}

Tensor call_inplace(OpId id, Args args) {
  const AutocastOff off;  // in-place forms are not cast, as in PyTorch
  const OpInfo& op = info(id);
  complete_args(op, args);
  if (op.has(kMutates) && op.has(kAtCall)) return call_cast(op, args)[0];
  if (id == OpId::index_put) bring_indices(args);
  if (!op.has(kInplace) && !op.has(kMutates)) fail(op.name, ": has no in-place form");
  if (!args[0].is<Tensor>()) fail(inplace_name(id), ": argument '", op.args[0].name, "' must be a tensor");
  const Tensor& self = args[0].as<Tensor>();
  const auto [refers, stored] = inspect(op, args);
  if (stored && takes_parts(op, args)) return call_on_parts(op, args, true);
  if (stored && has_packed(op, args)) return copy_packed(op, args);
  const bool wants_grad = refers || (modes().grad && self->view && self->base->requires_grad);
  if (wants_grad) return tape_call_inplace(id, args);
  if (id == OpId::copy_ && self.same(args[1].as<Tensor>())) return self;
  return call_inplace_below_tape(id, args);
}

}  // namespace lutra
