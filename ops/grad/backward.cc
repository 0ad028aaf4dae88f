// Runs backward from roots and their gradients. Accumulates gradients of leaves, or returns chosen ones.
// Invariants:
// 1. A node's inputs were numbered before it. The highest number runs first, so all gradients of a node have come when
//    it runs.
// 2. Leaves come last, in the order they were reached. A leaf's contributions are summed before they go into .grad.
// 3. The gradient of a part (x[i], a piece of a split) has zeros elsewhere. If the engine owns the sum, it adds only
//    the part in place, to the same bits: x + 0 is x, except that -0 becomes 0.
#include "ops/grad/engine.h"

#include <algorithm>

#include "ops/core/interrupt.h"
#include "ops/core/overlap.h"
#include "ops/decompose/emit.h"
#include "ops/defs/autocast.h"
#include "ops/defs/modes.h"
#include "ops/grad/saved_tensor.h"
#include "ops/meta/rules.h"

namespace lutra {

void Engine::send(const Edge& edge, const Tensor& g, Sum sum) {
  if (!edge.node || !g) return;
  Pending* p = nullptr;
  if (leaf_of(edge.node.get())) {
    const auto [at, fresh] = leaf_at_.emplace(edge.node.get(), leaves_.size());
    p = fresh ? &leaves_.emplace_back() : &leaves_[at->second];
    if (fresh && tape_watch()) tape_watch()->arrived(edge.node.get());
  } else {
    p = &nodes_[edge.node->seq];
  }
  p->node = edge.node;
  if (p->grads.size() <= edge.result) p->grads.resize(edge.result + 1), p->sums.resize(edge.result + 1);
  Tensor& slot = p->grads[edge.result];
  if (slot && tape_watch()) tape_watch()->added(edge.node.get());
  slot = slot ? add(slot, g) : g;
  p->sums[edge.result] = std::move(sum);
}

// Adds the gradient of a part to the sum of the whole. Returns false if there is no sum yet that may be written.
bool Engine::add_part(GradNode& node, const Tensor& g) {
  Pending* p = !node.is_part() || g->is_fake() ? nullptr : pending(node.next[0]);
  if (!p || !p->sums[node.next[0].result].own) return false;
  Tensor& whole = p->grads[node.next[0].result];
  Sum& sum = p->sums[node.next[0].result];
  Tensor part = node.part_of(whole);
  if (!sum.last) {
    call_inplace(OpId::add, {part, g});
    return true;
  }
  Tensor value = add(part, g), before = sum.last->part_of(whole);
  call_inplace(OpId::add, {before, Scalar(0.0)});
  call_inplace(OpId::copy_, {part, value});
  sum.last = overlap(part, before) == Overlap::kNone ? nullptr : Ref<GradNode>(&node);
  return true;
}

// Returns the entry of an edge that gradients have been sent to; null if there is none.
Pending* Engine::pending(const Edge& edge) {
  Pending* p = nullptr;
  auto leaf = leaf_at_.find(edge.node.get());
  if (leaf != leaf_at_.end()) p = &leaves_[leaf->second];
  auto node = nodes_.find(edge.node->seq);
  if (node != nodes_.end() && node->second.node == edge.node) p = &node->second;
  return p && p->grads.size() > edge.result && p->grads[edge.result] ? p : nullptr;
}

// Goes through the nodes by ascending number. A node is needed if one of its next is.
void Engine::mark_needed() {
  std::map<uint64_t, GradNode*> all;
  std::vector<GradNode*> stack;
  std::unordered_map<const GradNode*, std::set<uint32_t>> results;  // of joint nodes: results that an edge leads to
  for (auto& [seq, p] : nodes_) {
    stack.push_back(p.node.get());
    for (size_t k = 0; p.node->joint && k < p.grads.size(); k++) results[p.node.get()].insert(uint32_t(k));
  }
  std::vector<const GradNode*> wanted;
  for (const Target& t : targets_) {
    if (needed_.insert(t.edge.node.get()).second) wanted.push_back(t.edge.node.get());
    if (t.edge.node->joint) needed_results_.emplace(t.edge.node.get(), t.edge.result);
  }
  std::unordered_set<const GradNode*> seen;
  while (!stack.empty()) {
    GradNode* node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    node->met(wanted);
    all[node->seq] = node;
    for (const Edge& e : node->next) {
      if (!e.node) continue;
      stack.push_back(e.node.get());
      if (e.node->joint) results[e.node.get()].insert(e.result);
    }
  }
  for (auto& [seq, node] : all) {
    if (node->joint ? is_joint_needed(*node, results[node])
                    : std::any_of(node->next.begin(), node->next.end(), [&](const Edge& e) { return is_wanted(e); })) {
      needed_.insert(node);
    }
  }
}

bool Engine::is_joint_needed(GradNode& node, const std::set<uint32_t>& results) {
  std::vector<uint32_t> needed;
  for (uint32_t k : results) {
    if (node.leads(k, [this](const Edge& e) { return is_wanted(e); })) needed.push_back(k);
  }
  for (uint32_t k : needed) needed_results_.emplace(&node, k);
  return !needed.empty();
}

bool Engine::is_wanted(const Edge& edge) const {
  if (!edge.node || !collecting_) return bool(edge.node);
  if (edge.node->joint) return needed_results_.count({edge.node.get(), edge.result}) > 0;
  return needed_.count(edge.node.get()) > 0;
}

namespace {

// The hooks at the moment a gradient's turn comes. As in PyTorch all of them run, including those that another one of
// them removes. Hooks that they register wait for the next backward.
class HooksInTurn {
 public:
  HooksInTurn() = default;
  HooksInTurn(const HooksInTurn&) = delete;
  ~HooksInTurn() { tell(false); }
  void take(uint32_t result, const GradHook& hook) {
    if (*hook.live) hooks_.emplace_back(result, hook);
  }
  const std::vector<std::pair<uint32_t, GradHook>>& begin() {
    tell(true);
    return hooks_;
  }

 private:
  void tell(bool begins) {
    for (const auto& [result, hook] : hooks_) {
      if (hook.keeper) hook.keeper->take_turn(begins);
    }
  }
  std::vector<std::pair<uint32_t, GradHook>> hooks_;
};

}  // namespace

// Runs a hook. Returns the gradient to go on with.
Tensor Engine::hooked(const GradHook& hook, const Tensor& gradient) {
  const Tensor given = rehearsal_ ? rehearsal_->run_hook(hook, gradient) : hook.run(gradient);
  seen_by_lua(gradient), seen_by_lua(given);
  if (!given) return gradient;
  if (!same_sizes(given->sizes, gradient->sizes)) {
    fail("register_hook: a hook of a gradient of shape ", to_string(gradient->sizes), " gave one of shape ",
         to_string(given->sizes));
  }
  return given;
}

void Engine::run_hooks(const GradNode& node, std::vector<Tensor>& grads) {
  HooksInTurn hooks;
  for (const auto& [result, hook] : node.hooks) {
    if (result < grads.size() && grads[result]) hooks.take(result, hook);
  }
  for (const auto& [result, hook] : hooks.begin()) grads[result] = hooked(hook, grads[result]);
  for (size_t i = 0; i < node.retained.size(); i++) {
    const Retained& r = node.retained[i];
    AutogradMeta* meta = *r.meta;
    if (!meta || r.result >= grads.size() || !grads[r.result]) continue;
    Tensor& grad = rehearsal_ ? rehearsal_->retained_gradient(node, i) : meta->grad;
    grad = grad ? add(grad, grads[r.result]) : op1(OpId::clone, {grads[r.result], std::string("preserve_format")});
  }
}

void Engine::take_targets(const GradNode* node, const std::vector<Tensor>& grads) {
  for (const Target& t : targets_) {
    if (t.edge.node.get() != node || t.edge.result >= grads.size()) continue;
    if (grads[t.edge.result]) results[t.index] = grads[t.edge.result];  // a joint node's come one by one
  }
}

// Returns whether a clone of g would have g's strides. Those of dimensions of one element may differ.
bool has_clone_strides(const Tensor& g) {
  return same_exprs(info(OpId::clone).meta(OpId::clone, {g, std::string("preserve_format")})[0].strides, g->strides);
}

// Returns whether g is a view without history of a whole base that has no other holder.
bool holds_base_alone(const Tensor& g) {
  return g->base && !g->view && g->base->refs.load() == 1 && g->storage->refs.load() == 2 &&
         g->base->numel().hint == g->numel().hint && has_clone_strides(g);
}

// Returns whether a hook of a later leaf may see the memory of g, a FakeTensor. Real memory has reference counts.
bool Engine::seen_later(const Tensor& g) const {
  if (!leaf_hooks_) return false;
  return std::any_of(leaves_.begin() + std::ptrdiff_t(leaves_done_), leaves_.end(),
                     [&](const Pending& p) { return p.grads[0] && p.grads[0]->storage == g->storage; });
}

// Returns g, or a copy, for .grad: it must belong to that leaf alone and have the leaf's layout.
Tensor Engine::owned(const Tensor& leaf, Tensor g) {
  const bool viewed = !g->is_fake() && holds_base_alone(g);
  const bool plain = create_ || !g->requires_grad;  // a function's gradient may be a tensor that it saved
  bool alone = plain && g->refs.load() == 1 && (viewed || g->storage->refs.load() == 1);
  if (g->is_fake()) {
    alone = plain && !seen_later(g) && given_.insert(g->storage.get()).second && (!g->base || has_clone_strides(g));
  }
  bool laid = g->is_contiguous() || (!leaf->is_contiguous() && is_dense(g->sizes, g->strides));
  if (alone && laid) {
    if (viewed) g->base = {};
    return g;
  }
  return op1(OpId::clone, {g, std::string(laid ? "preserve_format" : "contiguous_format")});
}

void Engine::accumulate(const Tensor& leaf, Tensor& grad, Tensor g) {
  if (!grad) {
    grad = owned(leaf, std::move(g));
  } else if (create_) {
    grad = add(grad, g);
  } else {
    call_inplace(OpId::add, {grad, g});
  }
}

void Engine::accumulate(const Tensor& leaf, Tensor g) {
  accumulate(leaf, autograd_meta(leaf).grad, std::move(g));
  run_post_accumulate_hooks(leaf);
}

// Returns the results of a joint node that have hooks, are retained or are targets.
std::vector<uint32_t> Engine::points(const GradNode& node) const {
  std::set<uint32_t> all;
  for (auto& [result, hook] : node.hooks) {
    if (*hook.live) all.insert(result);
  }
  for (const Retained& r : node.retained) {
    if (*r.meta) all.insert(r.result);
  }
  for (uint32_t result : asked(node)) all.insert(result);
  return {all.begin(), all.end()};
}

std::vector<uint32_t> Engine::asked(const GradNode& node) const {
  std::set<uint32_t> all;
  for (const Target& t : targets_) {
    if (t.edge.node.get() == &node) all.insert(t.edge.result);
  }
  return {all.begin(), all.end()};
}

Tensor Engine::visit(const GradNode& node, uint32_t result, Tensor g) {
  std::vector<Tensor> grads(result + 1);
  grads[result] = std::move(g);
  run_hooks(node, grads);
  take_targets(&node, grads);
  return grads[result];
}

// Runs the hooks of a single root as PyTorch does, even if its gradient goes nowhere. Returns true if that is all.
bool Engine::run_lone_root() {
  if (!collecting_ || nodes_.size() + leaves_.size() != 1 || roots_ != 1) return false;
  Pending& p = nodes_.empty() ? leaves_[0] : nodes_.begin()->second;
  if (is_wanted({p.node, uint32_t(p.grads.size() - 1)})) return false;
  GradModeScope mode(create_);
  const Tensor leaf = leaf_of(p.node.get());
  leaf ? run_leaf_hooks(leaf, p.grads[0]) : run_hooks(*p.node, p.grads);
  return true;
}

// Returns whether a node's gradients are needed: an input of it wants one, or a result of a joint node that other
// results of it depend on.
bool Engine::runs(const Pending& p) const {
  const auto wanted = [this](const Edge& e) { return is_wanted(e); };
  bool given = false;
  for (size_t k = 0; k < p.grads.size(); k++) {
    if (!p.grads[k]) continue;
    given = true;
    if (collecting_ && p.node->joint && p.node->leads(uint32_t(k), wanted)) return true;
  }
  if (!given || !collecting_) return given;
  return !p.node->joint && std::any_of(p.node->next.begin(), p.node->next.end(), wanted);
}

void Engine::send_on(GradNode& node, std::vector<Tensor>& out, const std::vector<size_t>& order) {
  const Sum sum = create_ || !node.is_part() ? Sum() : Sum{true, Ref<GradNode>(&node)};
  for (size_t i : order) send(node.next[i], std::exchange(out[i], Tensor()), sum);
  for (size_t i = 0; i < out.size(); i++) send(node.next[i], std::exchange(out[i], Tensor()), sum);
}

void Engine::apply(Pending& p) {
  try {
    const Ref<GradNode> runner = rehearsal_ ? rehearsal_->stand_in(*p.node) : p.node;
    std::vector<Tensor> out;
    std::vector<size_t> order;
    if (p.node->joint) {
      JointCall call{p.grads,
                     retain_,
                     create_,
                     points(*p.node),
                     asked(*p.node),
                     [&](uint32_t result, const Tensor& g) { return visit(*p.node, result, g); },
                     [this](const Edge& e) { return is_wanted(e); },
                     {},
                     [this](const Edge& e) {
                       if (tape_watch()) tape_watch()->added(e.node.get());
                       Pending* at = pending(e);
                       return at ? &at->grads[e.result] : nullptr;
                     }};
      out = runner->apply_joint(call);
      order = std::move(call.order);
    } else {
      if (add_part(*p.node, p.grads[0])) return;
      p.grads.resize(std::max<size_t>(p.grads.size(), 2));  // a rule may ask for any of its results
      out = runner->apply(p.grads, create_);
    }
    if (p.node->calls_lua()) seen_by_lua(p.grads), seen_by_lua(out);
    p.grads.clear();
    if (rehearsal_) ran.push_back(p.node.get());
    if (!retain_) p.node->release();
    send_on(*p.node, out, order);
  } catch (const Error& e) {
    if (!tape_watch() || !tape_watch()->skip(p.node.get(), e)) throw;
  }
}

void Engine::run_node() {
  check_stop();
  Pending p = std::move(nodes_.begin()->second);
  nodes_.erase(nodes_.begin());
  if (collecting_ && !needed_.count(p.node.get())) return;
  for (size_t k = 0; p.node->joint && k < p.grads.size(); k++) {
    if (!is_wanted({p.node, uint32_t(k)})) p.grads[k] = Tensor();
  }
  const bool joint = p.node->joint && runs(p);
  if (!joint) {
    run_hooks(*p.node, p.grads);
    take_targets(p.node.get(), p.grads);
    if (!runs(p)) return;
  }
  apply(p);
}

void Engine::run_leaf_hooks(const Tensor& leaf, Tensor& grad) {
  HooksInTurn hooks;
  for (const GradHook& hook : autograd_meta(leaf).hooks) {
    if (!hook.post_accumulate) hooks.take(0, hook);
  }
  for (const auto& [result, hook] : hooks.begin()) grad = hooked(hook, grad);
}

void Engine::run_post_accumulate_hooks(const Tensor& leaf) {
  HooksInTurn hooks;
  for (const GradHook& hook : autograd_meta(leaf).hooks) {
    if (hook.post_accumulate) hooks.take(0, hook);
  }
  for (const auto& [result, hook] : hooks.begin()) hook.run(leaf);
}

void Engine::run_leaf() {
  Pending& p = leaves_[leaves_done_++];
  if (!is_wanted({p.node, 0})) return;
  Tensor leaf = leaf_of(p.node.get());
  run_leaf_hooks(leaf, p.grads[0]);
  if (collecting_) take_targets(p.node.get(), p.grads);
  if (collecting_ || !leaf->requires_grad) return;
  if (rehearsal_) return accumulate(leaf, rehearsal_->gradient_of(*p.node), std::move(p.grads[0]));
  accumulate(leaf, std::move(p.grads[0]));
}

void Engine::run_above(uint64_t stop) {
  while (!nodes_.empty() && nodes_.begin()->first > stop) run_node();
  if (!nodes_.empty() || stop > 0) return;
  const size_t end = rehearsal_ ? first_to_wait() : leaves_.size();
  leaf_hooks_ = leaves_done_ < end && leaves_[leaves_done_].grads[0]->is_fake() &&
                std::any_of(leaves_.begin() + std::ptrdiff_t(leaves_done_), leaves_.end(),
                            [](const Pending& p) { return has_hooks(leaf_of(p.node.get())); });
  while (leaves_done_ < end) run_leaf();
}

// Finds the leaf that a rehearsal ends before. Its gradient and later ones must not become another leaf's.
size_t Engine::first_to_wait() {
  size_t first = leaves_done_;
  while (first < leaves_.size() && !rehearsal_->stops_at(*leaves_[first].node)) first++;
  for (size_t i = first; i < leaves_.size(); i++) {
    for (const Tensor& g : leaves_[i].grads) {
      if (g) keep_apart(g);
    }
  }
  return first;
}

// Returns the object that runs parts of this backward, or null.
BackwardParts* Engine::parts() const {
  BackwardParts* parts = modes().backward_parts;
  if (!parts || current_mode() || tape_watch() || !parts->is_on()) return nullptr;
  const char* why = create_ ? "create_graph=true" : modes().watch ? "a backward in a checkpoint" : nullptr;
  if (why) parts->refuse(why);
  return why ? nullptr : parts;
}

void Engine::run() {
  const AutocastDisabled off;
  GradModeScope mode(create_);
  BackwardParts* by_parts = parts();
  while (by_parts && !nodes_.empty()) {
    uint64_t stop = 0;
    if (!by_parts->run(*this, stop)) run_above(stop);
  }
  run_above(0);
}

Engine Engine::rehearsed(Rehearsal& rehearsal, const std::function<Tensor(const Tensor&)>& fake) const {
  Engine other = *this;
  other.retain_ = true;
  other.rehearsal_ = &rehearsal;
  const auto replace = [&](Pending& p) {
    p.sums.assign(p.grads.size(), Sum());
    for (Tensor& g : p.grads) {
      if (g) g = fake(g), other.keep_apart(g);
    }
  };
  for (auto& [seq, p] : other.nodes_) replace(p);
  for (Pending& p : other.leaves_) replace(p);
  other.results.assign(results.size(), Tensor());
  return other;
}

void Engine::go_on_with(std::vector<Pending> nodes, std::vector<Pending> leaves) {
  nodes_.clear(), leaves_.clear(), leaf_at_.clear();
  leaves_done_ = 0;
  for (Pending& p : nodes) {
    const uint64_t seq = p.node->seq;
    p.sums.resize(p.grads.size());
    nodes_.emplace(seq, std::move(p));
  }
  for (Pending& p : leaves) {
    p.sums.resize(p.grads.size());
    leaf_at_.emplace(p.node.get(), leaves_.size());
    leaves_.push_back(std::move(p));
  }
}

namespace {

Tensor root_gradient(const char* what, const Tensor& root, const Tensor& given) {
  if (!root->requires_grad) {
    fail(what, ": the tensor does not require grad and does not have a grad_fn");
  }
  if (!given) {
    if (root->numel() != 1) {
      fail(what, ": grad can be implicitly created only for scalar outputs, got shape ", to_string(root->sizes));
    }
    return full(root->sizes, 1.0, root->dtype, root->device());
  }
  bool same = given->sizes.size() == root->sizes.size();
  for (size_t d = 0; same && d < root->sizes.size(); d++) same = given->sizes[d] == root->sizes[d];
  if (!same) {
    fail(what, ": a gradient of shape ", to_string(given->sizes), " does not fit an output of shape ",
         to_string(root->sizes));
  }
  if (given->device() != root->device()) {
    fail(what, ": a gradient on ", to_string(given->device()), " does not fit an output on ",
         to_string(root->device()));
  }
  return to_dtype(given, root->dtype);
}

void add_roots(Engine& engine, const char* what, const std::vector<Tensor>& roots, std::vector<Tensor> gradients,
               bool create_graph) {
  gradients.resize(roots.size());
  GradModeScope mode(create_graph);
  for (size_t i = 0; i < roots.size(); i++) {
    {
      GradModeScope on(true);
      refresh_view(roots[i]);
    }
    engine.add_root(roots[i], root_gradient(what, roots[i], gradients[i]));
  }
}

std::vector<Target> targets_of(const char* what, const std::vector<Tensor>& inputs) {
  std::vector<Target> targets;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!inputs[i]->requires_grad) fail(what, ": input ", i + 1, " does not require grad");
    targets.push_back({gradient_edge(inputs[i]), i});
  }
  return targets;
}

}  // namespace

void backward(const std::vector<Tensor>& roots, std::vector<Tensor> gradients, bool retain_graph, bool create_graph,
              const std::vector<Tensor>& inputs) {
  Engine engine(retain_graph, create_graph);
  add_roots(engine, "backward", roots, std::move(gradients), create_graph);
  if (!inputs.empty()) engine.collect(targets_of("backward", inputs), inputs.size());
  for (const Tensor& t : inputs) {
    if (!is_leaf(t)) retain_grad(t);
  }
  if (!engine.run_lone_root()) engine.run();
  GradModeScope mode(create_graph);
  std::unordered_set<const TensorImpl*> given;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!engine.results[i] || !is_leaf(inputs[i]) || !given.insert(inputs[i].get()).second) continue;
    engine.accumulate(inputs[i], engine.results[i]);
  }
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         std::vector<Tensor> grad_outputs, bool retain_graph, bool create_graph, bool allow_unused) {
  Engine engine(retain_graph, create_graph);
  add_roots(engine, "grad", outputs, std::move(grad_outputs), create_graph);
  engine.collect(targets_of("grad", inputs), inputs.size());
  if (!engine.run_lone_root()) engine.run();
  for (size_t i = 0; i < inputs.size(); i++) {
    if (engine.results[i] || allow_unused) continue;
    fail("grad: input ", i + 1, " appears to not have been used in the graph; give allow_unused=true if this is meant");
  }
  return engine.results;
}

std::vector<Tensor> grad_at(const std::vector<Tensor>& outputs, const std::vector<Edge>& inputs,
                            std::vector<Tensor> grad_outputs, std::vector<Tensor> so_far, bool create_graph) {
  Engine engine(true, create_graph);
  std::vector<Target> targets;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!inputs[i].node) continue;
    targets.push_back({inputs[i], i});
    if (so_far[i]) engine.seed(inputs[i], so_far[i]);
  }
  add_roots(engine, "grad", outputs, std::move(grad_outputs), create_graph);
  engine.collect(targets, inputs.size());
  engine.run();
  return engine.results;
}

namespace {
thread_local TapeWatch* watch = nullptr;
}

TapeWatch* tape_watch() { return watch; }
TapeWatchScope::TapeWatchScope(TapeWatch* w) : before(std::exchange(watch, w)) {}
TapeWatchScope::~TapeWatchScope() { watch = before; }

namespace {
bool is_removed(const GradHook& hook) { return !*hook.live; }

std::function<void()> add_hook(const Tensor& t, GradHook added) {
  AutogradMeta& meta = autograd_meta(t);
  auto live = added.live;
  if (added.keeper && meta.accumulator) added.keeper->graph_leads_here(true);
  std::erase_if(meta.hooks, is_removed);  // running hooks use a copy of the list
  if (meta.grad_fn) {
    std::erase_if(meta.grad_fn->hooks, [](const auto& known) { return is_removed(known.second); });
    meta.grad_fn->hooks.emplace_back(meta.output_nr, std::move(added));
  } else {
    meta.hooks.push_back(std::move(added));
    t->changed();
  }
  return [live] { *live = false; };
}

}  // namespace

std::function<void()> register_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook,
                                    std::shared_ptr<HookKeeper> keeper) {
  if (!t->requires_grad) fail("register_hook: the tensor does not require grad");
  return add_hook(t, {std::move(hook), std::move(keeper)});
}

std::function<void()> register_post_accumulate_grad_hook(const Tensor& t, std::function<void(const Tensor&)> hook,
                                                         std::shared_ptr<HookKeeper> keeper) {
  constexpr const char* kName = "register_post_accumulate_grad_hook";
  if (!t->requires_grad) fail(kName, ": the tensor does not require grad");
  if (!is_leaf(t)) fail(kName, ": post accumulate grad hooks cannot be registered on non-leaf tensors");
  GradHook added{[hook = std::move(hook)](const Tensor& leaf) { return hook(leaf), Tensor(); }, std::move(keeper)};
  added.post_accumulate = true;
  return add_hook(t, std::move(added));
}

// The node may outlive the tensor. So the tensor's own hooks, which a non-leaf does not run, hold a guard that tells
// the node when the tensor is gone.
void retain_grad(const Tensor& t) {
  struct Guard {
    explicit Guard(AutogradMeta* meta) : meta(std::make_shared<AutogradMeta*>(meta)) {}
    ~Guard() { *meta = nullptr; }
    std::shared_ptr<AutogradMeta*> meta;
  };
  refresh_view(t);
  AutogradMeta& meta = autograd_meta(t);
  for (const Retained& r : meta.grad_fn->retained) {
    if (*r.meta == &meta) return;
  }
  auto guard = std::make_shared<Guard>(&meta);
  meta.hooks.push_back({[guard](const Tensor&) { return Tensor(); }});
  meta.grad_fn->retained.push_back({meta.output_nr, guard->meta});
}

}  // namespace lutra
