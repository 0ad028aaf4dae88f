// Runs ops on real tensors. The library runs matrix products. A pointwise op is collapsed to few loops, and its code
// serves all sizes. Any other op has symbolic sizes, and guards for what its rules asked about them.
#include <bit>
#include <cmath>

#include "jit/eager/eager.h"

#include <algorithm>
#include <array>

#include "jit/device/backend.h"
#include "jit/eager/one_op.h"
#include "jit/lower/lower.h"
#include "jit/runtime/config.h"
#include "jit/runtime/executable.h"
#include "jit/runtime/pool.h"
#include "jit/runtime/profile.h"
#include "ops/core/interrupt.h"
#include "ops/core/late_error.h"
#include "ops/core/overlap.h"
#include "ops/core/settings.h"
#include "ops/decompose/emit.h"
#include "ops/defs/control.h"
#include "ops/defs/to_device.h"
#include "ops/extern/dynamic.h"
#include "ops/extern/extern.h"

namespace lutra {
namespace {

// The most loops that code is made for. If there are more collapsed dims, the executor loops over the outer ones.
constexpr int kMaxLoops = 5;
static_assert(kMaxLoops - 2 + 4 < 8, "layout classes have three bits");

// The code that call_same runs: it serves every size, with these numbers, for which its guards hold.
struct SameEntry {
  std::shared_ptr<Executable> executable;
  SmallVec<double, 8> scalars;
  SmallVec<SymInt, 8> ints;
};

struct Kept {
  EagerTable table;
  std::array<std::array<std::array<SameEntry, size_t(DType::kNone)>, 4>, kMaxDeviceTypes>
      same;  // by device type, op, dtype
  std::string isa;
};

// Returns this thread's code for the current instruction set: Lua states of a thread may have different ones.
Kept& kept() {
  thread_local std::vector<std::unique_ptr<Kept>> all;  // most recently used first
  const std::string& isa = settings().isa;
  if (!all.empty() && all[0]->isa == isa) return *all[0];
  const auto same = std::find_if(all.begin(), all.end(), [&](const auto& k) { return k->isa == isa; });
  if (same == all.end()) {
    auto fresh = std::make_unique<Kept>();
    fresh->isa = isa;
    all.insert(all.begin(), std::move(fresh));
  } else {
    std::rotate(all.begin(), same, same + 1);
  }
  return *all[0];
}
EagerTable& table() { return kept().table; }

ExternView view_of(const OpInfo& op, const Tensor& t) {
  ExternView v;
  if (!t) return v;
  if (t->sizes.size() > kExternDims) fail_dims(op.name, t->sizes.size());
  v.data = t->data();
  v.dtype = info(t->dtype).carrier;
  v.dim = int32_t(t->sizes.size());
  for (int32_t d = 0; d < v.dim; d++) v.sizes[d] = t->sizes[size_t(d)].hint, v.strides[d] = t->strides[size_t(d)].hint;
  return v;
}

// Memory and layout of a call's operands, as the code gets them.
struct Views {
  InputView inputs[Collapsed::kOperands + 1];
  SymInt sizes[kMaxLoops];
  SymInt strides[Collapsed::kOperands][kMaxLoops];
};

class EagerExecutor : public Executor {
 public:
  Results run(OpId id, const Args& given, const ResultSpecs& specs) override {
    const OpInfo& op = info(id);
    const Device device = result_device(op, given);
    if (op.has(kControl)) return run_control(id, given);
    const StoppableLoops loops(true);  // nobody sees a half-written result
    if (op.dynamic) return run_dynamic(op, given, device);
    Args moved;
    const Args& args = on_device(given, device, moved);
    Results results;
    results.reserve(specs.size());
    for (const ResultSpec& s : specs) results.push_back(make_tensor(s.sizes, s.strides, s.dtype, device));
    if (is_pointwise(op, args)) {
      pointwise(op, args, results[0]);
    } else if (id == OpId::cat && args[0].as<std::vector<Tensor>>().size() > kMaxJoined) {
      join(args, results[0]);
    } else if (is_extern(id) || has_candidate(id, args)) {
      library(op, args, results);
    } else {
      general(op, args, results);
    }
    return results;
  }

  bool run_same(OpId id, const Tensor& a, const Tensor& b, int64_t n, Tensor& out) override {
    const size_t row = id == OpId::add ? 0 : id == OpId::sub ? 1 : id == OpId::mul ? 2 : 3;
    if (a->device().index > 0) return false;
    SameEntry& entry = kept().same[size_t(a->device().type)][row][size_t(a->dtype)];
    if (!entry.executable && !make_same(info(id), a, b, entry)) return false;
    out = make_tensor(a->sizes, a->strides, a->dtype, a->device());
    const SymInt size = n, stride = 1;
    const InputView inputs[] = {{out->data(), &size, &stride},
                                {a->data(), &size, &stride},
                                {b->data(), &size, &stride},
                                {nullptr, entry.ints.begin(), entry.ints.begin()}};
    entry.executable->run_views(inputs, entry.scalars.begin(), nullptr);
    return true;
  }

  // The caller ensures that an argument that overlaps args[0] has exactly its elements.
  void run_inplace(OpId id, const Args& given, const ResultSpecs& specs) override {
    const OpInfo& op = info(id);
    const Tensor& self = given[0].as<Tensor>();
    Args moved;
    const Args& args = on_device(given, self->device(), moved);
    const bool once = self->is_contiguous() || reaches_each_once(self);
    if (id == OpId::copy_ || (once && is_pointwise(op, args))) {
      return write(op, args, [&] { pointwise(op, args, self, !once); });
    }
    if (once && (is_extern(id) || has_candidate(id, args)) && !reads_self(args)) {
      return write(op, args, [&] { library(op, args, {self}); });
    }
    const Args copy = {self, run(id, args, specs)[0]};
    write(op, copy, [&] { pointwise(info(OpId::copy_), copy, self, !once); });
  }

 private:
  // If an argument has so many elements, a write can be stopped before its end.
  static constexpr int64_t kLongWrite = 1 << 22;

  static bool is_long(const Value& v) {
    const auto many = [](const Tensor& t) { return t && t->numel().hint >= kLongWrite; };
    if (v.is<Tensor>()) return many(v.as<Tensor>());
    if (!v.is<std::vector<Tensor>>()) return false;
    const auto& list = v.as<std::vector<Tensor>>();
    return std::any_of(list.begin(), list.end(), many);
  }

  template <class F>
  static void write(const OpInfo& op, const Args& args, const F& f) {
    if (!std::any_of(args.begin(), args.end(), is_long)) return f();
    try {
      const StoppableLoops loops(true);
      f();
    } catch (const Error& e) {
      if (e.kind != ErrorKind::kInterrupt) throw;
      throw LateError(Error(e.kind, str(e.what(), "; ", op.name, " had begun to write")));
    }
  }

  // The code for a join grows with its list, so a longer list is copied one by one.
  static constexpr size_t kMaxJoined = 64;

  // Copies each tensor of a list into its part of out.
  static void join(const Args& args, const Tensor& out) {
    const int64_t given = args[1].sym_int().hint, dim = given < 0 ? given + out->dim() : given;
    const OpInfo& copy = info(OpId::copy_);
    const int64_t stride = out->strides[size_t(dim)].hint;
    int64_t offset = 0;
    for (const Tensor& t : args[0].as<std::vector<Tensor>>()) {
      if (t->dim() != out->dim()) continue;  // an empty vector may be joined with any tensor
      const Tensor part = alias(out, t->sizes, out->strides, offset);
      pointwise(copy, {part, t}, part);
      offset += t->sizes[size_t(dim)].hint * stride;
    }
  }

  // Returns the arguments, with CPU tensors without dimensions copied to the device.
  static const Args& on_device(const Args& args, Device device, Args& moved) {
    for (size_t i = 0; i < args.size(); i++) {
      if (!args[i].is<Tensor>() || !args[i].as<Tensor>() || args[i].as<Tensor>()->device() == device) continue;
      if (moved.empty()) moved = args;
      moved[i] = copy_to(args[i].as<Tensor>(), device);
    }
    return moved.empty() ? args : moved;
  }

  // Runs an op that determines the size of its result: on the CPU if the device has no kernel for it.
  static Results run_dynamic(const OpInfo& op, const Args& args, Device device) {
    Args moved;
    if (const DynamicKernel* own = dynamic_kernel(op.id, device.type)) return own->run(on_device(args, device, moved));
    Results results = op.dynamic(on_device(args, Device{}, moved), parallel_for);
    for (Tensor& t : results) {
      if (t) t = copy_to(t, device);
    }
    return results;
  }

  // Returns true if a library has a candidate for an op that can also be lowered.
  static bool has_candidate(OpId id, const Args& args) {
    return !args.empty() && args[0].is<Tensor>() &&
           extern_supports(id, args[0].as<Tensor>()->dtype, args[0].as<Tensor>()->device().type);
  }

  // Returns true if an argument other than args[0] shares its storage.
  static bool reads_self(const Args& args) {
    const auto& storage = args[0].as<Tensor>()->storage;
    bool shares = false;
    for (size_t i = 1; i < args.size(); i++) {
      if (args[i].is<Tensor>()) shares |= args[i].as<Tensor>()->storage == storage;
      if (!args[i].is<std::vector<Tensor>>()) continue;
      for (const Tensor& t : args[i].as<std::vector<Tensor>>()) shares |= t->storage == storage;
    }
    return shares;
  }

  // A creation with a list of sizes has a known shape. arange does not: its rule computes the shape.
  static bool is_pointwise(const OpInfo& op, const Args& args) {
    if (!op.has(kPointwise)) return false;
    if (!op.has(kCreation)) return args.size() < size_t(Collapsed::kOperands);
    for (const Value& v : args) {
      if (v.is<Sizes>()) return true;
    }
    return false;
  }

  static void library(const OpInfo& op, const Args& args, const Results& results) {
    SmallVec<ExternView, 4> in, out;
    SmallVec<int64_t, 16> ints;
    SmallVec<double, 4> scalars;
    std::vector<std::string_view> strings;
    for (size_t i = 0; i < args.size(); i++) {
      const Value& v = args[i];
      const ArgType type = op.args[i].type;
      if (v.is<Tensor>()) {
        in.push_back(view_of(op, v.as<Tensor>()));
      } else if (v.is<std::vector<Tensor>>()) {
        for (const Tensor& t : v.as<std::vector<Tensor>>()) in.push_back(view_of(op, t));
      } else if (v.is<Sizes>()) {
        for (SymInt s : v.as<Sizes>()) ints.push_back(s.hint);
      } else if (v.is<bool>()) {
        ints.push_back(v.as<bool>());
      } else if (type == ArgType::kInt) {
        ints.push_back(v.is_none() ? kNoInt : v.as<Scalar>().to_int());
      } else if (v.is<Scalar>()) {
        scalars.push_back(v.as<Scalar>().to_double());
      } else if (type == ArgType::kScalar || type == ArgType::kFloat) {
        scalars.push_back(NAN);
      } else if (type == ArgType::kTensor) {
        in.push_back({});
      } else if (type == ArgType::kStr) {
        strings.push_back(v.is_none() ? std::string_view() : std::string_view(v.as<std::string>()));
      }
    }
    for (const Tensor& t : results) out.push_back(view_of(op, t));
    const Device device = result_device(op, args);
    const Backend& backend = backend_of(device);
    const ExternCall call = {op.id,
                             {in.begin(), in.size()},
                             {out.begin(), out.size()},
                             {ints.begin(), ints.size()},
                             {scalars.begin(), scalars.size()},
                             strings,
                             parallel_for,
                             thread_count(),
                             current_extern_isa(),
                             device,
                             backend.stream(device)};
    check_stop();
    const Tuning tuning = runtime_config().tune ? Tuning::kAtOnce : Tuning::kOff;
    if (!launches_watched()) return void(run_library(backend, call, tuning));
    const LaunchTimer timer(backend);
    const LibraryChoice made_by = run_library(backend, call, tuning);
    backend.wait(device);
    note_extern(call, made_by, timer.stop());
  }

  // in_order: out overlaps itself, so writes must keep their order.
  static void pointwise(const OpInfo& op, const Args& given, const Tensor& out, bool in_order = false) {
    // The layout is out's. A memory format does not fit collapsed dims.
    const bool laid_out =
        given.size() > 1 && given[1].is<std::string>() && given[1].as<std::string>() == "channels_last";
    const Args plain = laid_out ? Args{given[0], std::string("contiguous_format")} : Args();
    const Args& args = laid_out ? plain : given;
    OneOpCall call;
    read_call(op, args, call);
    const TensorImpl* operands[Collapsed::kOperands];
    int count = 0;
    operands[count++] = out.get();
    for (const TensorImpl* t : call.tensors) operands[count++] = t;
    Collapsed c = collapse(operands, count, in_order);
    if (c.elements == 0) {
      if (op.has(kRandom)) default_generator().next_call++;
      return;
    }
    char* data[Collapsed::kOperands];
    for (int k = 0; k < count; k++) data[k] = static_cast<char*>(operands[k]->data());
    visit(op, args, out, call, c, data, in_order);
  }

  // Returns true if the outermost loop has few iterations that each take long. Then threads share the inner loops, and
  // the program may be stopped between iterations. Random and numbered elements must come from one launch.
  static bool is_long_within(const OpInfo& op, const OneOpCall& call, const Collapsed& c) {
    constexpr int64_t kFew = 64, kLong = 1 << 22;
    return c.dims > 1 && c.sizes[0] < kFew && c.elements / c.sizes[0] >= kLong && !op.has(kRandom) &&
           !op.has(kCreation) && !backend_of(call.device).preferences.leaves_processors;
  }

  // Loops over the outer dims beyond kMaxLoops. Also loops over dims whose iterations write the same elements, one
  // after the other.
  static void visit(const OpInfo& op, const Args& args, const Tensor& out, OneOpCall& call, const Collapsed& c,
                    char** data, bool in_order) {
    const bool again = in_order && c.dims > 1 && !c.writes_each_once();
    if (!again && c.dims <= kMaxLoops && !is_long_within(op, call, c)) {
      return launch(op, args, out->dtype, call, c, data);
    }
    Collapsed inner = c;
    inner.dims--, inner.elements /= c.sizes[0];
    for (int d = 0; d < inner.dims; d++) {
      inner.sizes[d] = c.sizes[d + 1];
      for (int k = 0; k < c.operands; k++) inner.strides[k][d] = c.strides[k][d + 1];
    }
    for (int64_t i = 0; i < c.sizes[0]; i++) {
      char* at[Collapsed::kOperands];
      for (int k = 0; k < c.operands; k++) {
        const DType type = k ? call.tensors[size_t(k - 1)]->dtype : out->dtype;
        at[k] = data[k] + i * c.strides[k][0] * int64_t(size_of(type));
      }
      visit(op, args, out, call, inner, at, in_order);
    }
  }

  static void launch(const OpInfo& op, const Args& args, DType dtype, OneOpCall& call, const Collapsed& c,
                     char** data) {
    Views v;
    EagerEntry* entry = find(op, args, dtype, call, c, data, v);
    entry->executable->run_views(v.inputs, call.scalars.begin(), nullptr);
  }

  // Returns the entry of a pointwise call. Fills in v for it.
  static EagerEntry* find(const OpInfo& op, const Args& args, DType dtype, OneOpCall& call, const Collapsed& c,
                          char** data, Views& v) {
    EagerKey key = call.key;
    const bool short_rows = is_made_for_sizes(call) && has_short_rows(c);
    key.push_back(uint64_t(short_rows) << 16 | uint64_t(c.dims) << 8 | uint64_t(dtype));
    uint64_t classes = 0;
    for (int d = 0; d < c.dims; d++) v.sizes[d] = c.sizes[d];
    for (int k = 0; k < c.operands; k++) {
      for (int d = 0; d < c.dims; d++) v.strides[k][d] = c.strides[k][d];
      const int64_t inner = c.strides[k][c.dims - 1];
      const int column = k > 0 ? c.column(k) : -1;
      const bool zero_dim = k > 0 && call.tensors[size_t(k - 1)]->sizes.empty();
      classes = classes << 3 | (zero_dim                   ? 3u
                                : column >= 0              ? 4u + unsigned(column)
                                : inner == 0 || inner == 1 ? unsigned(inner)
                                                           : 2u);
      v.inputs[k] = {data[k], v.sizes, v.strides[k]};
    }
    key.push_back(classes);
    v.inputs[c.operands] = {nullptr, call.ints.begin(), call.ints.begin()};
    EagerEntry* entry = table().find(key, v.inputs, call.scalars.begin());
    for (const bool generic : {true, false}) {
      if (entry) break;
      auto made = build_entry(pointwise_graph(op, args, call, c, dtype, generic), key);
      if (made->holds(v.inputs, call.scalars.begin())) entry = table().insert(std::move(made));
    }
    LUTRA_CHECK(entry, op.name, ": the guards of code just made do not hold");
    return entry;
  }

  static bool make_same(const OpInfo& op, const Tensor& a, const Tensor& b, SameEntry& same) {
    Args args = {a, b};
    complete_args(op, args);
    OneOpCall call;
    read_call(op, args, call);
    const TensorImpl* operands[] = {a.get(), a.get(), b.get()};
    const Collapsed c = collapse(operands, 3);
    char* data[] = {nullptr, nullptr, nullptr};
    Views v;
    EagerEntry* entry = find(op, args, a->dtype, call, c, data, v);
    if (entry->guards_sizes) return false;
    same = {entry->executable, call.scalars, call.ints};
    return true;
  }

  // If the speed of code depends on the sizes that it was made for, sizes within a factor of 16 share code.
  static bool is_made_for_sizes(const OneOpCall& call) { return backend_of(call.device).preferences.made_for_sizes; }
  static uint64_t size_class(const TensorImpl& t) {
    uint64_t elements = 1;
    for (SymInt s : t.sizes) elements *= uint64_t(s.hint);
    const uint64_t inner = t.sizes.empty() ? 1 : uint64_t(t.sizes.back().hint);
    return uint64_t(std::bit_width(elements) / 4) << 8 | uint64_t(std::bit_width(inner) / 4);
  }

  static void general(const OpInfo& op, const Args& args, const Results& results) {
    OneOpCall call;
    read_call(op, args, call);
    SmallVec<InputView, 8> inputs;
    for (const TensorImpl* t : call.tensors) {
      uint64_t layout = 0;
      for (SymInt s : t->strides) layout = layout << 2 | (s.hint == 0 || s.hint == 1 ? uint64_t(s.hint) : 2u);
      static_assert(2 * kMaxDims * 2 <= 64, "two bits a stride");
      call.key.push_back(layout);
      call.key.push_back(t->sizes.size());
      if (is_made_for_sizes(call)) call.key.push_back(size_class(*t));
      inputs.push_back({t->data(), t->sizes.begin(), t->strides.begin()});
    }
    inputs.push_back({nullptr, call.ints.begin(), call.ints.begin()});
    EagerEntry* entry = table().find(call.key, inputs.begin(), call.scalars.begin());
    if (!entry) {
      auto made = build_entry(general_graph(op, args, call), call.key);
      check_outputs(op, *made, results);
      entry = table().insert(std::move(made));
    }
    void* outputs[4];
    LUTRA_CHECK(results.size() <= std::size(outputs));
    for (size_t i = 0; i < results.size(); i++) outputs[i] = results[i]->storage->data;
    entry->executable->run_views(inputs.begin(), call.scalars.begin(), outputs);
  }

  // Checks that the plan writes what the meta rule promised, into buffers of its own.
  static void check_outputs(const OpInfo& op, const EagerEntry& entry, const Results& results) {
    const Plan& plan = entry.executable->plan();
    LUTRA_CHECK(plan.outputs.size() == results.size(), op.name);
    for (size_t i = 0; i < results.size(); i++) {
      const PlanOutput& out = plan.outputs[i];
      LUTRA_CHECK(out.kind == PlanOutput::kTensor && plan.buffers[size_t(out.view.buffer)].kind == Buffer::kOutput &&
                      out.view.dtype == results[i]->dtype && out.view.sizes.size() == results[i]->sizes.size(),
                  op.name, ": result ", i, " is no buffer of its own");
      const bool strided = results[i]->numel().hint != 0;  // without elements strides do not matter
      for (size_t d = 0; d < results[i]->sizes.size(); d++) {
        const int64_t size = results[i]->sizes[d].hint, stride = results[i]->strides[d].hint;
        LUTRA_CHECK(plan.exprs[size_t(out.view.sizes[d])].i == size &&
                        (!strided || size <= 1 || plan.exprs[size_t(out.view.strides[d])].i == stride),
                    op.name, ": result ", i, " is laid out otherwise than its meta rule says");
      }
    }
  }
};

// Installs itself: every program with this folder runs ops eagerly.
[[maybe_unused]] const bool installed = [] {
  static EagerExecutor executor;
  set_executor(&executor);
  return true;
}();

}  // namespace

size_t eager_entries() { return table().size(); }
void clear_eager() {
  Kept& mine = kept();
  mine.table.clear();
  mine.same = {};
}

}  // namespace lutra
