// Calls control flow on functions with histories. Its results have nodes of the tape.
#include "jit/autograd/control_node.h"
#include "ops/core/tensor_type.h"
#include "ops/decompose/emit.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;
using Request = TracedFunction::Request;
using Argument = TracedFunction::Argument;
using Reader = TracedFunction::Reader;
using Backward = TracedFunction::Backward;
using Strides = TracedFunction::Strides;

struct ScanNode final : ControlNode {
  std::shared_ptr<TracedFunction> body;
  Sizes dims;
  bool reverse = false;
  SymInt steps;
  std::vector<SavedTensor> init, xs, reads, made;  // made: results of all steps, stacked

  const char* name() const override { return "scan"; }
  std::vector<Tensor> apply_joint(JointCall& call) override;
  void note_readers(FirstReaders& out) const override {
    note(out, reads, *body, body->first_read()), note(out, xs, *body, body->carried()), note(out, init, *body, 0);
  }
  Tensors unpack_made() const {
    Tensors out;
    for (size_t k = 0; k < made.size(); k++)
      out.push_back(unpack(made[k], body->first_reader_of_result(body->carried() + k)));
    return out;
  }
  bool saves() const override { return body->saves(); }
  void drop() override {
    for (auto* list : {&init, &xs, &reads, &made}) {
      for (SavedTensor& t : *list) t.release();
    }
  }
};

// One backward of a scan. It goes from the last step to the first.
class ScanBackward {
 public:
  ScanBackward(const ScanNode& node, const JointCall& call)
      : node_(node),
        call_(call),
        body_(*node.body),
        carried_(body_.carried()),
        init_(node.unpack(node.init, body_, 0)),
        xs_(node.unpack(node.xs, body_, carried_)),
        made_(node.unpack_made()),
        so_far_(node.so_far(call)),
        grads_(call.grads),
        rest_(node.steps) {
    grads_.resize(body_.all_results());
    stacks_.resize(body_.slices());
  }

  Tensors run() {
    begin();
    const bool apart = first_is_apart();
    while (rest_ > 0) {
      const bool first = rest_ == 1;
      const Backward& b = body_.backward(request(first));
      const SymInt alike = apart ? rest_ - 1 : rest_;
      if (b.loop && (!call_.create_graph || tape_watch()) && alike > 1) {
        many(b, alike);
      } else {
        one(b, first);
      }
    }
    Tensors out(grads_.begin(), grads_.begin() + ptrdiff_t(carried_));
    for (size_t k = 0; k < body_.slices(); k++) out.push_back(slices_gradient(k));
    out.insert(out.end(), so_far_.begin() + ptrdiff_t(body_.first_read()), so_far_.end());
    for (size_t i = 0; i < out.size(); i++) {
      if (!is_wanted(i)) out[i] = Tensor();
    }
    return out;
  }

 private:
  bool is_wanted(size_t parameter) const { return node_.next[parameter].node && call_.wanted(node_.next[parameter]); }

  // Passes the gradients of results through their hooks: first the stacked results, then the carried ones, which get
  // the last step's slice of a stacked gradient.
  void begin() {
    for (size_t k = grads_.size(); k-- > carried_;) ControlNode::visit(call_, k, grads_[k]);
    for (size_t k = carried_; k-- > 0;) {
      if (const Tensor given = also(k)) {
        const Tensor last = slice_of(given, 0, place());
        grads_[k] = grads_[k] ? add(grads_[k], last) : last;
      }
      ControlNode::visit(call_, k, grads_[k]);
    }
  }

  // Returns the gradient of the stack of a result that is both carried on and stacked.
  Tensor also(size_t k) const {
    const int stacked = body_.stacked()[k];
    return stacked == TracedFunction::kNone ? Tensor() : grads_[size_t(stacked)];
  }
  bool is_carried_on(size_t result) const {
    const std::vector<int>& stacked = body_.stacked();
    return std::count(stacked.begin(), stacked.end(), int(result)) > 0;
  }
  // place() is the slice of the present step. before() is the distance to the slice of the preceding step of the scan.
  SymInt place() const { return node_.reverse ? node_.steps - rest_ : rest_ - 1; }
  int64_t before() const { return node_.reverse ? 1 : -1; }
  // Returns true if the scan's first step, which is the last one here, gets other values than the later steps.
  bool first_is_apart() const {
    for (size_t k = 0; k < carried_; k++) {
      if (also(k) || so_far_[k]) return true;
    }
    return body_.reads_before();
  }

  // Makes the request for a step. The gradient of a carried parameter starts with a sum: the stacked result's slice if
  // the result is stacked, too. In the scan's first step it is the sum that later nodes sent.
  Request request(bool first) const {
    Request r;
    for (size_t k = 0; k < grads_.size(); k++) {
      const bool apart = k >= carried_ && is_carried_on(k);
      r.gradients.push_back(apart ? Strides() : k < carried_ ? strides_of(grads_[k]) : strides_of(grads_[k], 0));
    }
    for (size_t i = 0; i < body_.parameters(); i++) {
      r.wanted.push_back(i < carried_ || is_wanted(i));
      const bool is_sum = i < carried_ ? first : i >= body_.first_read();
      r.so_far.push_back(is_sum ? strides_of(so_far_[i]) : i < carried_ ? strides_of(also(i), 0) : Strides());
    }
    return r;
  }

  // A stack from which each step takes a slice.
  struct Sliced {
    Tensor stack;
    int64_t dim = 0, by = 0;  // by: the distance from the step's place
  };
  Sliced sliced(const Argument& a) const {
    switch (a.kind) {
      case Argument::kGradient: return {grads_[a.index]};
      case Argument::kSoFar: return {also(a.index), 0, before()};
      case Argument::kResult: return {made_[a.index - carried_]};
      case Argument::kBefore: return {made_[size_t(body_.stacked()[a.index]) - carried_], 0, before()};
      case Argument::kParameter: return {xs_[a.index - carried_], node_.dims[a.index - carried_].hint};
    }
    return {};
  }
  Tensor slice(const Argument& a, bool first) const {
    const Sliced s = sliced(a);
    if (!first || !s.by) return slice_of(s.stack, s.dim, place() + s.by);
    return a.kind == Argument::kSoFar ? so_far_[a.index] : init_[a.index];
  }
  // Returns what the body reads, in the scope of the branches that its reader is in. n: the first of these branches to
  // enter. A branch counts as taken if some step took it.
  Tensor read(size_t i, const Reader& reader, size_t n = 0) const {
    const char* const op = body_.first_reader_of_parameter(body_.first_read() + i);
    if (n == reader.size()) return node_.unpack_written(node_.reads[i], op);
    const Argument& flag = reader[n].flag;
    if (flag.kind != Argument::kResult) return read(i, reader, n + 1);
    const BranchReads within(made_[flag.index - carried_], reader[n].holds);
    return read(i, reader, n + 1);
  }
  Tensor read(size_t i, const std::vector<Reader>& readers) const {
    Tensor t;
    for (const Reader& reader : readers) t = read(i, reader);
    return t;
  }
  // Returns the values for the arguments [from, to) of b, which are not sliced.
  Tensors values(const Backward& b, size_t from, size_t to) const {
    Tensors out;
    for (size_t i = from; i < to; i++) {
      const Argument& a = b.arguments[i];
      out.push_back(a.kind == Argument::kGradient ? grads_[a.index]
                    : a.kind == Argument::kSoFar  ? so_far_[a.index]
                                                  : read(a.index - body_.first_read(), b.readers[i]));
    }
    return out;
  }

  void one(const Backward& b, bool first) {
    Tensors results;
    const bool again = call_.create_graph && b.step && has_control(*b.step);
    if (again && !tape_watch()) node_.refuse("its gradient is differentiated, and there is control flow within it");
    const GradModeScope mode(grad_enabled() && !again);
    if (b.step) {
      Tensors arguments = values(b, 0, b.carried);
      for (size_t i = b.carried; i < b.carried + b.slices; i++) arguments.push_back(slice(b.arguments[i], first));
      for (const Tensor& t : values(b, b.carried + b.slices, b.arguments.size())) arguments.push_back(t);
      results = replay(*b.step, arguments);
    }
    take(b, results, 1, [](const Tensor& t) { return stack_of(t); });
  }

  // Runs n equal steps as one loop. n may be another number in another run. If create_graph is set, the loop is
  // interpreted under the tape, so its results have their history there.
  void many(const Backward& b, SymInt n) {
    const SymInt from = node_.reverse ? node_.steps - rest_ : rest_ - n;
    Tensors slices;
    Sizes along;
    for (size_t i = b.carried; i < b.carried + b.slices; i++) {
      const Sliced s = sliced(b.arguments[i]);
      slices.push_back(slices_of(s.stack, s.dim, from + s.by, n));
      along.push_back(SymInt(s.dim));
    }
    const ControlFunction f{b.loop, values(b, b.carried + b.slices, b.arguments.size())};
    const GradModeScope mode(grad_enabled() && !call_.create_graph);
    const Results results = call_scan(f, values(b, 0, b.carried), slices, along, !node_.reverse);
    if (call_.create_graph) mark_differentiable(results);
    take(b, {results.begin(), results.end()}, n, [](const Tensor& t) { return t; });
  }

  // Takes over the results of n steps.
  template <class F>
  void take(const Backward& b, const Tensors& results, SymInt n, const F& stack) {
    for (size_t i = 0; i < body_.parameters(); i++) {
      const int at = b.gives[i];
      const Tensor g = at < 0 ? Tensor() : results[size_t(at)];
      if (i < carried_ && at != TracedFunction::kUnchanged) grads_[i] = g;
      if (i >= body_.first_read() && g) so_far_[i] = g;
      if (i >= carried_ && i < body_.first_read()) stacks_[i - carried_].push_back({n, g ? stack(g) : g});
    }
    rest_ = rest_ - n;
  }

  // Eager adds the parts one by one to the sum before, with zeros elsewhere. Zeros turn -0 into 0.
  Tensor slices_gradient(size_t k) const {
    const size_t parameter = carried_ + k;
    const bool any = std::any_of(stacks_[k].begin(), stacks_[k].end(), [](const Part& p) { return bool(p.stack); });
    if (!any) return so_far_[parameter];
    const int64_t dim = node_.dims[k].hint;
    Tensors stacks;
    for (const Part& p : stacks_[k]) stacks.push_back(p.stack ? p.stack : zeros_like_slices(xs_[k], dim, p.steps));
    if (!node_.reverse) std::reverse(stacks.begin(), stacks.end());
    const Tensor parts = unsliced(stacks, dim);
    return add(so_far_[parameter] ? add(so_far_[parameter], parts) : parts, Scalar(0.0));
  }
  static Tensor zeros_like_slices(const Tensor& x, int64_t dim, SymInt n) {
    Sizes sizes = x->sizes;
    sizes.erase(size_t(dim));
    sizes.insert(0, n);
    return full(sizes, 0.0, x->dtype, x->device());
  }

  struct Part {
    SymInt steps;
    Tensor stack;  // null: no gradient
  };

  const ScanNode& node_;
  const JointCall& call_;
  TracedFunction& body_;
  const size_t carried_;
  const Tensors init_, xs_, made_;
  Tensors so_far_;  // by parameter
  Tensors grads_;   // by result: for a carried one the gradient at this step, for a stacked one that of all steps
  std::vector<std::vector<Part>> stacks_;
  SymInt rest_;  // steps that remain
};

std::vector<Tensor> ScanNode::apply_joint(JointCall& call) {
  begin();
  return ScanBackward(*this, call).run();
}

// Returns true if a tensor that requires grad is given twice: its gradient would be summed in another order than
// eager's.
bool has_twice(const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); i++) {
    for (size_t k = 0; k < i; k++) {
      if (tensors[i]->requires_grad && tensors[i].same(tensors[k])) return true;
    }
  }
  return false;
}

}  // namespace

Results call_scan(const RecordedFunction& body, const Tensors& carried, const Tensors& xs, const Sizes& dims,
                  bool reverse, const Refuse& refuse) {
  if (!body.traced) return call_scan(body.plain, carried, xs, dims, reverse);
  const TracedFunction& f = *body.traced;
  const Tensors& reads = body.plain.reads;
  const Tensors inputs = joined(joined(carried, xs), reads);
  if (has_twice(inputs)) refuse("it is given a tensor that requires grad twice");
  auto node = make_ref<ScanNode>();
  link(*node, inputs);
  Results results;
  {
    GradModeScope no_grad(false);
    results = call_scan({f.forward(), reads}, carried, xs, dims, reverse);
  }
  node->body = body.traced, node->dims = dims, node->reverse = reverse, node->refuse = refuse;
  node->steps = xs[0]->sizes[size_t(dims[0].hint)];
  node->init = saved(carried, [&](size_t i) { return f.is_read(i); });
  node->xs = saved(xs, [&](size_t i) { return f.is_read(f.carried() + i); });
  node->reads = saved(reads, [&](size_t i) { return f.is_read(f.first_read() + i); });
  node->made = saved(Tensors(results.begin() + ptrdiff_t(f.carried()), results.end()), always);
  for (size_t k = 0; k < results.size(); k++) {
    if (f.gives_gradient(k)) set_history(results[k], Ref<GradNode>(node.get()), uint32_t(k));
  }
  results.resize(f.results());
  return results;
}

namespace {

// The backward of a branch, while it is recorded.
struct Recorded {
  explicit Recorded(const std::shared_ptr<SymEnv>& env) : graph(function_graph(env)) {}
  ControlFunction function;
  std::unique_ptr<Graph> graph;
  Tensors gradients;  // by tensor that the node reads

  // Adds an input for t. A tensor that is read twice gets one input: its gradient is the sum of both.
  Tensor input(const Tensor& t) {
    for (size_t i = 0; i < function.reads.size(); i++) {
      if (function.reads[i].same(t)) return graph->inputs[i].value;
    }
    function.reads.push_back(t);
    const Tensor x = input_like(*graph, t);
    x->requires_grad = t->requires_grad && grad_enabled();
    return x;
  }
  // Returns the recorded function, with its history if there is one.
  RecordedFunction finish(bool taped) {
    graph->renumber();
    const auto differentiable = [](const Value& v) { return v.tensor()->requires_grad; };
    if (!taped || std::none_of(graph->outputs.begin(), graph->outputs.end(), differentiable)) {
      function.function = make_function(std::move(graph));
      return {function, nullptr};
    }
    auto traced = std::make_shared<TracedFunction>(std::move(graph), 0, 0);
    return {{traced->plain(), function.reads}, traced};
  }
};

// The set of tensors with gradients does not depend on the data: a tensor that only the other branch reads gets zeros.
// The op's further results are the values that the backward of either branch reads. They are zeros if the branch that
// ran does not have them.
struct CondNode final : ControlNode {
  struct Branch {
    std::shared_ptr<TracedFunction> function;  // null: it gives no gradients
    std::vector<size_t> at;                    // by tensor that the function reads: its index among the node's tensors
    std::vector<size_t> place;                 // by result of the function's forward: its index among the op's results
    bool reads(size_t i) const {
      for (size_t k = 0; function && k < at.size(); k++) {
        if (at[k] == i && function->is_read(k)) return true;
      }
      return false;
    }
    bool gives_gradient(size_t result) const {
      for (size_t i = 0; function && i < place.size(); i++) {
        if (place[i] == result && function->gives_gradient(i)) return true;
      }
      return false;
    }
  };
  Branch branches[2];
  SavedTensor pred;
  std::vector<SavedTensor> reads;   // by both branches
  std::vector<SavedTensor> made;    // the op's results
  std::vector<TensorImpl*> values;  // reads, then made; the graph owns them

  const char* name() const override { return "cond"; }
  void note_readers(FirstReaders& out) const override {
    for (const Branch& branch : branches) {
      for (size_t k = 0; branch.function && k < branch.at.size(); k++) {
        note(out, reads[branch.at[k]], branch.function->first_reader_of_parameter(k));
      }
    }
  }
  bool saves() const override {
    return std::any_of(branches, branches + 2, [](const Branch& b) { return b.function && b.function->saves(); });
  }
  void drop() override {
    pred.release();
    for (auto* list : {&reads, &made}) {
      for (SavedTensor& t : *list) t.release();
    }
  }

  // Returns an argument's value. A value that was written since may have any contents if the run does not take the
  // branch.
  Tensor value(const Argument& a, const Branch& branch) const {
    const size_t i = branch_value(branch, a);
    const char* op = a.kind == Argument::kResult ? branch.function->first_reader_of_result(a.index)
                                                 : branch.function->first_reader_of_parameter(a.index);
    return unpack_written(i < reads.size() ? reads[i] : made[i - reads.size()], op);
  }
  // Returns an argument's value, in the scope of the branches that its reader is in. n: the first of these to enter.
  Tensor value(const Argument& a, const Branch& branch, const Reader& reader, size_t n = 0) const {
    if (n == reader.size() || !pred.is_fake()) return value(a, branch);
    const BranchReads within(Tensor{Ref<TensorImpl>(values[branch_value(branch, reader[n].flag)])}, reader[n].holds);
    return value(a, branch, reader, n + 1);
  }
  Tensor value(const Argument& a, const Branch& branch, const std::vector<Reader>& readers) const {
    Tensor v;
    for (const Reader& reader : readers) v = value(a, branch, reader);
    return v;
  }
  // Returns the index of an argument among the node's values.
  size_t branch_value(const Branch& branch, const Argument& a) const {
    return a.kind == Argument::kResult ? reads.size() + branch.place[a.index] : branch.at[a.index];
  }

  // Records the backward of a branch.
  void record(Recorded& out, const Branch& branch, const JointCall& call, const Tensors& grads,
              const Tensors& sums) const {
    out.gradients.resize(next.size());
    if (!branch.function) return;
    TracedFunction& f = *branch.function;
    Request request;
    for (size_t k = 0; k < f.all_results(); k++) {
      request.gradients.push_back(f.gives_gradient(k) ? strides_of(grads[branch.place[k]]) : Strides());
    }
    for (size_t at : branch.at) {
      request.wanted.push_back(next[at].node && call.wanted(next[at]));
      request.so_far.push_back(strides_of(sums[at]));
    }
    const Backward& b = f.backward(request);
    if (grad_enabled() && b.step && has_control(*b.step)) {
      refuse("its gradient is differentiated, and there is control flow within it");
    }
    Tensors arguments;
    for (size_t i = 0; i < b.arguments.size(); i++) {
      const Argument& a = b.arguments[i];
      const bool sum = a.kind == Argument::kSoFar, kept = a.kind != Argument::kGradient && !sum;
      arguments.push_back(out.input(kept  ? value(a, branch, b.readers[i])
                                    : sum ? sums[branch.at[a.index]]
                                          : grads[branch.place[a.index]]));
    }
    GraphRecorder recorder(*out.graph);
    ModeScope mode(&recorder);
    const Tensors given = b.step ? replay(*b.step, arguments, &recorder) : Tensors();
    for (size_t i = 0; i < branch.at.size(); i++) {
      if (b.gives[i] >= 0) out.gradients[branch.at[i]] = given[size_t(b.gives[i])];
    }
  }

  // Makes both branches return gradients of the same tensors, with the same strides. A missing gradient is the sum so
  // far, or zeros. If the strides differ, both are made contiguous.
  static void make_alike(Recorded& f, Recorded& g, const Tensors& sums) {
    for (size_t at = 0; at < f.gradients.size(); at++) {
      if (!f.gradients[at] && !g.gradients[at]) continue;
      for (auto [r, other] : {std::pair(&f, &g), std::pair(&g, &f)}) {
        if (r->gradients[at]) continue;
        GraphRecorder recorder(*r->graph);
        ModeScope mode(&recorder);
        r->gradients[at] = sums[at] ? r->input(sums[at]) : zeros_laid_as(other->gradients[at]);
      }
      const bool alike = are_equal(f.gradients[at]->strides, g.gradients[at]->strides);
      for (Recorded* r : {&f, &g}) {
        GraphRecorder recorder(*r->graph);
        ModeScope mode(&recorder);
        const Tensor given = alike ? own_copy(r->gradients[at]) : contiguous_copy(r->gradients[at]);
        if (!grad_enabled()) given->requires_grad = is_float(given->dtype);
        r->graph->outputs.emplace_back(given);
      }
    }
  }

  std::vector<Tensor> apply_joint(JointCall& call) override {
    begin();
    const Tensor flag = unpack(pred, nullptr);
    Tensors grads = call.grads;
    const Tensors sums = so_far(call);
    grads.resize(made.size());
    for (size_t k = grads.size(); k-- > 0;) visit(call, k, grads[k]);
    // Unless a graph is recorded, functions are interpreted under the tape.
    const bool taped = call.create_graph && !tape_watch();
    GradModeScope grad_mode(taped);
    const auto& env = (branches[0].function ? branches[0] : branches[1]).function->env();
    Recorded f(env), g(env);
    for (const bool first : {true, false}) {
      const BranchReads reads_of_branch(flag, first);
      record(first ? f : g, branches[first ? 0 : 1], call, grads, sums);
    }
    make_alike(f, g, sums);
    const auto there = [](const Tensor& t) { return bool(t); };
    const bool any = std::any_of(f.gradients.begin(), f.gradients.end(), there);
    const Results given = any ? lutra::call_cond(flag, f.finish(taped), g.finish(taped), refuse) : Results();
    if (call.create_graph && !taped) mark_differentiable(given);
    Tensors out;
    size_t k = 0;
    for (size_t at = 0; at < next.size(); at++) out.push_back(f.gradients[at] ? given[k++] : sums[at]);
    return out;
  }
};

// The further results of a cond: the values that the backward of either branch reads. Branches share the place of a
// value that takes no gradient. A value with a gradient has its own place: shared, its gradient would flow through both
// branches although only one backward reads it.
class Kept {
 public:
  explicit Kept(size_t results) : results_(results) {}
  // Returns the op's results that the results of a branch's forward become.
  std::vector<size_t> place(const TracedFunction& f) {
    std::vector<size_t> out;
    std::vector<bool> taken = own_;
    const std::vector<TensorType> given = f.forward()->results();
    for (size_t k = 0; k < given.size(); k++) {
      size_t at = 0;
      const bool own = f.gives_gradient(k);
      const auto fits = [&](size_t i) { return !own && !taken[i] && is_alike(types_[i], given[k]); };
      if (k >= results_) {
        while (at < types_.size() && !fits(at)) at++;
        if (at == types_.size()) types_.push_back(given[k]), own_.push_back(own), taken.push_back(own);
        taken[at] = true;
      }
      out.push_back(k < results_ ? k : results_ + at);
    }
    return out;
  }
  // Returns the branch with all of the op's results.
  FunctionRef whole(const FunctionRef& f, const std::vector<size_t>& place) const {
    if (types_.empty()) return f;
    const Device device = graph_of(f).outputs[0].tensor()->device();
    return rebuilt(f, [&](Graph&, const Tensors&, Tensors made) {
      Tensors out(made.begin(), made.begin() + ptrdiff_t(results_));
      out.resize(results_ + types_.size());
      for (size_t k = results_; k < place.size(); k++) out[place[k]] = made[k];
      for (size_t i = 0; i < types_.size(); i++) {
        Tensor& t = out[results_ + i];
        if (!t) t = full(types_[i].sizes, 0.0, types_[i].dtype, device);
      }
      return out;
    });
  }

 private:
  // Compares expressions: a question would add a guard.
  static bool is_alike(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && same_exprs(a.sizes, b.sizes) && same_exprs(a.strides, b.strides);
  }
  const size_t results_;
  std::vector<TensorType> types_;
  std::vector<bool> own_;  // by type: only one branch uses it
};

}  // namespace

Results call_cond(const Tensor& pred, const RecordedFunction& f, const RecordedFunction& g, const Refuse& refuse) {
  if (!f.traced && !g.traced) return call_cond(pred, f.plain, g.plain);
  auto node = make_ref<CondNode>();
  Tensors reads;
  const RecordedFunction* const calls[] = {&f, &g};
  const size_t given = f.plain.function->results().size();
  Kept kept(given);
  for (int b = 0; b < 2; b++) {
    CondNode::Branch& branch = node->branches[b];
    branch.function = calls[b]->traced;
    if (branch.function) branch.place = kept.place(*branch.function);
    for (const Tensor& t : calls[b]->plain.reads) {
      const auto known = std::find_if(reads.begin(), reads.end(), [&](const Tensor& r) { return r.same(t); });
      branch.at.push_back(size_t(known - reads.begin()));
      if (known == reads.end()) reads.push_back(t);
    }
  }
  link(*node, reads);
  Results results;
  Tensor flag;
  {
    GradModeScope no_grad(false);
    flag = own_copy(pred);  // eager keeps only which branch it took
    const auto whole = [&](int b) -> ControlFunction {
      const RecordedFunction& r = *calls[b];
      const FunctionRef& forward = r.traced ? r.traced->forward() : r.plain.function;
      return {kept.whole(forward, node->branches[b].place), r.plain.reads};
    };
    results = call_cond(pred, whole(0), whole(1));
  }
  node->refuse = refuse;
  node->pred = SavedTensor::elements_of(flag);
  const auto is_read = [&](size_t i) { return node->branches[0].reads(i) || node->branches[1].reads(i); };
  node->reads = saved(reads, is_read);
  node->made = saved({results.begin(), results.end()}, [given](size_t k) { return k >= given; });
  for (const Tensor& t : joined(reads, {results.begin(), results.end()})) node->values.push_back(t.get());
  for (size_t k = 0; k < results.size(); k++) {
    if (node->branches[0].gives_gradient(k) || node->branches[1].gives_gradient(k)) {
      set_history(results[k], Ref<GradNode>(node.get()), uint32_t(k));
    }
  }
  results.resize(given);
  return results;
}

}  // namespace lutra
