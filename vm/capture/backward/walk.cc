// Walks from the pending gradients down the tape, highest number first, like the engine.
#include "vm/capture/backward/walk.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <queue>
#include <set>
#include <typeinfo>

#include "ops/grad/saved_tensor.h"
#include "vm/bind/lua_node.h"

namespace lutra {
namespace {

std::atomic<uint64_t> walks{0};
thread_local uint64_t last_walk = 0;

struct NotReady {};  // a saved tensor cannot be read yet, or no more

using Checkpoints = std::set<const Checkpoint*>;

struct Walk final : NodeVisitor {
  Engine& engine;
  CallBook& book;
  const uint64_t id = last_walk = ++walks;
  BackwardPart part{};
  std::vector<GradNode*> leaves{};
  std::priority_queue<std::pair<uint64_t, GradNode*>> open{};
  bool first = true;                 // no node has been accepted yet
  bool is_seen = false;              // hooks see the gradient that reaches the node, or it is retained
  std::optional<Generator> draws{};  // random state of the first checkpoint that drew
  std::string checkpoint_why{};      // why the checkpoint cannot be part of the graph
  // Tensors that checkpoints would compute again for the accepted nodes: the checkpoint, and the tensor's number.
  std::vector<std::pair<const Checkpoint*, size_t>> again{};
  const Checkpoints& needed_later;

  Walk(Engine& engine, CallBook& book, const Checkpoints& needed_later)
      : engine(engine), book(book), needed_later(needed_later) {}

  void fact(uint64_t word) override { part.facts.push_back(word); }
  void size(SymInt& n) override { part.sizes.push_back(n.hint); }
  void number(Scalar& n) override { part.numbers.push_back(n.d); }
  void object(const std::shared_ptr<const void>& o) override {
    fact(uint64_t(uintptr_t(o.get())));
    part.objects.push_back(o);
  }
  void spec(const Tensor& t) {
    const Device d = t->device();
    fact(uint64_t(t->dtype) << 32 | uint64_t(uint8_t(d.index)) << 24 | uint64_t(d.type) << 16 |
         uint64_t(t->dim()) << 2 | uint64_t(t->requires_grad));
  }
  void tensor(const Tensor& t) {
    spec(t);
    part.tensor_sizes.push_back(part.sizes.size());
    part.tensors.push_back(t);
    for (const SymInt& n : t->sizes) part.sizes.push_back(n.hint);
    for (const SymInt& n : t->strides) part.sizes.push_back(n.hint);
    if (t->storage->freed) throw NotReady();
  }
  void fixed(Tensor& t) override {
    spec(t);
    for (const SymInt& n : t->sizes) fact(uint64_t(n.hint));
    for (const SymInt& n : t->strides) fact(uint64_t(n.hint));
    part.tensor_sizes.push_back(BackwardPart::kFixed);
    part.tensors.push_back(t);
    if (t->storage->freed) throw NotReady();  // only the node itself knows whether it reads it
  }
  void saved(SavedTensor& s, const char* op) override {
    fact(s.keeps_elements());
    if (!s.keeps_elements()) return tensor(s.kept());
    if (s.is_later() && !s.is_ready() && take_repetition(s)) return;
    if (s.is_later()) return tensor(made(s, op));
    if (!s.is_current()) throw NotReady();
    tensor(s.kept());
  }
  // Accepts a tensor that a checkpoint's call would compute again. Returns false if the call cannot be part of the
  // graph.
  bool take_repetition(const SavedTensor& s) {
    const auto* checkpoint = dynamic_cast<Checkpoint*>(s.later());
    if (!checkpoint) return false;
    if (needed_later.count(checkpoint))
      return checkpoint_why = "a checkpoint: what it makes again is needed later, too", false;
    const auto known = [&](const PartCall& call) { return call.id == checkpoint; };
    auto at = std::find_if(part.calls.begin(), part.calls.end(), known);
    if (at == part.calls.end()) {
      const std::string why = take_checkpoint(*const_cast<Checkpoint*>(checkpoint));
      if (!why.empty()) return checkpoint_why = "a checkpoint: " + why, false;
      at = part.calls.end() - 1;
    }
    const Checkpoint::Kept& then = checkpoint->kept()[s.number()];
    fact(uint64_t(at - part.calls.begin()) << 32 | s.number());
    fact(uint64_t(then.dtype) << 32 | then.sizes.size() << 1 | uint64_t(then.requires_grad));
    for (const SymInt& n : then.sizes) part.sizes.push_back(n.hint);
    again.emplace_back(checkpoint, s.number());
    return true;
  }
  // Returns those of the part's checkpoints that later nodes need, too. They are repeated once, now, as eager code
  // does.
  Checkpoints incomplete() {
    std::sort(again.begin(), again.end());
    again.erase(std::unique(again.begin(), again.end()), again.end());
    Checkpoints found;
    for (const PartCall& call : part.calls) {
      const auto of_it = [&](const auto& taken) { return taken.first == call.repeats.get(); };
      const size_t taken = size_t(std::count_if(again.begin(), again.end(), of_it));
      if (call.repeats && (engine.retains() || taken < call.repeats->live())) found.insert(call.repeats.get());
    }
    return found;
  }
  std::string take_checkpoint(Checkpoint& checkpoint) {
    if (checkpoint.is_running()) return "it runs";
    if (checkpoint.writes_outside()) return "it writes a tensor";
    try {
      checkpoint.check_outside();
    } catch (const Error&) {
      throw NotReady();
    }
    const auto callee = std::dynamic_pointer_cast<const LuaCallee>(checkpoint.call());
    if (std::string why = take_call(&checkpoint, callee); !why.empty()) return why;
    PartCall call = std::move(part.calls.back());
    call.repeats = Ref<Checkpoint>(&checkpoint);
    fact(checkpoint.kept().size()), fact(checkpoint.draws());
    if (checkpoint.draws()) {
      const Generator& drawn = checkpoint.generator();
      if (!draws) draws = drawn;
      fact(drawn.seed == draws->seed), fact(drawn.next_call - draws->next_call);
    }
    for (const auto& [place, t] : book.tensors(*callee)) {
      fact(uint64_t(place));
      call.places.push_back(place), call.tensors.push_back(int(part.tensors.size()));
      tensor(t);
    }
    fact(~uint64_t{0});
    part.calls.back() = std::move(call);
    return "";
  }
  // Returns a tensor that a checkpoint computes again. A checkpoint is repeated only when the first node that needs it
  // is the next one, and its hooks have run.
  Tensor made(const SavedTensor& s, const char* op) {
    if (!s.is_ready()) {
      if (!first || is_seen) throw NotReady();
      part.repeated = std::exchange(checkpoint_why, "");
    }
    if (first && !is_seen) return s.unpack(op, nullptr);
    try {
      return s.unpack(op, nullptr);
    } catch (const Error&) {
      throw NotReady();
    }
  }

  uint32_t place(GradNode* node) {
    if (node->walk == id) return node->place;
    node->walk = id;
    node->place = uint32_t(part.nodes.size());
    part.nodes.push_back(node);
    // Gradients of leaves are handled differently from those of nodes, which may lie after the end of the part.
    fact(node->own_leaf() != nullptr);
    node->own_leaf() ? leaves.push_back(node) : open.emplace(node->seq, node);
    return node->place;
  }

  void under_way(const Pending& p) {
    fact(place(p.node.get()));
    fact(p.grads.size());
    for (const Tensor& g : p.grads) {
      fact(bool(g));
      if (g) tensor(g);
    }
  }

  // Adds a call. Returns why it must run between two parts; empty if it is part of the graph.
  std::string take_call(const void* id, const std::shared_ptr<const LuaCallee>& callee) {
    const uint64_t key = callee ? book.key(*callee) : 0;
    if (!key) return "it is no Lua function";
    if (const std::string* why = book.refused(key)) return *why;
    fact(key);
    part.calls.push_back({id, callee, key, {}, {}});
    return "";
  }
  std::string take_hook(const GradHook& hook) {
    if (hook.post_accumulate) return "a hook that runs when .grad has its sum";
    const std::string why = take_call(hook.live.get(), std::dynamic_pointer_cast<const LuaCallee>(hook.keeper));
    if (!why.empty()) return "a hook: " + why;
    part.calls.back().tensors = {-1}, part.calls.back().places = {0};
    return "";
  }
  // Adds the call of a LuaNode, which passes the saved tensors to the function.
  std::string take_lua_node(LuaNode& node) {
    const std::string why = node.callee() ? take_call(&node, node.callee()) : "it was released";
    if (!why.empty()) return str(node.name(), ": ", why);
    const size_t at = part.calls.size() - 1;
    PartCall call = part.calls[at];
    call.tensors.assign(node.results, -1);
    fact(node.results);
    fact(node.saved.tensors().size());
    for (SavedTensor& s : node.saved.tensors()) {
      saved(s, node.name());
      const bool is_later = s.is_later() && !s.is_ready();
      if (is_later) call.later.push_back({call.tensors.size(), Ref(dynamic_cast<Checkpoint*>(s.later())), s.number()});
      call.tensors.push_back(is_later ? -1 : int(part.tensors.size()) - 1);
    }
    for (size_t k = 0; k < call.tensors.size(); k++) call.places.push_back(int(k) + 1);
    part.calls[at] = std::move(call);
    return "";
  }

  // Adds the hooks and retained gradients of a node. Returns why the engine must run the node by itself; empty if it
  // need not.
  std::string looked_at(const GradNode& node) {
    is_seen = !node.retained.empty();
    for (size_t i = 0; i < node.retained.size(); i++) {
      const AutogradMeta* meta = *node.retained[i].meta;
      if (!meta) continue;
      fact(node.retained[i].result), fact(bool(meta->grad));
      part.retained[{node.place, i}] = meta->grad ? int(part.tensors.size()) : -1;
      if (meta->grad) tensor(meta->grad);
    }
    fact(~uint64_t{0});
    for (auto& [result, hook] : node.hooks) {
      if (!*hook.live) continue;
      is_seen = true;
      fact(result);
      if (std::string why = take_hook(hook); !why.empty()) return why;
    }
    fact(~uint64_t{0});
    return "";
  }
  bool is_asked(const GradNode& node) const {
    const auto& targets = engine.targets();
    return std::any_of(targets.begin(), targets.end(), [&](const Target& t) { return t.edge.node.get() == &node; });
  }

  PartPlace place_now() const {
    return {part.facts.size(), part.sizes.size(), part.numbers.size(), part.tensors.size(), part.calls.size()};
  }

  bool describe(GradNode& node) {
    try {
      std::string looked = looked_at(node);
      if (looked.empty() && node.joint && is_asked(node)) looked = "a gradient that is asked for";
      if (!looked.empty()) return part.why = looked, false;
      part.begins[node.place] = place_now();
      const uint64_t type = uint64_t(uintptr_t(&typeid(node)));
      fact(type);
      if (auto* lua = dynamic_cast<LuaNode*>(&node)) return (part.why = take_lua_node(*lua)).empty();
      if (node.visit(*this)) return true;
      const char* why = node.is_released() ? ", which was released"
                        : node.joint       ? ", compiled code that takes sizes, numbers or constants, or was released"
                                           : ", which gives its gradient by code of its own";
      part.why = str(node.name(), why);
    } catch (const NotReady&) {
      part.why = checkpoint_why.empty() ? str("what ", node.name(), " saved") : checkpoint_why;
    }
    return false;
  }

  void cut(const PartPlace& at) {
    part.facts.resize(at.facts), part.sizes.resize(at.sizes), part.numbers.resize(at.numbers);
    part.tensors.resize(at.tensors), part.tensor_sizes.resize(at.tensors);
    part.calls.resize(at.calls);
  }

  // Accepts a node. Returns false if the part ends before it.
  bool take(GradNode& node) {
    const PartPlace at = place_now();
    const size_t again_before = again.size();
    fact(node.place);
    fact(engine.is_needed(node));
    if (!engine.is_needed(node)) return true;
    if (part.begins.size() <= node.place) part.begins.resize(node.place + 1);
    if (!describe(node)) {
      cut(at);
      again.resize(again_before);
      fact(node.place);
      return false;
    }
    first = false;
    part.run++;
    fact(node.next.size());
    for (const Edge& e : node.next) {
      if (!e.node) {
        fact(~uint64_t{0});
        continue;
      }
      fact(uint64_t(place(e.node.get())) << 32 | uint64_t(e.result) << 1 | uint64_t(engine.is_wanted(e)));
    }
    return true;
  }

  // Adds the hooks of a leaf. A hook that cannot be part of the graph ends the graph before the leaf.
  void take_leaf_hooks(const GradNode& node) {
    const Tensor& leaf = *node.own_leaf();
    if (leaf->autograd) {
      for (const GradHook& hook : leaf->autograd->hooks) {
        if (!*hook.live) continue;
        std::string why = take_hook(hook);
        if (why.empty()) continue;
        if (part.why.empty()) part.why = std::move(why);
        part.stops.resize(std::max<size_t>(part.stops.size(), node.place + 1));
        part.stops[node.place] = true;
        return fact(1);
      }
    }
    fact(0);
  }

  void take_leaf(GradNode& node) {
    const Tensor& leaf = *node.own_leaf();
    fact(uint64_t(node.place) << 8 | uint64_t(leaf->is_contiguous()) << 3 | uint64_t(leaf->requires_grad) << 2 |
         uint64_t(engine.is_wanted({Ref(&node), 0})) << 1);
    take_leaf_hooks(node);
    if (engine.collects() || !leaf->requires_grad) return;
    const Tensor grad = leaf->autograd ? leaf->autograd->grad : Tensor();
    fact(bool(grad));
    if (!grad) return;
    part.grads.resize(std::max<size_t>(part.grads.size(), node.place + 1), -1);
    part.grads[node.place] = int(part.tensors.size());
    tensor(grad);
  }

  // Checks that memory which the graph writes has no other use in it.
  void check_memory() {
    std::vector<const Storage*> written;
    for (int i : part.grads) {
      if (i >= 0) written.push_back(part.tensors[size_t(i)]->storage.get());
    }
    std::sort(written.begin(), written.end());
    bool shared = std::adjacent_find(written.begin(), written.end()) != written.end();
    for (size_t i = 0; i + written.size() < part.tensors.size() && !written.empty(); i++) {
      shared = shared || std::binary_search(written.begin(), written.end(), part.tensors[i]->storage.get());
    }
    if (shared) part.refused = "a .grad shares memory with what the backward reads";
  }

  void run() {
    fact(engine.collects());
    for (const auto& [seq, p] : engine.nodes()) under_way(p);
    for (const Pending& p : engine.leaves()) under_way(p);
    part.under_way = part.tensors.size();
    while (!open.empty()) {
      GradNode* node = open.top().second;
      open.pop();
      if (take(*node)) continue;
      part.stop = node->seq;
      break;
    }
    for (const Target& t : engine.targets()) {
      const GradNode* node = t.edge.node.get();
      fact(node && node->walk == id ? uint64_t(node->place) << 32 | t.edge.result : ~uint64_t{0});
    }
    fact(part.stop > 0);
    if (part.stop) return;
    try {
      for (GradNode* leaf : leaves) take_leaf(*leaf);
    } catch (const NotReady&) {
      part.refused = "a .grad was freed";
    }
    check_memory();
  }
};

}  // namespace

bool is_walked_last(const BackwardPart& part) { return part.walk == last_walk; }

BackwardPart walk_backward(Engine& engine, CallBook& book) {
  Checkpoints needed_later;
  std::string repeated;
  for (;;) {
    Walk walk(engine, book, needed_later);
    try {
      walk.run();
    } catch (const NotReady&) {
      walk.part.refused = "a gradient was freed";
    }
    BackwardPart& part = walk.part;
    if (repeated.empty()) repeated = part.repeated;
    if (const Checkpoints more = walk.incomplete(); !more.empty()) {
      needed_later.insert(more.begin(), more.end());
      continue;
    }
    part.repeated = std::move(repeated);
    part.own_tensors = part.tensors.size(), part.own_numbers = part.numbers.size();
    part.walk = walk.id;
    return std::move(part);
  }
}

}  // namespace lutra
