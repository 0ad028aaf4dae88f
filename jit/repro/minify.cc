// Searches for the smallest repro that fails in the same way as the given one.
//
// It records the run op by op, with concrete sizes. A step that is left out becomes an input with the elements that
// eager computed there. A value that no kept step reads becomes a result. Compiler and eager both run such a part, so
// any part shows whether the failure remains. It drops steps in halves, quarters, ... and one by one (delta debugging,
// Zeller 1999). Then it halves sizes.
#include <algorithm>
#include <map>
#include <set>

#include "jit/graph/replay.h"
#include "jit/repro/compare.h"
#include "jit/repro/repro.h"

namespace lutra {
namespace {

struct RecordedOp {
  OpId op;
  bool inplace;
  int rng;
  const char* file;
  int line;
  Args args;
  Results results;
};

// Replaces one size of dimensions by another.
struct Resize {
  int64_t from = 0, to = 0;
  SymInt operator()(SymInt s) const { return s.hint == from ? SymInt(to) : s; }
  Sizes operator()(Sizes sizes) const {
    for (SymInt& s : sizes) s = (*this)(s);
    return sizes;
  }
};

struct Recording {
  std::vector<RecordedOp> steps;
  std::map<const TensorImpl*, Tensor> before;  // the inputs and the results of steps, with their elements at that time
  std::vector<Tensor> held;                    // keeps the keys alive
  int rng_calls = 0;

  void note(const Tensor& t) {
    if (!t || before.count(t.get())) return;
    Copies copy;
    held.push_back(t);
    before[t.get()] = copy.of(t);
  }
  void add(const Node& n, const Args& args, const Results& results) {
    steps.push_back({n.op, n.inplace, n.rng, n.file, n.line, args, results});
    for (const Tensor& t : results) note(t);
  }
};

Recording record(const Runnable& run) {
  Recording r;
  r.rng_calls = run.graph->rng_calls;
  Copies copies, untouched;
  const std::vector<Tensor> inputs = copies.of(run.inputs);
  // Copies of inputs share memory as the inputs do.
  for (size_t i = 0; i < inputs.size(); i++) {
    r.held.push_back(inputs[i]);
    r.before[inputs[i].get()] = untouched.of(run.inputs[i]);
  }
  for (const GraphInput& in : run.graph->inputs) {
    if (in.constant) r.held.push_back(in.constant), r.before[in.constant.get()] = untouched.of(in.constant);
  }
  const NodeObserver observer = [&](const Node& n, const Args& args, const Results& results) {
    r.add(n, args, results);
  };
  const Generator before = default_generator();
  default_generator() = {run.seed, run.next_call};
  const GradModeScope no_grad(false);
  interpret(*run.graph, inputs, run.scalars, &observer);
  default_generator() = before;
  return r;
}

// A graph of some of the steps.
struct Part {
  const Recording& recording;
  std::vector<Resize> resizes{};
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::vector<Tensor> inputs{};
  std::map<const TensorImpl*, Tensor> values{};
  std::map<const Storage*, Tensor> first_of{};  // the first input with that memory
  std::set<const TensorImpl*> read{};

  Sizes resized(Sizes sizes) const {
    for (const Resize& r : resizes) sizes = r(std::move(sizes));
    return sizes;
  }

  Tensor input(const Tensor& real) {
    Tensor held = recording.before.at(real.get());
    const Sizes sizes = resized(held->sizes);
    held = alias(held, sizes, held->strides, held->offset);
    Tensor fake = graph->add_input(str("v", inputs.size()), held->sizes, held->strides, held->dtype, held->device());
    const auto [it, first] = first_of.emplace(held->storage.get(), fake);
    if (!first) fake->storage = it->second->storage;
    inputs.push_back(held);
    return values[real.get()] = fake;
  }

  Tensor value(const Tensor& real) {
    if (!real) return real;
    const auto it = values.find(real.get());
    const Tensor found = it != values.end() ? it->second : input(real);
    read.insert(found.get());
    return found;
  }

  Args args(Args given) {
    for (Value& v : given) {
      if (v.is<Tensor>()) v = value(v.as<Tensor>());
      if (v.is<Sizes>()) v = resized(v.as<Sizes>());
      if (v.is<FunctionRef>()) v = translated(graph_of(v.as<FunctionRef>()), graph->env, SameIds());
      if (!v.is<std::vector<Tensor>>()) continue;
      for (Tensor& t : v.as<std::vector<Tensor>>()) t = value(t);
    }
    return given;
  }

  void step(GraphRecorder& recorder, const RecordedOp& s) {
    recorder.set_location(s.file, s.line);
    Args given = args(s.args);
    Results made;
    if (s.inplace && s.op != OpId::copy_) {
      made = {recorder.call_inplace(s.op, given)};
    } else if (info(s.op).dynamic) {
      throw NeedsData("its sizes are those of the recorded run");
    } else {
      made = recorder.call(s.op, given);
      if (s.rng >= 0) graph->nodes.back()->rng = s.rng;
    }
    if (!s.inplace) {
      for (size_t i = 0; i < made.size(); i++) values[s.results[i].get()] = made[i];
    }
  }

  // Throws if the steps do not fit the sizes.
  Runnable make(const std::vector<bool>& kept, const Runnable& of) {
    const SymScope symbols(graph->env.get());
    const GradModeScope no_grad(false);
    GraphRecorder recorder(*graph);
    for (size_t i = 0; i < kept.size(); i++) {
      if (kept[i]) step(recorder, recording.steps[i]);
    }
    for (const auto& n : graph->nodes) {
      if (n->inplace) continue;
      for (const Tensor& t : n->results) {
        if (!read.count(t.get())) graph->outputs.push_back(t);
      }
    }
    graph->rng_calls = recording.rng_calls;
    return {std::move(graph), std::move(inputs), {}, of.seed, of.next_call, of.without, of.device};
  }
};

struct Minifier {
  const Runnable& run;
  const Recording recording;
  const std::string kind;
  std::vector<bool> kept{};
  std::vector<Resize> resizes{};

  Runnable part(const std::vector<bool>& of, const std::vector<Resize>& sizes) const {
    return Part{recording, sizes}.make(of, run);
  }
  bool fails(const std::vector<bool>& of, const std::vector<Resize>& sizes) const {
    try {
      return replay(part(of, sizes)).kind == kind;
    } catch (const Error& e) {
      if (e.kind == ErrorKind::kInterrupt) throw;
      return false;  // the part is not a valid program
    }
  }

  void drop_steps() {
    kept.assign(recording.steps.size(), true);
    for (size_t size = kept.size(); size > 0; size = size == 1 ? 0 : (size + 1) / 2) {
      bool again = true;
      while (again) {
        again = false;
        for (size_t end = kept.size(); end > 0; end = end > size ? end - size : 0) {
          std::vector<bool> fewer = kept;
          const size_t begin = end > size ? end - size : 0;
          std::fill(fewer.begin() + long(begin), fewer.begin() + long(end), false);
          if (fewer == kept || std::find(fewer.begin(), fewer.end(), true) == fewer.end()) continue;
          if (!fails(fewer, {})) continue;
          kept = std::move(fewer);
          again = size == 1;
        }
      }
    }
  }

  void shrink_sizes() {
    std::set<int64_t> sizes;
    for (const Tensor& t : part(kept, {}).inputs) {
      for (SymInt s : t->sizes) sizes.insert(s.hint);
    }
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      for (int64_t n = *size; n > 1;) {
        std::vector<Resize> smaller = resizes;
        smaller.push_back({n, n / 2});
        if (!fails(kept, smaller)) break;
        resizes = std::move(smaller);
        n /= 2;
      }
    }
  }
};

}  // namespace

Repro minify(const Repro& repro) {
  Repro small = repro;
  if (repro.kind == "guard") {
    small.graph = "graph {\n  return\n}\n";  // the graph is not the cause
    small.inputs.clear(), small.scalars.clear();
    return small;
  }
  const Runnable run = runnable(repro);
  const Replay seen = replay(run);
  if (seen.kind.empty()) fail("minify: compiled code and eager agree on this repro");
  Minifier minifier{run, record(run), seen.kind};
  minifier.drop_steps();
  // If it fails with symbolic sizes only, it is kept whole.
  if (!minifier.fails(minifier.kept, {})) return small;
  minifier.shrink_sizes();
  const Runnable found = minifier.part(minifier.kept, minifier.resizes);
  small.what = replay(found).what;
  small.kind = seen.kind;
  small.graph = print(*found.graph);
  small.inputs = found.inputs;
  small.scalars.clear();
  Copies compact;
  for (Tensor& t : small.inputs) t = compact.of(t);
  return small;
}

}  // namespace lutra
