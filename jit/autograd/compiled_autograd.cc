// Splits a traced forward and its taped backward into graphs, and runs them as one node of the tape.
#include "jit/autograd/compiled_autograd.h"

#include <algorithm>

#include "jit/autograd/extract.h"
#include "jit/autograd/gradient_layout.h"
#include "jit/graph/unbacked.h"
#include "jit/passes/passes.h"
#include "ops/core/tensor_type.h"
#include "ops/defs/autocast.h"
#include "ops/defs/each_tensor.h"
#include "ops/defs/element.h"
#include "ops/grad/saved_tensor.h"

namespace lutra {
namespace {

Tensor plain(const Tensor& t) { return alias(t, t->sizes, t->strides, t->offset); }

// Compiled code refuses a freed tensor (x:free()), so a tensor that it does not read is replaced by its sizes.
Tensor as_read(const Tensor& t, bool read) { return read || !t->storage->freed ? t : without_memory(t); }

// Returns t with the history of edge.
Tensor with_history(const Tensor& t, const Edge& edge) {
  if (!edge.node) return t;
  if (Tensor leaf = leaf_of(edge.node.get())) return leaf;
  Tensor again = plain(t);
  set_history(again, edge.node, edge.result);
  return again;
}

bool same_storage(const Tensor& a, const Tensor& b) { return a->storage.get() == b->storage.get(); }

// Sets the generator to its state before the forward ran, while the forward's random nodes are repeated.
struct DrawnAgain {
  Generator before = default_generator();
  explicit DrawnAgain(const Generator& drawn) { default_generator() = drawn; }
  ~DrawnAgain() { default_generator() = before; }
};

}  // namespace

// The node of the tape; each run has one. Its results are those of the run, then the saved values, then the views.
struct CompiledNode : GradNode, Pooled<CompiledNode> {
  std::shared_ptr<CompiledAutograd> code;
  std::shared_ptr<LeafInputs> leaves;
  HeldMemory memory;                                  // of leaves; null: all saved values are released
  std::vector<Tensor> values;                         // the run's inputs except leaves, then the kept values
  bool has_all = false;                               // the values include the leaves
  size_t kept = 0;                                    // how many values the run keeps
  Generator drawn;                                    // before the run
  std::vector<uint32_t> versions;                     // of the inputs that backwards read, then of the kept values
  std::vector<std::pair<size_t, Tensor>> written_as;  // place of a kept copy, and the result that eager code would
                                                      // write in its place
  std::vector<std::pair<Tensor, uint32_t>> reported;  // tensors whose versions appear in errors, with their versions
                                                      // after the run
  std::vector<double> scalars;
  std::vector<bool> spent;  // by spendable node of the traced forward; empty: no node is spent
  size_t spent_count = 0;
  std::shared_ptr<const CompiledAutograd::Backward> ran;  // the backward that ran last
  bool stands_in = false;  // the values are FakeTensors: the backward is being recorded as a part of another graph

  CompiledNode() { joint = true; }
  const char* name() const override { return "CompiledBackward"; }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override { fail_internal("apply of a joint node"); }

  // Returns a value by its place: the run's inputs, then the kept values.
  const Tensor& value(size_t i) const {
    if (has_all) return values[i];
    if (i >= code->inputs_) return values[leaves->no_leaves().size() + i - code->inputs_];
    const Tensor& leaf = leaves->value(i);
    return leaf ? leaf : values[leaves->place_of_other(i)];
  }
  uint32_t version(size_t i) const {
    if (i >= code->inputs_) return versions[code->read_.size() + i - code->inputs_];
    const int at = code->version_at_[i];
    return at < 0 ? value(i)->storage->version : versions[size_t(at)];
  }
  uint32_t version_now(size_t i) const {
    for (const auto& [place, t] : written_as) {
      if (place == i) return t->storage->version;
    }
    return value(i)->storage->version;
  }
  std::vector<Tensor> all_values() const {
    std::vector<Tensor> all;
    for (size_t i = 0; i < code->inputs_ + kept; i++) all.push_back(value(i));
    return all;
  }

  bool leads(uint32_t result, const std::function<bool(const Edge&)>& wanted) override {
    const ResultReach& reach = code->reach(result);
    for (size_t i : reach.sources) {
      if (wanted(next[i])) return true;
    }
    for (uint32_t k : reach.results) {
      if (wanted({Ref<GradNode>(this), k})) return true;
    }
    return false;
  }

  void lead_to(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources) {
    if (leaves->others().empty() && code->made_.empty()) {
      next.share(leaves->edges());
    } else {
      std::vector<Edge> edges = *leaves->edges();
      for (size_t k : leaves->others()) edges[k] = gradient_edge(inputs[sources[k]]);
      if (leaves->others().size() > 1 && meet(edges, leaves->others())) throw SharedSource();
      next.assign(std::move(edges));
    }
    link(*this, {});
  }

  void lead_to_made(const std::vector<Value>& out) {
    for (size_t k = 0; k < code->made_.size(); k++) {
      const Tensor& leaf = out[code->made_[k].output].tensor();
      leaf->requires_grad = true;
      next.push_back(gradient_edge(leaf));
      leaf->requires_grad = code->made_[k].requires_grad;
    }
  }

  // Keeps the values and versions that backwards need. It keeps aliases of the inputs, since an input may take other
  // memory (x.data = y).
  void keep(const std::vector<Tensor>& inputs, const std::vector<Value>& out, size_t results) {
    kept = out.size() - results;
    const std::vector<size_t>& others = leaves->no_leaves();
    values.reserve(others.size() + kept), versions.reserve(code->read_.size() + kept);
    for (size_t i : others) values.push_back(code->reads_[i] ? plain(inputs[i]) : without_memory(inputs[i]));
    for (size_t i : code->read_) versions.push_back(inputs[i]->storage->version);
    for (const auto& [memory, i] : code->reported_memory_) {
      reported.emplace_back(plain(out[i].tensor()), out[i].tensor()->storage->version);
    }
    for (size_t i = results; i < out.size(); i++) {
      values.push_back(plain(out[i].tensor()));
      const int memory = code->memory_of_[i - results];
      const Tensor& written = memory < 0 ? values.back() : out[size_t(memory)].tensor();
      versions.push_back(written->storage->version);
      if (!same_storage(written, values.back())) {
        written_as.emplace_back(code->inputs_ + i - results, plain(written));
      }
    }
  }

  // Code that takes numbers or symbols, or repeats random nodes, is not traced into another graph; it runs as it is.
  bool visit(NodeVisitor& v) override {
    if (spent_count || !code->is_plain()) return false;
    v.object(code);
    values = all_values(), has_all = true;
    for (size_t i = 0; i < values.size(); i++) {
      if (!stands_in && version_now(i) != version(i)) return false;
      v.fixed(values[i]);
    }
    return true;
  }
  Ref<GradNode> copy() const override {
    auto other = make_ref<CompiledNode>();
    static_cast<GradNode&>(*other).next = next;
    other->code = code, other->drawn = drawn, other->scalars = scalars;
    other->values = all_values(), other->has_all = true, other->kept = kept;
    other->versions.assign(code->read_.size() + kept, 0);
    other->reported = reported;
    other->spent = spent, other->spent_count = spent_count;
    other->stands_in = true;
    return Ref<GradNode>(other.get());
  }

  void ran_as(GradNode& stand_in) override { ran = static_cast<CompiledNode&>(stand_in).ran; }
  void release() override {
    if (ran) spend(ran->traced, ran->traced.pieces.size(), 0);
  }

  // Marks the spendable nodes of the first `pieces` pieces and of `nodes` nodes of the next piece as spent. If all
  // nodes are spent, drops the saved values.
  void spend(const TracedBackward& b, size_t pieces, size_t nodes) {
    spent.resize(code->spendable_);
    const size_t before = spent_count;
    for (size_t p = 0; p < b.pieces.size() && p <= pieces; p++) {
      const std::vector<uint32_t>& spends = b.pieces[p].spends;
      for (size_t k = 0; k < (p < pieces ? spends.size() : nodes); k++) {
        spent_count += !spent[spends[k]];
        spent[spends[k]] = true;
      }
    }
    if (spent_count == before) return;
    drop_hooks();
    if (spent_count < code->spendable_) return;
    drop_memory();
  }

  // Drops the saved values. Inputs keep their sizes, which sums of gradients need.
  void drop_memory() {
    memory = nullptr, written_as.clear(), reported.clear();
    values.resize(has_all ? code->inputs_ : leaves->no_leaves().size()), kept = 0;
    for (Tensor& t : values) t = without_memory(t);
  }

  // Removes the hooks of spent nodes. Eager does not run them any more, either.
  void drop_hooks() {
    const auto is_spent = [&](const auto& hook) {
      const auto at = code->traced_.spendable.find(gradient_edge(code->traced_.results[hook.first]).node.get());
      return at != code->traced_.spendable.end() && spent[at->second];
    };
    hooks.erase(std::remove_if(hooks.begin(), hooks.end(), is_spent), hooks.end());
  }

  Tensor in_run(const Tensor& traced) const {
    return sized_by_run(*code->traced_.graph, traced, all_values(), scalars);
  }
  void check_input(size_t i) const {
    const size_t at = code->traced_.run_input(i);
    const uint32_t now = value(at)->storage->version, then = version(at);
    if (now != then) fail_modified(in_run(code->traced_.graph->inputs[i].value), "recomputation", now, then);
  }

  // Throws eager's error for a value that the forward itself has written since it was saved, and others may have
  // written later.
  [[noreturn]] void fail_written(const WrittenRead& read) const {
    const Storage* const memory = read.value->storage.get();
    uint32_t then = memory->version, now = then;
    size_t place = 0;
    for (const GraphInput& in : code->traced_.graph->inputs) {
      if (in.constant) continue;
      if (in.value->storage.get() == memory) then = version(place), now = version_now(place);
      place++;
    }
    for (size_t i = 0; i < reported.size(); i++) {
      if (code->reported_memory_[i].first == memory)
        then = reported[i].second, now = reported[i].first->storage->version;
    }
    fail_modified(in_run(read.value), read.op, now, then - read.writes);
  }

  // Throws what eager would throw in a piece. done: the number of nodes that eager has run before.
  void check(const BackwardPiece& piece, size_t& done) const {
    auto read = piece.reads.begin();
    for (done = 0; done < piece.spends.size(); done++) {
      if (!spent.empty() && spent[piece.spends[done]]) fail_second_backward();
      for (; read != piece.reads.end() && read->spent == done + 1; ++read) {
        if (read->writes) {
          if (is_read(*read)) fail_written({read->value, read->op, read->writes});
          continue;
        }
        const uint32_t now = version_now(size_t(read->place)), then = version(size_t(read->place));
        if (now != then && is_read(*read)) fail_modified(in_run(read->value), read->op, now, then);
      }
    }
  }

  // Returns true if the run took the branches that read the value.
  bool is_read(const BackwardRead& read) const {
    if (read.branches.empty()) return true;
    if (stands_in) throw NeedsData("a value was written that a branch of its forward reads");
    return std::all_of(read.branches.begin(), read.branches.end(), [this](const TakenBranch& b) {
      const Tensor flag = b.place >= 0 ? value(size_t(b.place)) : repeat_values()[size_t(b.repeated)].tensor();
      double made = double(flag->numel().hint);  // elements that steps have written
      bool taken = false;
      if (b.steps_place >= 0) {
        const double steps = Elements(value(size_t(b.steps_place))).at(0).to_double();
        const double places = double(flag->sizes[0].hint);
        taken = steps > places;  // a step beyond the last place may have taken it
        made *= steps / places;
      }
      int64_t i = 0;
      Elements(flag).each([&](const Scalar& element) {
        taken = taken || (double(i++) < made && (element.to_double() != 0) == b.holds);
      });
      return taken;
    });
  }

  BackwardRequest request(const JointCall& call) const {
    BackwardRequest r;
    r.gradients = call.grads;
    r.gradients.resize(code->traced_.results.size());  // the engine passes only as many as have arrived
    for (size_t k = 0; k < r.gradients.size(); k++) {
      r.gradients[k] = said_by_sizes(r.gradients[k], code->traced_.results[k]->sizes);
    }
    r.points = call.points;
    r.asked = call.asked;
    r.create_graph = call.create_graph;
    for (size_t i = 0; i < next.size(); i++) {
      r.wanted.push_back(call.wanted(next[i]));
      Tensor* so_far = r.wanted[i] && code->traced_.accumulates[i] ? call.so_far(next[i]) : nullptr;
      r.so_far.push_back(so_far ? said_by_sizes(std::exchange(*so_far, {}), code->traced_.inputs[i]->sizes) : Tensor());
    }
    return r;
  }

  // Returns the values of a run by place. If r.create_graph is set, they have their history.
  std::vector<Tensor> table(const BackwardRequest& r, int places) {
    std::vector<Tensor> all = all_values();
    all.resize(code->inputs_ + code->traced_.kept());
    if (r.create_graph) give_history(all);
    for (const Tensor& g : r.gradients) {
      if (g) all.push_back(g);
    }
    for (const Tensor& g : r.so_far) {
      if (g) all.push_back(g);
    }
    all.resize(size_t(places));
    return all;
  }

  void give_history(std::vector<Tensor>& all) {
    const TracedForward& traced = code->traced_;
    const size_t first = code->inputs_;
    // Released values are gone. The backward is refused when it reaches a released node.
    const bool is_spent = spent_count && spent_count == code->spendable_;
    if (!is_spent) {
      for (const Value& v : repeat_values()) all.push_back(v.tensor());
    }
    all.resize(first + traced.kept() + traced.repeated());
    const std::vector<Tensor> views = is_spent ? std::vector<Tensor>(traced.views.size()) : views_of(all);
    for (size_t i = 0; i < first; i++) {
      const int written = code->written_[i], source = code->input_history_[i];
      if (written >= 0) {
        all[i] = with_history(all[i], {Ref<GradNode>(this), uint32_t(written)});
      } else if (source >= 0) {
        all[i] = with_history(all[i], next[size_t(source)]);
      }
    }
    size_t other = first + traced.kept();
    for (size_t i = 0; i < traced.saved.size(); i++) {
      const int at = traced.kept_place(i);
      Tensor& t = all[at < 0 ? other++ : first + size_t(at)];
      if (!t || !traced.saved[i]->requires_grad) continue;
      const int leaf = code->made_source(traced.saved[i]);
      t = with_history(t, leaf < 0 ? Edge{Ref<GradNode>(this), traced.saved_result[i]} : next[size_t(leaf)]);
    }
    for (size_t i = 0; i < views.size(); i++) {
      all.push_back(views[i] ? with_history(views[i], {Ref<GradNode>(this), traced.views_result[i]}) : Tensor());
    }
  }

  // Makes the views of the inputs, the kept values and the recomputed values.
  std::vector<Tensor> views_of(const std::vector<Tensor>& all) {
    const TracedForward& traced = code->traced_;
    if (traced.views.empty()) return {};
    std::vector<Tensor> args(all.begin(), all.begin() + ptrdiff_t(code->inputs_)), views;
    size_t other = code->inputs_ + traced.kept();
    for (size_t i = 0; i < traced.saved.size(); i++) {
      const int at = traced.kept_place(i);
      args.push_back(all[at < 0 ? other++ : code->inputs_ + size_t(at)]);
    }
    GradModeScope no_grad(false);
    for (const Value& v : interpret(*code->views(), args, scalars)) views.push_back(v.tensor());
    return views;
  }

  std::vector<Value> repeat_values() const {
    if (!code->traced_.repeated()) return {};
    std::vector<bool> read(code->inputs_);
    for (size_t i : code->traced_.partition.inputs) check_input(i), read[code->traced_.run_input(i)] = true;
    std::vector<Tensor> args = all_values();
    for (size_t i = 0; i < code->inputs_; i++) args[i] = as_read(args[i], read[i]);
    const DrawnAgain as_then(drawn);
    GradModeScope no_grad(false);
    return code->repeated().run(args, scalars);
  }

  void run(const BackwardPiece& piece, EventuallyCompiled* compiled, std::vector<Tensor>& table) {
    std::vector<Tensor> args;
    for (size_t i = 0; i < code->inputs_; i++) args.push_back(as_read(table[i], piece.uses[i]));
    for (int p : piece.takes) args.push_back(table[size_t(p)]);
    std::optional<DrawnAgain> as_then;
    if (piece.draws) as_then.emplace(drawn);
    const std::vector<Value> out = compiled ? compiled->run(args, scalars) : interpret(*piece.graph, args, scalars);
    for (size_t i = 0; i < out.size(); i++) table[size_t(piece.gives[i])] = out[i].tensor();
  }

  // How far a run has come: whole pieces, then nodes of the next one. The destructor releases these if the run is left
  // early, possibly by a Lua error.
  struct Progress {
    CompiledNode& node;
    const TracedBackward& traced;
    bool releases;  // where the run is left before its end
    size_t pieces = 0, nodes = 0;
    ~Progress() {
      if (releases) node.spend(traced, pieces, nodes);
    }
  };

  // Returns false if the gradient that a visit returned has other strides than the code was compiled for.
  bool run_pieces(const CompiledAutograd::Backward& b, JointCall& call, BackwardRequest& r,
                  std::vector<Tensor>& visited, std::vector<Tensor>& all, Progress& done) {
    for (size_t& p = done.pieces; p < b.traced.pieces.size(); p++) {
      const BackwardPiece& piece = b.traced.pieces[p];
      check(piece, done.nodes);
      const bool last = piece.point < 0;
      if (last && !b.traced.error.empty()) {
        done.nodes -= b.traced.unfinished;
        if (b.traced.written.value) fail_written(b.traced.written);
        fail(b.traced.error);
      }
      if (!piece.gives.empty()) run(piece, b.pieces[p].get(), all);
      if (last) continue;
      const Tensor given = all[size_t(piece.given)];
      if (p == visited.size()) {
        const Tensor taken = call.visit(uint32_t(piece.point), given);
        visited.push_back(said_by_sizes(taken, code->traced_.results[size_t(piece.point)]->sizes));
        r.taken.resize(p + 1);
        if (!same_values(visited[p]->strides, given->strides)) {
          r.taken[p] = visited[p];
          return false;
        }
      }
      all[size_t(piece.taken)] = visited[p];
    }
    return true;
  }

  // Moves the values of a run to another trace, in which the run continues. Returns how many pieces need not run again:
  // they have run, and their history must not exist twice.
  static size_t carry(const TracedBackward& from, const TracedBackward& to, const std::vector<Tensor>& visited,
                      std::vector<Tensor>& all) {
    const std::vector<Tensor> before = std::move(all);
    all.assign(before.begin(), before.begin() + to.first);
    all.resize(size_t(to.places));
    for (size_t p = 0; p < visited.size(); p++) {
      const BackwardPiece &then = from.pieces[p], &now = to.pieces[p];
      for (size_t i = 0; i < now.gives.size(); i++) {
        const auto at = std::find(then.given_values.begin(), then.given_values.end(), now.given_values[i]);
        if (at == then.given_values.end()) return p;
        all[size_t(now.gives[i])] = before[size_t(then.gives[size_t(at - then.given_values.begin())])];
      }
      all[size_t(now.taken)] = visited[p];
    }
    return visited.size();
  }

  std::vector<Tensor> apply_joint(JointCall& call) override {
    BackwardRequest r = request(call);
    std::shared_ptr<const CompiledAutograd::Backward> before, found;
    std::vector<Tensor> visited, all;
    for (;; before = found) {
      found = stands_in ? code->traced_backward(r) : code->backward_for(r);
      if (!before) all = table(r, found->traced.places);
      const size_t carried = before ? carry(before->traced, found->traced, visited, all) : 0;
      Progress done{*this, found->traced, !call.retain_graph, carried};
      const bool complete = run_pieces(*found, call, r, visited, all, done);
      done.releases = false;
      if (!complete) continue;
      ran = found;
      call.order = found->traced.order;
      return gradients(r, found->traced, all);
    }
  }

  static std::vector<Tensor> gradients(const BackwardRequest& r, const TracedBackward& traced,
                                       const std::vector<Tensor>& all) {
    std::vector<Tensor> out;
    for (size_t i = 0; i < traced.gradients.size(); i++) {
      const int p = traced.gradients[i];
      out.push_back(p < 0 ? r.so_far[i] : all[size_t(p)]);
    }
    return out;
  }
};

// Asks for each symbolic size of a differentiable value whether it is 1, since a dim of size 1 has no definite stride.
// A backward asks this when its gradients come, in any layout. By then the segment's guards exist; asked now, the
// answer becomes one of them.
static void ask_for_ones(const Graph& g) {
  SymEnv& env = *g.env;
  for (const auto& n : g.nodes) {
    for (const Tensor& t : n->results) {
      if (!t || !t->requires_grad) continue;
      for (const SymInt& size : t->sizes) {
        if (!size.is_constant()) env.ask(SymCmp::kEq, size.expr, env.constant(1));
      }
    }
  }
}

std::shared_ptr<CompiledAutograd> CompiledAutograd::build(std::unique_ptr<Graph> traced,
                                                          const std::vector<Edge>& sources,
                                                          const CompileOptions& options) {
  auto self = std::make_shared<CompiledAutograd>();
  self->traced_.graph = std::move(traced);
  self->options_ = options;
  self->writes_ = WriteCounts::of(*self->traced_.graph);
  Graph& g = *self->traced_.graph;
  for (size_t i = 0; i < g.inputs.size(); i++) {
    if (g.inputs[i].constant) continue;
    const bool source = i < sources.size() && sources[i].node;
    self->input_history_.push_back(source ? int(self->sources_.size()) : -1);
    if (source) {
      self->traced_.sources.push_back(sources[i]);
      self->traced_.inputs.push_back(g.inputs[i].value);
      self->sources_.push_back(self->inputs_);
    }
    self->inputs_++;
  }
  for (size_t i = 0; i < g.outputs.size(); i++) {
    if (!g.outputs[i].is<Tensor>()) continue;
    const Tensor& y = g.outputs[i].tensor();
    if (!y->requires_grad || is_leaf(y)) continue;
    self->results_.push_back(i);
    self->traced_.results.push_back(y);
  }
  self->find_written();
  for (size_t i = g.inputs.size(); i < sources.size(); i++) self->add_made_leaf(sources[i]);
  // Marks the inputs as differentiable, as when they were used: the caller of backward may have changed that.
  for (const Tensor& t : self->traced_.inputs) t->requires_grad = true;
  // The set of saved values does not depend on the gradients' strides, so any strides will do to find it.
  find_saved(self->traced_);
  ask_for_ones(g);
  self->unbacked_ = unbacked_numbers(g);
  self->spendable_ = self->traced_.spendable.size();
  return self;
}

void CompiledAutograd::ready() {
  const AutocastOff off;  // casts are in the graph
  text_ = print(*traced_.graph);
  std::unique_ptr<Graph> forward = saving_graph();
  if (!traced_.saved.empty()) cut(forward);
  add_unbacked(*forward);
  find_read();
  number_saved();
  log_joint(*forward);
  forward_ = compile_graph(std::move(forward), options_);
  guarded_ = traced_.graph->env->guards().size();
}

KeptBytes CompiledAutograd::kept_bytes() const {
  const Partition& p = traced_.partition;
  if (traced_.primitives) return {p.all_bytes, p.saved_bytes, p.recomputed_bytes};
  return {p.all_bytes, p.all_bytes, 0};
}

std::vector<Value> CompiledAutograd::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                         const std::vector<Donor>& donors, std::vector<InputView>* views) {
  auto node = make_ref<CompiledNode>();
  node->leaves = leaves_.find(inputs, sources_, reads_);
  if (node->leaves->has_twice()) throw SharedSource();
  node->code = shared_from_this();
  node->leaves->hold(), node->memory.reset(node->leaves.get());
  node->lead_to(inputs, sources_);  // before a write gives an input another history
  const std::vector<uint32_t> before = writes_.before(inputs);
  node->drawn = default_generator();
  std::vector<Value> out = forward_.run(inputs, scalars, donors, views);
  node->scalars = scalars;
  for (size_t i = unbacked_.size(); i-- > 0; out.pop_back()) {
    node->scalars[size_t(unbacked_[i])] = out.back().as<Scalar>().to_double();
  }
  writes_.after(before, inputs, out);
  node->lead_to_made(out);
  node->keep(inputs, out, out.size() - traced_.kept());
  out.resize(out.size() - traced_.kept());
  for (size_t k = 0; k < results_.size(); k++)
    set_history(out[results_[k]].tensor(), Ref<GradNode>(node.get()), uint32_t(k));
  return out;
}

}  // namespace lutra
