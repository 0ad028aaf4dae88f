// The autograd tape: GradNodes link results to the tensors they came from; backward walks them in reverse program
// order. Invariants:
// 1. Nodes are numbered in program order; backward runs them by descending number, so gradients accumulate in one order
//    on the tape and in the joint graph alike.
// 2. A node saves the tensors its vjp reads with their storage version; a version that moved on is an error
//    ("modified by an inplace operation"), never a wrong gradient.
// 3. FakeTensors are taped like others: backward() while tracing records the joint graph.
#pragma once
#include <memory>
#include <unordered_set>

#include "ops/defs/call.h"

namespace lutra {

// Of a node that was released, whoever compiled it.
[[noreturn]] void fail_second_backward();

class SavedTensor;

struct Edge {
  Ref<GradNode> node;  // the producer, or the AccumulateGrad of a leaf; null: no gradient wanted
  uint32_t result = 0;
};

// The edges of a node: its own, or some that several nodes have, which live as long as the last of these nodes.
class Edges {
 public:
  void push_back(Edge e) { own_.push_back(std::move(e)); }
  void assign(std::vector<Edge> edges) { own_ = std::move(edges); }
  void share(std::shared_ptr<const std::vector<Edge>> edges) { shared_ = std::move(edges); }
  void set_own(size_t i, Edge e) { own_[i] = std::move(e); }
  void bury_own();  // of a node that dies; does not recurse, however long the chain
  size_t size() const { return all().size(); }
  const Edge& operator[](size_t i) const { return all()[i]; }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }

 private:
  const std::vector<Edge>& all() const { return shared_ ? *shared_ : own_; }
  std::vector<Edge> own_;
  std::shared_ptr<const std::vector<Edge>> shared_;
};

// What the engine has for a node whose results depend on each other within it.
struct JointCall {
  const std::vector<Tensor>& grads;  // one for each result, null: none
  bool retain_graph, create_graph;
  std::vector<uint32_t> points;  // results that are looked at: they have hooks, or are asked for; ascending
  std::vector<uint32_t> asked;  // those that lt.grad asks for: hooks run on the way to what is asked for or wanted only
  // To be called when all that goes into the gradient of a point has come; gives what goes on in its place.
  std::function<Tensor(uint32_t result, const Tensor& gradient)> visit;
  std::function<bool(const Edge&)> wanted;
  std::vector<size_t> order;  // filled in: of next, the order in which gradients are sent on
  // What later nodes have sent there, null where nothing. A node that takes it adds to it and gives the sum.
  std::function<Tensor*(const Edge&)> so_far;
};

// A result whose tensor keeps its gradient; null once the tensor is gone.
struct Retained {
  uint32_t result;
  std::shared_ptr<AutogradMeta*> meta;
};

// Goes through what a node's gradients depend on beside those that come: what it is (facts), sizes and numbers, and
// saved tensors. Of a copy of the node it may put others in the place of sizes, numbers and tensors.
struct NodeVisitor {
  virtual ~NodeVisitor() = default;
  virtual void fact(uint64_t word) = 0;
  virtual void size(SymInt& n) = 0;
  virtual void number(Scalar& n) = 0;
  virtual void saved(SavedTensor& t, const char* op) = 0;
  virtual void fixed(Tensor& t) = 0;  // its sizes are facts
  // An object whose address is a fact: it lives as long as the facts.
  virtual void object(const std::shared_ptr<const void>& o) = 0;
  void text(std::string_view s);
  void sizes(Sizes& sizes);
  void args(Args& args);  // their tensors are facts only: whether there is one
};

struct GradNode : RefCounted {
  uint64_t seq = 0;
  uint64_t walk = 0;  // scratch of the walk that came here last, and which node it was there
  uint32_t place = 0;
  bool joint = false;  // apply_joint in place of apply; the node sees to the hooks of its results
  Edges next;          // one for each tensor among the inputs, in order
  std::vector<std::pair<uint32_t, GradHook>> hooks;  // of results, by number; run before apply
  std::vector<Retained> retained;                    // after all hooks
  GradNode() = default;
  virtual ~GradNode();  // does not recurse, however long the chain
  virtual const char* name() const = 0;
  // One gradient for each result (null: none) to one for each element of next.
  virtual std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool create_graph) = 0;
  virtual std::vector<Tensor> apply_joint(JointCall& call);
  // Whether the result is a part of the only input. Then part_of gives that part of a tensor of the input's sizes.
  virtual bool is_part() const { return false; }
  virtual Tensor part_of(const Tensor& whole) const;
  // Whether one of the edges that are wanted is on the way from a result of this node, which is joint; results of it
  // may be among them, but not that result itself.
  virtual bool leads(uint32_t result, const std::function<bool(const Edge&)>& wanted);
  // A search for the way to these nodes has come here.
  virtual void met(const std::vector<const GradNode*>&) {}
  // False: its gradients come from code of its own, Lua code, say.
  virtual bool visit(NodeVisitor&) { return false; }
  virtual bool calls_lua() const { return false; }
  virtual Ref<GradNode> copy() const { return {}; }  // that a visitor may change
  // A copy of it has run in its place.
  virtual void ran_as(GradNode& /*copy*/) {}
  // The leaf that it accumulates into.
  virtual const Tensor* own_leaf() const { return nullptr; }
  // Drops saved tensors; apply afterwards raises "backward through the graph a second time".
  virtual void release() = 0;
  virtual bool is_released() const { return false; }

 protected:
  GradNode(const GradNode& o) : RefCounted(), seq(o.seq), joint(o.joint), next(o.next) {}  // without hooks
};

// Makes a node with the next number; edges come from the tensors (those that don't require grad get null edges).
void link(GradNode& node, const std::vector<Tensor>& inputs);
// result becomes output_nr of node (a non-leaf that requires grad).
void set_history(const Tensor& result, Ref<GradNode> node, uint32_t output_nr);

// self was written and now is what source is: it takes source's history, through its base where it is a view.
void take_history(const Tensor& self, const Tensor& source);

// Makes the grad_fn of a view anew from its base, where a write moved their storage on.
void refresh_view(const Tensor& view);
// Fails where t cannot become the result of a node of its own: it is a leaf that requires grad, or a view whose base
// would not learn of it. title: of the node.
void check_is_new(const char* title, const Tensor& t);
// t has got other sizes, strides or memory: how it and views of it were made no longer says where their elements lie,
// so views go by their places in memory from now on. What was kept of t's elements is no longer theirs (ElementsMark).
void lay_anew(const Tensor& t);
// Whether a view's base has left the memory that they shared.
inline bool base_left(const Tensor& view) { return !(view->base->storage == view->storage); }
// The view that history made, of another base, whose memory begins where element `start` of the first base's was.
Tensor replay_view(const Ref<ViewHistory>& history, const Tensor& base, SymInt start = 0);
// The view of base, whose memory it shares, that lies as t does. A complex base has views of its parts, too.
Tensor view_by_places(Tensor base, const Tensor& t);
// All of the memory of t as complex elements: a view of t.
Tensor complex_view(const Tensor& t);
// Where the gradient of t goes: its grad_fn, a leaf's AccumulateGrad, or nowhere.
Edge gradient_edge(const Tensor& t);
// The nodes of the history of t, its own among them.
std::unordered_set<const GradNode*> nodes_behind(const Tensor& t);

// Called by call_op when grad mode is on and an input requires grad.
Results tape_call(OpId op, Args& args);
Tensor tape_call_inplace(OpId op, Args& args);

// loss:backward(): accumulates into .grad of the leaves, or of `inputs` alone where there are any: non-leaves among
// these keep their gradient from then on (retain_grad). A null gradient means ones (the root must have one element).
void backward(const std::vector<Tensor>& roots, std::vector<Tensor> gradients, bool retain_graph, bool create_graph,
              const std::vector<Tensor>& inputs = {});
// lt.grad: gradients of outputs with respect to inputs, null where unused (an error unless allow_unused).
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         std::vector<Tensor> grad_outputs, bool retain_graph, bool create_graph, bool allow_unused);
// As grad, of edges (those without a node want none), which have so_far already. The graph is retained.
std::vector<Tensor> grad_at(const std::vector<Tensor>& outputs, const std::vector<Edge>& inputs,
                            std::vector<Tensor> grad_outputs, std::vector<Tensor> so_far, bool create_graph);

// Told of what the engine does on this thread, by whoever traces a backward.
struct TapeWatch {
  virtual ~TapeWatch() = default;
  virtual void spent(const GradNode* node) = 0;               // it runs, and a release would drop what it saved
  virtual void read(const Tensor& fake, const char* op) = 0;  // elements that op's node saved
  virtual void arrived(const GradNode* leaf) = 0;             // a first gradient
  virtual void added(const GradNode* node) = 0;               // one came where there was one, or would
  // Of a node: it gives no gradients, the others go on.
  virtual bool skip(const GradNode* node, const Error& error) = 0;
  virtual void refused(const Tensor& /*fake*/) {}  // it was written since it was saved, which is an error
};
TapeWatch* tape_watch();
struct TapeWatchScope {
  explicit TapeWatchScope(TapeWatch* watch);
  ~TapeWatchScope();
  TapeWatch* before;
};

// Runs hook on the gradient of t whenever one is computed; returns what removes it again.
std::function<void()> register_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook,
                                    std::shared_ptr<HookKeeper> keeper = nullptr);
// Runs hook on t, a leaf, whenever a backward has added to its .grad.
std::function<void()> register_post_accumulate_grad_hook(const Tensor& t, std::function<void(const Tensor&)> hook,
                                                         std::shared_ptr<HookKeeper> keeper = nullptr);
// The gradient of t, a non-leaf, is kept in its .grad, as all hooks have left it.
void retain_grad(const Tensor& t);
bool is_leaf(const Tensor& t);
bool has_hooks(const Tensor& t);               // that run when its gradient is computed
AutogradMeta& autograd_meta(const Tensor& t);  // made on first use

}  // namespace lutra
