// Makes the pieces of a backward for a request: records the engine's run on FakeTensors, then cuts it.
#include "jit/autograd/trace_backward.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "jit/autograd/eventual.h"
#include "jit/autograd/extract.h"
#include "jit/autograd/gradient_layout.h"
#include "ops/defs/each_tensor.h"
#include "ops/grad/saved_tensor.h"

namespace lutra {
namespace {

thread_local BranchReads* branch_reads = nullptr;

// Notes for each piece what the engine does.
struct Follower : TapeWatch {
  TracedForward& forward;
  const BackwardRequest& request;
  bool tolerant;
  bool unfinished = false;  // the node that was spent last threw an error
  const GradNode* last = nullptr;
  std::vector<const GradNode*> leaves;
  std::vector<BackwardPiece> pieces;
  std::unordered_set<const GradNode*> accumulated;  // nodes that got several gradients, or a sum
  std::unordered_set<const Storage*> reported;      // storages whose versions an error reports

  Follower(TracedForward& forward, const BackwardRequest& request, bool tolerant)
      : forward(forward), request(request), tolerant(tolerant) {
    pieces.emplace_back();
  }
  void refused(const Tensor& value) override { reported.insert(value->storage.get()); }
  void arrived(const GradNode* leaf) override { leaves.push_back(leaf); }
  void spent(const GradNode* node) override {
    last = node;
    const auto number = uint32_t(forward.spendable.size());
    pieces.back().spends.push_back(forward.spendable.emplace(node, number).first->second);
  }
  void read(const Tensor& value, const char* op) override { note({value, op, pieces.back().spends.size()}); }
  void note(BackwardRead read) {
    for (const BranchReads* b = branch_reads; b; b = b->above) read.branches.push_back({b->flag, b->holds, b->steps});
    pieces.back().reads.push_back(std::move(read));
  }
  void added(const GradNode* node) override { accumulated.insert(node); }
  bool skip(const GradNode* node, const Error& e) override {
    unfinished = node == last;
    return tolerant && e.kind == ErrorKind::kUser && !dynamic_cast<const NeedsData*>(&e);
  }
};

struct Cut {
  size_t node;  // the index of the first node of the traced graph after the cut
  Tensor given, taken;
};

// One run of the engine. Its destructor restores the traced graph.
struct Tracer {
  BranchReads* const branch = std::exchange(branch_reads, nullptr);  // the enclosing branch
  TracedForward& forward;
  const BackwardRequest& request;
  Graph& graph = *forward.graph;
  Rollback mark{graph};
  SymScope symbols{graph.env.get()};
  Follower follower;
  std::vector<Tensor> tangents, so_far, grads;  // by result, by source, by source
  std::vector<Cut> cuts;
  std::vector<GradNode*> hooked{};
  std::string error{};
  WrittenRead written{};

  Tracer(TracedForward& forward, const BackwardRequest& request, bool tolerant)
      : forward(forward), request(request), follower(forward, request, tolerant) {}
  ~Tracer() {
    for (size_t i = hooked.size(); i-- > 0;) hooked[i]->hooks.pop_back();
    branch_reads = branch;
  }

  Tensor input(const char* name, const Tensor& like, const Sizes& strides) {
    Tensor t = graph.add_input(name, like->sizes, strides, like->dtype, like->device());
    t->requires_grad = request.create_graph;
    return t;
  }
  Tensor input(const char* name, const Tensor& like, const Tensor& layout) {
    return input(name, like, request.exact ? layout->strides : strides_like(like->sizes, layout));
  }

  // Cuts the trace at a point: the gradient that its hooks return is a new input.
  Tensor cut(uint32_t point, const Tensor& given) {
    const Tensor& other = cuts.size() < request.taken.size() ? request.taken[cuts.size()] : Tensor();
    Tensor taken = other ? input("gradient", given, other) : input("gradient", given, given->strides);
    follower.pieces.back().point = int(point);
    follower.pieces.emplace_back();
    cuts.push_back({graph.nodes.size(), given, taken});
    return taken;
  }

  void run() {
    std::vector<Tensor> outputs, given;
    for (size_t k = 0; k < request.gradients.size(); k++) {
      tangents.emplace_back();
      if (!request.gradients[k]) continue;
      outputs.push_back(forward.results[k]);
      tangents[k] = input("gradient", outputs.back(), request.gradients[k]);
      given.push_back(tangents[k]);
    }
    std::vector<Edge> edges;
    for (size_t i = 0; i < forward.sources.size(); i++) {
      const Tensor& before = request.so_far[i];
      so_far.push_back(before ? input("gradient", forward.inputs[i], before) : Tensor());
      edges.push_back(request.wanted[i] ? forward.sources[i] : Edge{});
    }
    std::vector<Tensor> seeds = so_far;
    for (uint32_t k : request.points) {
      const Edge edge = gradient_edge(forward.results[k]);
      edge.node->hooks.emplace_back(edge.result, GradHook{[this, k](const Tensor& g) { return cut(k, g); }});
      hooked.push_back(edge.node.get());
    }
    for (uint32_t k : request.asked) edges.push_back(gradient_edge(forward.results[k]));
    seeds.resize(edges.size());
    GraphRecorder recorder(graph);
    ModeScope mode(&recorder);
    TapeWatchScope watch(&follower);
    try {
      grads = grad_at(outputs, edges, given, seeds, request.create_graph);
    } catch (const Error& e) {
      if (e.kind != ErrorKind::kUser || dynamic_cast<const NeedsData*>(&e)) throw;
      error = e.what();
      const auto* modified = dynamic_cast<const ModifiedError*>(&e);
      if (modified && modified->value->is_fake()) written = {modified->value, modified->op, modified->writes};
    }
    grads.resize(forward.sources.size());
  }
};

// Returns the views whose memory the forward does not write after it has made them.
std::unordered_set<const TensorImpl*> lasting_views(const Tracer& t) {
  std::unordered_set<const Storage*> written;
  std::unordered_set<const TensorImpl*> lasting;
  for (size_t i = t.mark.nodes; i-- > 0;) {
    const Node& n = *t.graph.nodes[i];
    if (n.inplace) written.insert(n.args[0].tensor()->storage.get());
    for (const Tensor& v : n.results) {
      if (!n.inplace && !written.count(v->storage.get())) lasting.insert(v.get());
    }
  }
  return lasting;
}

// Returns the values of the forward that the recorded nodes read, except views, inputs and the recorded nodes' own
// results. A view that is a result, or a leaf that the forward makes, counts as a value: gradients of gradients pass
// through it.
std::vector<Tensor> read_of_forward(const Tracer& t, std::vector<Tensor>& views) {
  std::vector<Tensor> saved;
  const std::unordered_set<const TensorImpl*> lasting = lasting_views(t);
  std::unordered_set<const TensorImpl*> known, results;
  for (const Tensor& y : t.forward.results) results.insert(y.get());
  for (const Tensor& y : t.forward.inputs) results.insert(y.get());
  for (const GraphInput& in : t.graph.inputs) known.insert(in.value.get());
  std::function<void(const Tensor&)> save = [&](const Tensor& v) {
    if (!known.insert(v.get()).second) return;
    if (!Extractor::is_view(v) || results.count(v.get())) return saved.push_back(v);
    each_tensor(v->node->args, save);
    if (v->requires_grad && lasting.count(v.get())) views.push_back(v);
  };
  for (size_t i = t.mark.nodes; i < t.graph.nodes.size(); i++) {
    each_tensor(t.graph.nodes[i]->args, save);
    for (const Tensor& v : t.graph.nodes[i]->results) known.insert(v.get());
  }
  for (const Tensor& g : t.grads) {
    if (g) save(g);
  }
  return saved;
}

// Returns, by input of a run, true if a recorded node reads the input's memory, or an error may depend on it.
std::vector<bool> inputs_that_are_read(const Tracer& t) {
  std::unordered_set<const Storage*> read = t.follower.reported;
  const auto note = [&](const Tensor& v) {
    if (v) read.insert(v->storage.get());
  };
  for (size_t i = t.mark.nodes; i < t.graph.nodes.size(); i++) each_tensor(t.graph.nodes[i]->args, note);
  for (const Tensor& g : t.grads) note(g);
  for (const BackwardPiece& piece : t.follower.pieces) {
    for (const BackwardRead& r : piece.reads) {
      note(r.value);
      for (const TakenBranch& b : r.branches) note(b.flag), note(b.steps);
    }
  }
  std::vector<bool> by_input;
  for (size_t i = 0; i < t.mark.inputs; i++) {
    const GraphInput& in = t.graph.inputs[i];
    if (!in.constant) by_input.push_back(read.count(in.value->storage.get()) > 0);
  }
  return by_input;
}

// Builds the pieces from a tracer's run.
struct Assembler {
  const Tracer& t;
  TracedBackward out{};
  size_t real_inputs = 0;
  std::unordered_map<const TensorImpl*, int> place{};
  std::unordered_map<const TensorImpl*, size_t> made_in{};  // the piece that makes a value
  std::unordered_map<const TensorImpl*, size_t> made_by{};  // the node that makes a value
  std::vector<std::vector<Tensor>> takes{}, gives{};        // by piece

  std::unordered_map<const Storage*, int> kept{};             // places of the storages whose versions are checked
  std::unordered_map<int, std::vector<Tensor>> known_as{};    // by place: the values that are kept there
  std::unordered_map<const TensorImpl*, Tensor> again{};      // values that pieces recompute
  std::vector<std::vector<Tensor>> inputs_read{};             // by piece: inputs of the primitives that recomputation
                                                              // reads
  std::vector<std::unordered_set<const TensorImpl*>> seen{};  // by piece: the values that need() has visited

  int new_place(const Tensor& v) { return place[v.get()] = out.places++; }
  size_t begin(size_t piece) const { return piece ? t.cuts[piece - 1].node : t.mark.nodes; }
  size_t end(size_t piece) const { return piece < t.cuts.size() ? t.cuts[piece].node : t.graph.nodes.size(); }

  void places() {
    for (size_t i = 0; i < t.mark.inputs; i++) {
      if (!t.graph.inputs[i].constant) new_place(t.graph.inputs[i].value);
    }
    real_inputs = size_t(out.places);
    kept_places();
    for (const Tensor& v : t.forward.views) {
      if (t.request.create_graph) known_as[new_place(v)].push_back(v);
    }
    for (const Tensor& v : t.tangents) {
      if (v) new_place(v);
    }
    for (const Tensor& v : t.so_far) {
      if (v) new_place(v);
    }
    out.first = out.places;
    for (const Cut& c : t.cuts) new_place(c.taken);
    for (size_t p = 0; p <= t.cuts.size(); p++) {
      for (size_t i = begin(p); i < end(p); i++) {
        if (t.graph.nodes[i]->inplace) continue;
        for (const Tensor& v : t.graph.nodes[i]->results) made_in[v.get()] = p, made_by[v.get()] = i - t.mark.nodes;
      }
    }
  }

  void kept_places() {
    const TracedForward& f = t.forward;
    const int first = out.places;
    out.places += int(f.kept());
    const auto known = [&](const Tensor& v, int at) { place[v.get()] = at, known_as[at].push_back(v); };
    for (size_t i = 0; i < f.saved.size(); i++) {
      if (f.kept_place(i) >= 0) known(f.saved[i], first + f.kept_place(i));
    }
    for (const auto& [v, at] : place) kept[v->storage.get()] = at;
    if (!f.primitives) return;
    for (size_t k = 0; k < f.kept(); k++) {
      if (!f.partition.kept[k].pinned) known(f.partition.kept[k].value, first + int(k));
    }
    for (size_t i : f.partition.inputs) {
      const Tensor& in = f.primitives->inputs[i].value;
      place[in.get()] = place.at(t.graph.inputs[i].value.get());
      known_as[place[in.get()]].push_back(in);
    }
    for (size_t i = 0; i < f.saved.size(); i++) {
      if (f.kept_place(i) >= 0) continue;
      if (t.request.create_graph) {
        new_place(f.saved[i]);
      } else {
        again[f.saved[i].get()] = f.as_primitives[i];
      }
    }
  }

  int give(const Tensor& v, size_t piece) {
    gives[piece].push_back(v);
    out.pieces[piece].gives.push_back(new_place(v));
    const auto by = made_by.find(v.get());
    out.pieces[piece].given_values.push_back(by == made_by.end() ? GivenValue{v.get(), 0, 0}
                                                                 : GivenValue{nullptr, by->second, v->result});
    return out.pieces[piece].gives.back();
  }

  // Notes that a piece reads v.
  void need(const Tensor& v, size_t piece) {
    auto at = place.find(v.get());
    auto made = made_in.find(v.get());
    if (made != made_in.end() && made->second == piece) return;
    if (at == place.end() && made == made_in.end()) {  // a view of the forward, or a constant
      if (!seen[piece].insert(v.get()).second) return;
      if (auto primitive = again.find(v.get()); primitive != again.end()) return need(primitive->second, piece);
      if (!v->node->is_input()) each_tensor(v->node->args, [&](const Tensor& base) { need(base, piece); });
      return;
    }
    const int p = at == place.end() ? give(v, made->second) : at->second;
    std::vector<int>& list = out.pieces[piece].takes;
    if (size_t(p) < real_inputs) out.pieces[piece].uses[size_t(p)] = true;
    if (size_t(p) < real_inputs && !made_in.count(v.get())) note_input(v, p, piece);
    if (size_t(p) < real_inputs || std::count(list.begin(), list.end(), p)) return;
    list.push_back(p);
    takes[piece].push_back(v);
  }

  void note_input(const Tensor& v, int p, size_t piece) {
    const auto known = known_as.find(p);
    if (known != known_as.end() && known->second[0].same(v)) inputs_read[piece].push_back(v);
  }

  // Returns the place of a value that is needed after a piece.
  int place_of(const Tensor& v, size_t piece) {
    auto at = place.find(v.get());
    if (at != place.end()) return at->second;
    auto made = made_in.find(v.get());
    if (made != made_in.end()) return give(v, made->second);
    need(v, piece);
    return give(v, piece);
  }

  void build(size_t p) {
    BackwardPiece& piece = out.pieces[p];
    if (piece.gives.empty()) return;
    piece.graph = std::make_unique<Graph>();
    Extractor make{*piece.graph, t.request.create_graph, again};
    make.inputs_of(t.graph, t.mark.inputs);
    for (const Tensor& v : inputs_read[p]) make.map[v.get()] = piece.graph->inputs[input_at(place.at(v.get()))].value;
    for (size_t i = 0; i < takes[p].size(); i++) {
      const auto known = known_as.find(piece.takes[i]);
      const Tensor made = make.input(known == known_as.end() ? "gradient" : "saved", takes[p][i]);
      if (known == known_as.end()) continue;
      for (const Tensor& v : known->second) make.map[v.get()] = made;
    }
    for (size_t i = begin(p); i < end(p); i++) make.node(*t.graph.nodes[i]);
    for (const Tensor& v : gives[p]) {
      const Tensor made = make.value(v);
      if (is_plain_view(v)) make_plain_view(made);
      piece.graph->outputs.emplace_back(made);
    }
    piece.draws = make.draws;
    if (make.draws) piece.graph->rng_calls = t.forward.primitives->rng_calls;
  }

  // Returns the index of the traced input that has a place.
  size_t input_at(int p) const {
    size_t i = 0;
    while (t.graph.inputs[i].constant || place.at(t.graph.inputs[i].value.get()) != p) i++;
    return i;
  }

  // Adds reads of the inputs that recomputation uses, so that writes to them are refused.
  void check_inputs(BackwardPiece& piece, size_t p) const {
    for (const Tensor& v : inputs_read[p]) {
      const int at = place.at(v.get());
      piece.reads.push_back({v, "recomputation", std::max<size_t>(piece.spends.size(), 1), at});
    }
  }

  // Keeps the first reader of each value that others may write, and the first one for each set of branches before it.
  // Does the same, separately, for values that the forward has written since: a reader of the written value is not a
  // reader of the old one.
  std::vector<BackwardRead> reads_of(const BackwardPiece& followed) const {
    std::vector<BackwardRead> reads;
    using Branches = std::vector<std::pair<const TensorImpl*, bool>>;
    std::set<std::pair<const Storage*, Branches>> of_run, of_written;
    for (BackwardRead read : followed.reads) {
      const Storage* const storage = read.value->storage.get();
      const auto at = kept.find(storage);
      if (at == kept.end() && !read.writes) continue;
      std::erase_if(read.branches, [&](TakenBranch& b) { return !find_flag(b); });
      Branches branches;
      for (const TakenBranch& b : read.branches) branches.emplace_back(b.flag.get(), b.holds);
      auto& seen = read.writes ? of_written : of_run;
      if (seen.count({storage, {}}) || !seen.insert({storage, branches}).second) continue;
      if (at != kept.end()) read.place = at->second;
      reads.push_back(read);
    }
    return reads;
  }
  // Finds the flag of a branch in a run: among its inputs and kept values, or among the recomputed values. Returns
  // false if the run does not have it, so it cannot tell whether the branch was taken.
  bool find_flag(TakenBranch& branch) const {
    const auto place_in_run = [&](const Tensor& t) {
      const auto at = place.find(t.get());
      return at != place.end() && size_t(at->second) < real_inputs + this->t.forward.kept() ? at->second : -1;
    };
    branch.place = place_in_run(branch.flag);
    if (branch.steps && (branch.steps_place = place_in_run(branch.steps)) < 0) return false;
    int repeated = 0;
    for (size_t i = 0; branch.place < 0 && i < t.forward.saved.size(); i++) {
      if (t.forward.kept_place(i) >= 0) continue;
      if (t.forward.saved[i].same(branch.flag)) branch.repeated = repeated;
      repeated++;
    }
    return branch.place >= 0 || branch.repeated >= 0;
  }

  TracedBackward run() {
    const size_t last = t.cuts.size();
    out.error = t.error, out.written = t.written;
    out.unfinished = t.follower.unfinished;
    places();
    out.pieces.resize(last + 1);
    takes.resize(last + 1), gives.resize(last + 1), inputs_read.resize(last + 1), seen.resize(last + 1);
    for (size_t p = 0; p <= last; p++) {
      BackwardPiece& piece = out.pieces[p];
      const BackwardPiece& followed = t.follower.pieces[p];
      piece.uses.resize(real_inputs);
      piece.reads = reads_of(followed), piece.spends = followed.spends, piece.point = followed.point;
      for (size_t i = begin(p); i < end(p); i++) {
        each_tensor(t.graph.nodes[i]->args, [&](const Tensor& v) { need(v, p); });
      }
      if (p == last) continue;
      piece.given = place_of(t.cuts[p].given, p);
      piece.taken = place.at(t.cuts[p].taken.get());
    }
    for (const Tensor& g : t.grads) out.gradients.push_back(g ? place_of(g, last) : -1);
    for (const GradNode* leaf : t.follower.leaves) {
      for (size_t i = 0; i < t.forward.sources.size(); i++) {
        if (t.forward.sources[i].node.get() == leaf) out.order.push_back(i);
      }
    }
    GradModeScope no_grad(false);
    for (size_t p = 0; p <= last; p++) build(p), check_inputs(out.pieces[p], p);
    return std::move(out);
  }
};

}  // namespace

BranchReads::BranchReads(const Tensor& flag, bool holds, const Tensor& steps)
    : flag(flag), steps(steps), holds(holds), above(std::exchange(branch_reads, this)) {}
BranchReads::~BranchReads() { branch_reads = above; }

bool read_by_branch(const WrittenRead& written) {
  auto* const follower = dynamic_cast<Follower*>(tape_watch());
  if (!follower || !branch_reads) return false;
  BackwardRead read{written.value, written.op, follower->pieces.back().spends.size()};
  read.writes = written.writes;
  follower->note(std::move(read));
  return true;
}

std::string BackwardRequest::key() const {
  std::string key = create_graph ? "again " : "";
  for (const Tensor& g : gradients) key += g ? layout_of(g) : "-";
  for (size_t i = 0; i < wanted.size(); i++) {
    if (!wanted[i]) key += str(" no ", i);
    if (so_far[i]) key += str(" more ", i, layout_of(so_far[i]));
  }
  for (uint32_t k : points) key += str(" at ", k);
  for (uint32_t k : asked) key += str(" for ", k);
  for (size_t p = 0; p < taken.size(); p++) {
    if (taken[p]) key += str(" as ", p, layout_of(taken[p]));
  }
  return key;
}

TracedBackward trace_backward(TracedForward& forward, const BackwardRequest& request) {
  Tracer tracer(forward, request, false);
  tracer.run();
  return Assembler{tracer}.run();
}

ResultReach reach_of(const TracedForward& forward, uint32_t result) {
  const std::unordered_set<const GradNode*> history = nodes_behind(forward.results[result]);
  ResultReach reach;
  for (size_t i = 0; i < forward.sources.size(); i++) {
    if (history.count(forward.sources[i].node.get())) reach.sources.push_back(i);
  }
  for (uint32_t k = 0; k < forward.results.size(); k++) {
    const Tensor& y = forward.results[k];
    if (k != result && y->requires_grad && history.count(gradient_edge(y).node.get())) reach.results.push_back(k);
  }
  return reach;
}

std::unique_ptr<Graph> repeated_values(const TracedForward& forward) {
  auto graph = std::make_unique<Graph>();
  SymScope symbols(forward.graph->env.get());
  GradModeScope no_grad(false);
  Extractor make{*graph};
  make.inputs_of(*forward.graph, forward.graph->inputs.size());
  for (size_t i : forward.partition.inputs) {
    make.map[forward.primitives->inputs[i].value.get()] = graph->inputs[i].value;
  }
  for (const KeptValue& k : forward.partition.kept) {
    const Tensor in = graph->add_input("saved", k.value->sizes, k.value->strides, k.value->dtype, k.value->device());
    if (!k.pinned) make.map[k.value.get()] = in;
  }
  for (size_t i = 0; i < forward.saved.size(); i++) {
    if (forward.kept_place(i) < 0) graph->outputs.push_back(make.repeated(forward.as_primitives[i]));
  }
  graph->rng_calls = forward.primitives->rng_calls;
  return graph;
}

std::unique_ptr<Graph> view_values(const TracedForward& forward) {
  auto graph = std::make_unique<Graph>();
  SymScope symbols(forward.graph->env.get());
  GradModeScope no_grad(false);
  Extractor make{*graph};
  make.inputs_of(*forward.graph, forward.graph->inputs.size());
  for (const Tensor& v : forward.saved) make.input("saved", v);
  for (const Tensor& v : forward.views) graph->outputs.push_back(make.value(v));
  return graph;
}

// With create_graph, saved values take gradients, too. A node of several results may read more values for a gradient
// that it did not have before. So this repeats until nothing is added.
void find_saved(TracedForward& forward) {
  const std::vector<Tensor> results = forward.results;
  std::unordered_set<const TensorImpl*> known;
  for (bool first = true, more = true; more; first = false) {
    BackwardRequest all;
    all.gradients = forward.results;
    all.wanted.assign(forward.sources.size(), true);
    all.so_far.resize(forward.sources.size());
    Tracer tracer(forward, all, true);
    tracer.run();
    const std::vector<Tensor> asked = std::exchange(forward.results, results);
    forward.views.clear();
    forward.saved = read_of_forward(tracer, forward.views);
    forward.reads = inputs_that_are_read(tracer);
    forward.reported.insert(tracer.follower.reported.begin(), tracer.follower.reported.end());
    const std::unordered_set<const GradNode*>& accumulated = tracer.follower.accumulated;
    for (size_t i = 0; first && i < forward.sources.size(); i++) {
      forward.accumulates.push_back(accumulated.count(forward.sources[i].node.get()) > 0);
    }
    more = false;
    for (const Tensor& y : asked) known.insert(y.get());
    forward.results = asked;
    for (const std::vector<Tensor>* list : {&forward.saved, &forward.views}) {
      for (const Tensor& v : *list) {
        if (!v->requires_grad || !gradient_edge(v).node || !known.insert(v.get()).second) continue;
        forward.results.push_back(v);
        more = more || v->node->results.size() > 1 || !accumulated.count(gradient_edge(v).node.get());
      }
    }
  }
  forward.results = results;
}

}  // namespace lutra
