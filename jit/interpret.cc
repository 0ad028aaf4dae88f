// Runs a graph on real inputs and scalars through call_op, node by node: the eager reference for compiled code.
//
// Invariants:
// 1. Symbols are evaluated from the inputs, never taken from hints.
// 2. A random node uses the call index of its ordinal, whichever other nodes were dropped.
// 3. The generator advances by the graph's count of random calls; after an error it has not advanced.
// 4. After an error the inputs are as they were.
#include <algorithm>
#include <unordered_map>

#include "jit/compile.h"
#include "jit/graph/function.h"
#include "jit/graph/replay.h"
#include "jit/graph/unbacked.h"
#include "ops/core/place.h"
#include "ops/core/resize.h"
#include "ops/defs/autocast.h"

namespace lutra {
namespace {

struct Interpreter {
  const Graph& graph;
  HostProgram program;
  std::vector<HostValue> numbers;
  std::unordered_map<const TensorImpl*, Tensor> values;
  const NodeObserver* observer;
  std::vector<InputView> views;
  std::vector<double> scalars;  // unbacked sizes hold their hints until their nodes have run
  int32_t known_sizes = 0;

  Interpreter(const Graph& g, const NodeObserver* observer) : graph(g), observer(observer) {}

  void need(const Sizes& sizes) {
    for (SymInt s : sizes) {
      if (s.expr) program.int_slot(s.expr);
    }
  }
  void need(const Graph& function) {
    for (const GraphInput& in : function.inputs) need(in.value->sizes), need(in.value->strides);
    for (const auto& n : function.nodes) {
      for (const Value& v : n->args) need(v);
    }
  }
  void need(const Value& v) {
    if (v.is<FunctionRef>()) need(graph_of(v.as<FunctionRef>()));
    if (v.is<Sizes>()) need(v.as<Sizes>());
    if (v.is<Scalar>() && v.as<Scalar>().expr) {
      program.number_slot(v.as<Scalar>().expr);
      program.int_slot(v.as<Scalar>().expr);
    }
  }

  void evaluate(const std::vector<Tensor>& inputs, const std::vector<double>& given) {
    std::vector<int32_t> positions;
    size_t next = 0;
    for (const GraphInput& in : graph.inputs) {
      positions.push_back(in.constant ? -1 : int32_t(next));
      const Tensor real = in.constant ? in.constant : inputs.at(next++);
      values[in.value.get()] = real;
      if (!in.constant) views.push_back({nullptr, real->sizes.begin(), real->strides.begin()});
    }
    program.begin(graph.env->exprs(), positions);
    for (const auto& n : graph.nodes) {
      for (const Value& v : n->args) need(v);
    }
    for (const Value& v : graph.outputs) need(v);
    scalars = given;
    find_unbacked();
    numbers = program.start_values();
    program.run(numbers.data(), views.data(), scalars.data());
  }

  void find_unbacked() {
    const std::vector<int32_t> numbers = unbacked_numbers(graph);
    if (numbers.empty()) return;
    for (const int32_t number : numbers) scalars[size_t(number)] = graph.scalars[size_t(number)].hint;
    const std::vector<int32_t> levels = unbacked_levels(graph.env->exprs(), numbers);
    for (const SymGuard& g : graph.env->guards()) {
      const int32_t last = std::max(levels[size_t(g.a)], arity(g.cmp) == 2 ? levels[size_t(g.b)] : 0);
      if (last > 0) program.add_guard(g, last);
    }
  }

  void tell_size(const Node& n, const Tensor& result) {
    const int32_t number = unbacked_number(graph.env->exprs(), unbacked_expr(n));
    const double value = determined_value(n.op, result);
    scalars[size_t(number)] = value;
    program.run(numbers.data(), views.data(), scalars.data());
    if (!program.guards_hold(numbers.data(), ++known_sizes)) throw UnbackedMiss(n.op, number, value);
  }

  SymInt size(SymInt s) const { return s.expr ? SymInt(program.int_value(numbers.data(), s.expr)) : s; }
  Scalar scalar(const Scalar& s) const {
    if (!s.expr) return s;
    if (s.kind == Scalar::kNumber) return Scalar(program.number_value(numbers.data(), s.expr));
    return Scalar::of_int(program.int_value(numbers.data(), s.expr));
  }
  Tensor tensor(const Tensor& t) const {
    if (!t) return t;
    auto it = values.find(t.get());
    LUTRA_CHECK(it != values.end(), "a value without its node");
    return it->second;
  }
  // Returns the function with the run's sizes and numbers.
  FunctionRef sized(const FunctionRef& f) const {
    auto env = std::make_shared<SymEnv>();
    return graph.env->size() == env->size() ? f : translated(graph_of(f), std::move(env), *this);
  }
  void run(const Node& n) {
    // A node that was traced in no_grad mode runs in no_grad mode.
    bool wanted = false;
    for (const Tensor& r : n.results) wanted = wanted || (r->requires_grad && !r->node->is_input());
    GradModeScope mode(grad_enabled() && wanted);
    const PlaceScope place(n.file, n.line);
    Args args;
    for (const Value& v : n.args) args.push_back(v.is<FunctionRef>() ? sized(v.as<FunctionRef>()) : mapped(v, *this));
    const Args seen = observer ? args : Args();
    if (n.inplace) {
      const Tensor written = call_inplace(n.op, std::move(args));
      if (observer) (*observer)(n, seen, {written});
      return;
    }
    const Results results = call_op(n.op, std::move(args));
    if (observer) (*observer)(n, seen, results);
    for (size_t i = 0; i < n.results.size(); i++) values[n.results[i].get()] = results[i];
    if (info(n.op).dynamic) tell_size(n, results[0]);
  }
};

bool fails(const Node& n) {
  if (info(n.op).is_composite()) return true;  // one of its parts may fail
  if (!n.inplace) return may_fail(n);
  const bool on_integers = !is_float(n.args[0].tensor()->dtype);
  return info(n.op).has(kFails) || (info(n.op).has(kFailsOnIntegers) && on_integers);
}

// Copies of the memory of inputs that nodes write before a later node may fail. An error restores it.
struct WrittenInputs {
  struct Copy {
    Ref<Storage> storage, before;
    int64_t begin, end;  // bytes
    uint32_t version;
  };
  std::vector<const Storage*> inputs;
  std::vector<Copy> copies;
  size_t last = 0;  // index of the last node that may fail

  WrittenInputs(const Graph& graph, const Interpreter& in) {
    for (const GraphInput& i : graph.inputs) inputs.push_back(in.values.at(i.value.get())->storage.get());
    for (size_t i = 0; i < graph.nodes.size(); i++) {
      if (fails(*graph.nodes[i])) last = i;
    }
  }
  void keep(const Tensor& t) {
    const Ref<Storage>& s = t->storage;
    if (!std::count(inputs.begin(), inputs.end(), s.get()) || !s->data || t->numel() == 0) return;
    // The bytes from the tensor's first element to its last one.
    const int64_t begin = is_packed(t->dtype) ? t->offset.hint / 2 : bytes_of(t->dtype, t->offset.hint);
    const int64_t end = bytes_of(t->dtype, extent(t->offset, t->sizes, t->strides));
    const bool known = std::any_of(copies.begin(), copies.end(),
                                   [&](const Copy& c) { return c.storage == s && c.begin <= begin && end <= c.end; });
    if (known) return;
    Ref<Storage> before = allocate(size_t(end - begin), s->device);
    copy_bytes(before->data, s->device, at(*s, begin), s->device, size_t(end - begin));
    copies.push_back({s, std::move(before), begin, end, s->version});
  }
  // Restores the latest copy first: it may overlap an earlier one, which holds older bytes.
  void put_back() const {
    for (size_t i = copies.size(); i-- > 0;) {
      const Copy& c = copies[i];
      copy_bytes(at(*c.storage, c.begin), c.storage->device, c.before->data, c.storage->device,
                 size_t(c.end - c.begin));
      c.storage->version = c.version;
    }
  }
  static void* at(const Storage& s, int64_t byte) { return static_cast<char*>(s.data) + byte; }
};

// Restores the generator's call index, unless `after` was set because the run succeeded.
struct GeneratorScope {
  Generator& generator = default_generator();
  uint64_t base = generator.next_call, after = base;
  ~GeneratorScope() { generator.next_call = after; }
};

}  // namespace

std::vector<Value> interpret(const Graph& graph, const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                             const NodeObserver* observer) {
  Interpreter in(graph, observer);
  in.evaluate(inputs, scalars);
  GeneratorScope scope;
  const AutocastOff off;
  WrittenInputs written(graph, in);
  try {
    for (size_t i = 0; i < graph.nodes.size(); i++) {
      const Node& n = *graph.nodes[i];
      if (n.rng >= 0) scope.generator.next_call = scope.base + uint64_t(n.rng);
      if (n.inplace && i < written.last) written.keep(in.tensor(n.args[0].tensor()));
      in.run(n);
    }
  } catch (...) {
    written.put_back();
    throw;
  }
  scope.after = scope.base + uint64_t(graph.rng_calls);
  std::vector<Value> outputs;
  for (const Value& v : graph.outputs) outputs.push_back(mapped(v, in));
  return outputs;
}

std::vector<Value> interpret_apart(const Graph& graph, const std::vector<Tensor>& inputs,
                                   const std::vector<double>& scalars) {
  std::vector<Value> outputs = interpret(graph, inputs, scalars);
  for (Value& v : outputs) {
    if (!v.is<Tensor>() || !v.as<Tensor>()) continue;
    const Tensor t = v.as<Tensor>();
    v = alias(t, t->sizes, t->strides, t->offset);
  }
  return outputs;
}

std::vector<Tensor> GraphFunction::run(const std::vector<Tensor>& arguments) const {
  std::vector<Tensor> results;
  for (const Value& v : interpret(*graph, arguments, {})) results.push_back(v.tensor());
  return results;
}

}  // namespace lutra
