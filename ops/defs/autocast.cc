// The state of autocast and its casts. See autocast.h.
#include "ops/defs/autocast.h"

#include "ops/core/storage.h"
#include "ops/defs/call.h"

namespace lutra {

namespace {

AutocastState& state() { return modes().autocast; }

size_t index_of(Device device) { return device.type == DeviceType::kCUDA; }

// Returns whether autocast may cast t. float64 stays. So do tensors on other devices: a number on the CPU beside
// tensors of a GPU.
bool eligible(const Tensor& t, Device device) {
  return t && t->device().type == device.type && is_float(t->dtype) && t->dtype != DType::kFloat64;
}

template <class F>
void each_eligible(Args& args, Device device, F f) {
  for (Value& v : args) {
    if (v.is<Tensor>() && eligible(v.as<Tensor>(), device)) f(v.as<Tensor>());
    if (!v.is<std::vector<Tensor>>()) continue;
    for (Tensor& t : v.as<std::vector<Tensor>>()) {
      if (eligible(t, device)) f(t);
    }
  }
}

bool is_kept(const Tensor& t, DType to, Device device) {
  return state().mode.cache && to == state().mode.dtype[index_of(device)] && t->dtype == DType::kFloat32 &&
         t->requires_grad && !t->base && (!t->autograd || !t->autograd->grad_fn);
}

// Returns a known value for any op. The tape above it makes its node as usual.
struct KeptMode : Mode {
  explicit KeptMode(Tensor t) : value(std::move(t)) {}
  Results call(OpId, Args&) override { return {alias(value, value->sizes, value->strides, value->offset)}; }
  Tensor call_inplace(OpId op, Args&) override { fail_internal(inplace_name(op), ": among casts"); }
  Tensor value;
};

Tensor cast(const Tensor& t, DType to, Device device) {
  if (t->dtype == to) return t;
  // While a mode records, its graph merges equal casts itself.
  if (current_mode() || !is_kept(t, to, device)) return op1(OpId::to_dtype, {t, to});
  KeptCast& kept = state().kept[t.get()];
  if (!kept.cast || kept.cast->dtype != to || !(kept.mark == t->mark())) {
    GradModeScope off(false);
    kept = {t, op1(OpId::to_dtype, {t, to}), t->mark()};
  }
  KeptMode mode(kept.cast);
  ModeScope scope(&mode);
  return op1(OpId::to_dtype, {t, to});
}

void cast_all(Args& args, DType to, Device device) {
  each_eligible(args, device, [&](Tensor& t) { t = cast(t, to, device); });
}

void promote(const char* name, Args& args, Device device) {
  const DType lower = state().mode.dtype[index_of(device)];
  DType widest = lower;
  each_eligible(args, device, [&](Tensor& t) {
    if (t->dtype == DType::kFloat32) widest = DType::kFloat32;
    if (t->dtype != lower && t->dtype != DType::kFloat32) {
      fail(name, ": an operand of ", lutra::name(t->dtype), " under autocast of ", lutra::name(lower),
           "; cast it to float32 or ", lutra::name(lower));
    }
  });
  cast_all(args, widest, device);
}

void set_result(const OpInfo& op, Args& args, Device device) {
  if (!args[0].is<Tensor>() || !eligible(args[0].as<Tensor>(), device)) return;
  for (size_t i = 0; i < args.size(); i++) {
    if (op.args[i].type == ArgType::kDType && args[i].is_none()) args[i] = DType::kFloat32;
  }
}

void apply(AutocastPolicy policy, const OpInfo& op, Args& args, Device device) {
  switch (policy) {
    case AutocastPolicy::kNone:
    case AutocastPolicy::kApart: return;
    case AutocastPolicy::kLower: return cast_all(args, state().mode.dtype[index_of(device)], device);
    case AutocastPolicy::kFloat32: return cast_all(args, DType::kFloat32, device);
    case AutocastPolicy::kResult: return set_result(op, args, device);
    case AutocastPolicy::kPromote: return promote(op.name, args, device);
    case AutocastPolicy::kPad: {
      const std::string& mode = args[2].as<std::string>();
      if (mode == "reflect" || mode == "replicate") cast_all(args, DType::kFloat32, device);
      return;
    }
    case AutocastPolicy::kResample:
      if (args[3].as<std::string>() != "area") cast_all(args, DType::kFloat32, device);
      return;
    case AutocastPolicy::kNumerator:
      if (!args[0].is<Tensor>()) cast_all(args, DType::kFloat32, device);
      return;
    case AutocastPolicy::kBanned:
      fail(op.name, ": is unsafe under autocast, as the lower type cannot hold its gradients; give scores to ", op.name,
           "_with_logits, which is safe, or call it under lt.autocast(\"", index_of(device) ? "cuda" : "cpu",
           "\", {enabled = false}, ...) on float32");
  }
}

void update_watched() { state().watched = state().mode.any() || state().counting; }

}  // namespace

int pack(const AutocastMode& m) {
  int bits = m.cache;
  for (size_t i = 0; i < 2; i++) bits = bits << 5 | int(m.enabled[i]) << 4 | int(m.dtype[i]);
  return bits;
}

AutocastMode unpack(int packed) {
  AutocastMode m;
  m.cache = packed >> 10 & 1;
  for (size_t i = 0; i < 2; i++) {
    const int bits = packed >> (i ? 0 : 5);
    m.enabled[i] = bits >> 4 & 1, m.dtype[i] = DType(bits & 15);
  }
  return m;
}

std::string describe(const AutocastMode& m) {
  std::string text;
  for (size_t i = 0; i < 2; i++) {
    if (m.enabled[i]) text += str(text.empty() ? "" : ", ", i ? "cuda: " : "cpu: ", name(m.dtype[i]));
  }
  return text.empty() ? "off" : text;
}

const AutocastMode& autocast_mode() { return state().mode; }
void set_autocast_mode(const AutocastMode& mode) {
  state().mode = mode;
  update_watched();
  if (!mode.any()) clear_autocast_cache();
}
void clear_autocast_cache() { decltype(state().kept)().swap(state().kept); }

uint64_t autocast_reads() { return state().reads; }
void note_autocast_read() { state().reads++; }

bool autocast(const OpInfo& op, Args& args, Device device) {
  const AutocastPolicy policy = op.autocast[index_of(device)];
  if (policy == AutocastPolicy::kNone) return !op.takes_as_parts();
  note_autocast_read();
  if (!state().mode.enabled[index_of(device)]) return !op.takes_as_parts();
  AutocastOff off;
  apply(policy, op, args, device);
  return true;
}

AutocastDisabled::AutocastDisabled() : mode_(state().mode), watched_(state().watched) {
  state().mode.enabled = {};
  state().watched = false;
}

AutocastDisabled::~AutocastDisabled() {
  state().mode = mode_;
  state().watched = watched_;
}

AutocastTrace::AutocastTrace()
    : initial(state().mode), counting_(state().counting), watched_(state().watched), reads_(state().reads) {
  state().counting = true;
  update_watched();
}

AutocastTrace::~AutocastTrace() {
  state().mode = initial;
  state().counting = counting_;
  state().watched = watched_;
}

}  // namespace lutra
