// The engine of backward as data: it takes pending gradients and runs the next node. Code that runs a part of a
// backward in another way (BackwardParts) reads its state, and leaves the state that eager would leave.
#pragma once
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ops/grad/tape.h"

namespace lutra {

// Facts about a gradient that the engine has accumulated.
struct Sum {
  bool own = false;         // its memory is not shared
  Ref<GradNode> last = {};  // only the part that this node's gradient went into may hold -0; null: no element may
};

struct Pending {
  Ref<GradNode> node;
  std::vector<Tensor> grads;
  std::vector<Sum> sums = {};  // by result
};

struct Target {
  Edge edge;
  size_t index;
};

// A part of a backward that runs on FakeTensors, to record it.
struct Rehearsal {
  virtual ~Rehearsal() = default;
  virtual Ref<GradNode> stand_in(GradNode& node) = 0;  // over FakeTensors
  virtual Tensor& gradient_of(const GradNode& leaf) = 0;
  // Returns what a hook makes of a FakeTensor, or null if it keeps the gradient.
  virtual Tensor run_hook(const GradHook& hook, const Tensor& gradient) = 0;
  virtual bool stops_at(const GradNode& leaf) = 0;
  virtual Tensor& retained_gradient(const GradNode& node, size_t number) = 0;
};

struct BackwardParts;

class Engine {
 public:
  Engine(bool retain_graph, bool create_graph) : retain_(retain_graph), create_(create_graph) {}

  void add_root(const Tensor& root, const Tensor& gradient) {
    if (gradient->is_fake()) given_.insert(gradient->storage.get());
    send(gradient_edge(root), gradient);
    roots_++;
  }
  // Adds a gradient that has come to an edge before the engine begins.
  void seed(const Edge& edge, const Tensor& g) { send(edge, g); }
  // Collects gradients for targets instead of accumulating them into leaves. Nodes that lead to no target don't run.
  void collect(const std::vector<Target>& targets, size_t count) {
    collecting_ = true;
    targets_ = targets;
    mark_needed();
    results.resize(count);
  }
  bool run_lone_root();
  void run();
  void accumulate(const Tensor& leaf, Tensor& grad, Tensor g);
  // Adds g to the leaf's .grad.
  void accumulate(const Tensor& leaf, Tensor g);
  std::vector<Tensor> results;

  // Returns the same engine over FakeTensors. `fake` gives one for each pending gradient.
  Engine rehearsed(Rehearsal& rehearsal, const std::function<Tensor(const Tensor&)>& fake) const;
  // No gradient may share the memory of a FakeTensor.
  void keep_apart(const Tensor& fake) { given_.insert(fake->storage.get()); }
  // Called for a gradient that Lua code may keep.
  void seen_by_lua(const Tensor& g) {
    if (g && g->is_fake()) keep_apart(g);
  }
  void seen_by_lua(const std::vector<Tensor>& all) {
    for (const Tensor& g : all) seen_by_lua(g);
  }
  // Runs the nodes numbered above stop. If no node is left, runs the leaves, in a rehearsal up to one that it stops at.
  void run_above(uint64_t stop);
  bool is_wanted(const Edge& edge) const;
  bool is_needed(const GradNode& node) const { return !collecting_ || needed_.count(&node) > 0; }
  bool collects() const { return collecting_; }
  bool retains() const { return retain_; }
  const std::vector<Target>& targets() const { return targets_; }
  std::map<uint64_t, Pending, std::greater<>>& nodes() { return nodes_; }
  // The leaves that have not run are in order, from leaves_done() on.
  std::vector<Pending>& leaves() { return leaves_; }
  size_t leaves_done() const { return leaves_done_; }
  // Replaces the pending nodes and leaves. Leaves are in the order they were reached.
  void go_on_with(std::vector<Pending> nodes, std::vector<Pending> leaves);
  // In a rehearsal: the nodes that have run, in order.
  std::vector<GradNode*> ran;
  // BackwardParts knows this backward from an earlier run.
  bool seen_before = false;

 private:
  void send(const Edge& edge, const Tensor& g, Sum sum = {});
  bool add_part(GradNode& node, const Tensor& g);
  void mark_needed();
  Tensor hooked(const GradHook& hook, const Tensor& gradient);
  void run_hooks(const GradNode& node, std::vector<Tensor>& grads);
  void run_leaf_hooks(const Tensor& leaf, Tensor& grad);
  static void run_post_accumulate_hooks(const Tensor& leaf);
  void take_targets(const GradNode* node, const std::vector<Tensor>& grads);
  bool is_joint_needed(GradNode& node, const std::set<uint32_t>& results);
  Pending* pending(const Edge& edge);
  std::vector<uint32_t> points(const GradNode& node) const;
  std::vector<uint32_t> asked(const GradNode& node) const;
  Tensor visit(const GradNode& node, uint32_t result, Tensor g);
  void apply(Pending& p);
  void send_on(GradNode& node, std::vector<Tensor>& out, const std::vector<size_t>& order);
  bool runs(const Pending& p) const;
  bool seen_later(const Tensor& g) const;
  Tensor owned(const Tensor& leaf, Tensor g);
  BackwardParts* parts() const;
  void run_node();
  void run_leaf();
  size_t first_to_wait();

  bool retain_, create_, collecting_ = false;
  size_t roots_ = 0;
  Rehearsal* rehearsal_ = nullptr;
  std::map<uint64_t, Pending, std::greater<>> nodes_;
  std::vector<Pending> leaves_;
  size_t leaves_done_ = 0;
  bool leaf_hooks_ = false;  // for FakeTensors: a leaf has hooks, which may set gradients of other leaves
  std::unordered_map<const GradNode*, size_t> leaf_at_;  // a leaf's index in leaves_
  std::vector<Target> targets_;
  std::unordered_set<const GradNode*> needed_;
  std::set<std::pair<const GradNode*, uint32_t>> needed_results_;  // of joint nodes
  std::unordered_set<const Storage*> given_;  // storages of FakeTensors that a gradient must not share
};

// Runs parts of a backward in another way (compiled autograd).
struct BackwardParts {
  virtual ~BackwardParts() = default;
  virtual bool is_on() const = 0;
  virtual void refuse(const char* why) = 0;  // a backward runs eagerly for this reason
  // Called while nodes are left. Returns true if it has run the next nodes, false if the engine must run those above
  // stop.
  virtual bool run(Engine& engine, uint64_t& stop) = 0;
};

}  // namespace lutra
