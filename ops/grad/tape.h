// The autograd tape. GradNodes link results to the tensors they came from, and backward walks them in reverse program
// order. Invariants:
// 1. Nodes are numbered in program order. backward runs them by descending number, so gradients accumulate in one order
//    on the tape and in the joint graph alike.
// 2. A node saves the tensors that its vjp reads, with their storage version. If the version has changed, an error is
//    raised ("modified by an inplace operation"), never a wrong gradient.
// 3. FakeTensors are taped like others: backward() while tracing records the joint graph.
#pragma once
#include <memory>
#include <unordered_set>

#include "ops/defs/call.h"

namespace lutra {

// Raises the error for a node that was released, eager or compiled.
[[noreturn]] void fail_second_backward();

class SavedTensor;

struct Edge {
  Ref<GradNode> node;  // the producer, or the AccumulateGrad of a leaf; null: no gradient wanted
  uint32_t result = 0;
};

// The edges of a node: its own, or a list that several nodes share, which lives as long as the last of them.
class Edges {
 public:
  void push_back(Edge e) { own_.push_back(std::move(e)); }
  void assign(std::vector<Edge> edges) { own_ = std::move(edges); }
  void share(std::shared_ptr<const std::vector<Edge>> edges) { shared_ = std::move(edges); }
  void set_own(size_t i, Edge e) { own_[i] = std::move(e); }
  void bury_own();  // for a dying node; does not recurse, however long the chain
  size_t size() const { return all().size(); }
  const Edge& operator[](size_t i) const { return all()[i]; }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }

 private:
  const std::vector<Edge>& all() const { return shared_ ? *shared_ : own_; }
  std::vector<Edge> own_;
  std::shared_ptr<const std::vector<Edge>> shared_;
};

// The engine's arguments for a joint node, whose results depend on each other within it.
struct JointCall {
  const std::vector<Tensor>& grads;  // one for each result, null: none
  bool retain_graph, create_graph;
  std::vector<uint32_t> points;  // results with hooks, a retained gradient or a request of lt.grad; ascending
  std::vector<uint32_t> asked;   // results that lt.grad asks for: only hooks on the way to these or to wanted edges run
  // The node calls it when the gradient of a point is complete. Returns the gradient to go on with.
  std::function<Tensor(uint32_t result, const Tensor& gradient)> visit;
  std::function<bool(const Edge&)> wanted;
  std::vector<size_t> order;  // the node sets it: the order in which gradients of next are sent on
  // Returns the sum that later nodes have sent to the edge, or null. A node that takes it adds to it and returns the
  // sum.
  std::function<Tensor*(const Edge&)> so_far;
};

// A result whose tensor keeps its gradient; null once the tensor is gone.
struct Retained {
  uint32_t result;
  std::shared_ptr<AutogradMeta*> meta;
};

// Visits what a node's gradients depend on beside the incoming ones: its kind (facts), sizes, numbers, and saved
// tensors. In a copy of the node it may replace sizes, numbers and tensors.
struct NodeVisitor {
  virtual ~NodeVisitor() = default;
  virtual void fact(uint64_t word) = 0;
  virtual void size(SymInt& n) = 0;
  virtual void number(Scalar& n) = 0;
  virtual void saved(SavedTensor& t, const char* op) = 0;
  virtual void fixed(Tensor& t) = 0;  // its sizes are facts
  // An object whose address is a fact. It lives as long as the facts.
  virtual void object(const std::shared_ptr<const void>& o) = 0;
  void text(std::string_view s);
  void sizes(Sizes& sizes);
  void args(Args& args);  // only the presence of their tensors is a fact
};

struct GradNode : RefCounted {
  uint64_t seq = 0;
  uint64_t walk = 0;  // scratch of the last walk: its number, and this node's index in it (place)
  uint32_t place = 0;
  bool joint = false;  // apply_joint is called instead of apply; the node itself handles the hooks of its results
  Edges next;          // one for each tensor among the inputs, in order
  std::vector<std::pair<uint32_t, GradHook>> hooks;  // by number of the result; they run before apply
  std::vector<Retained> retained;                    // set after all hooks
  GradNode() = default;
  virtual ~GradNode();  // does not recurse, however long the chain
  virtual const char* name() const = 0;
  // Takes one gradient for each result (null: none). Returns one for each element of next.
  virtual std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool create_graph) = 0;
  virtual std::vector<Tensor> apply_joint(JointCall& call);
  // Returns whether the result is a part of the only input. part_of then returns that part of a tensor of the input's
  // sizes.
  virtual bool is_part() const { return false; }
  virtual Tensor part_of(const Tensor& whole) const;
  // For a joint node: returns whether a wanted edge is on the way from `result`. Wanted edges may be other results of
  // this node, but not `result` itself.
  virtual bool leads(uint32_t result, const std::function<bool(const Edge&)>& wanted);
  // Called when a search for the way to these nodes reaches this node.
  virtual void met(const std::vector<const GradNode*>&) {}
  // Returns false if the node computes gradients by code of its own, such as Lua code.
  virtual bool visit(NodeVisitor&) { return false; }
  virtual bool calls_lua() const { return false; }
  virtual Ref<GradNode> copy() const { return {}; }  // that a visitor may change
  // Called after a copy of the node has run instead of it.
  virtual void ran_as(GradNode& /*copy*/) {}
  // Returns the leaf that the node accumulates into, or null.
  virtual const Tensor* own_leaf() const { return nullptr; }
  // Drops saved tensors. A later apply raises "backward through the graph a second time".
  virtual void release() = 0;
  virtual bool is_released() const { return false; }

 protected:
  GradNode(const GradNode& o) : RefCounted(), seq(o.seq), joint(o.joint), next(o.next) {}  // without hooks
};

// Gives node the next number, and edges from the tensors. Those that don't require grad get null edges.
void link(GradNode& node, const std::vector<Tensor>& inputs);
// Makes result, a non-leaf that requires grad, output output_nr of node.
void set_history(const Tensor& result, Ref<GradNode> node, uint32_t output_nr);

// Gives self the history of source, after a write that made self equal to it. If self is a view, its base gets the
// history.
void take_history(const Tensor& self, const Tensor& source);

// Makes a view's grad_fn anew from its base, if a write has changed their storage's version.
void refresh_view(const Tensor& view);
// Fails if t cannot become the result of a node of its own: t is a leaf that requires grad, or a view whose base would
// not see the change. title: the node's title.
void check_is_new(const char* title, const Tensor& t);
// Called after t got other sizes, strides or memory. The history of t and of its views no longer describes where their
// elements lie, so views are made by as_strided from now on. Values kept for t's former elements become invalid
// (ElementsMark).
void note_new_layout(const Tensor& t);
// Returns whether a view's base no longer shares its memory.
inline bool base_left(const Tensor& view) { return !(view->base->storage == view->storage); }
// Replays the history of a view on another base. Its memory begins at element `start` of the first base's memory.
Tensor replay_view(const Ref<ViewHistory>& history, const Tensor& base, SymInt start = 0);
// Makes the view of base that has t's layout in the memory that they share. It also works for parts of a complex base.
Tensor view_by_places(Tensor base, const Tensor& t);
// Returns a view of all of t's memory as complex elements.
Tensor complex_view(const Tensor& t);
// Returns where the gradient of t goes: its grad_fn, a leaf's AccumulateGrad, or nowhere.
Edge gradient_edge(const Tensor& t);
// Returns the nodes of t's history, including its own.
std::unordered_set<const GradNode*> nodes_behind(const Tensor& t);

// Called by call_op when grad mode is on and an input requires grad.
Results tape_call(OpId op, Args& args);
Tensor tape_call_inplace(OpId op, Args& args);

// loss:backward(): accumulates into .grad of the leaves, or only of `inputs` if there are any. Non-leaves among these
// keep their gradient from then on (retain_grad). A null gradient means ones (the root must have one element).
void backward(const std::vector<Tensor>& roots, std::vector<Tensor> gradients, bool retain_graph, bool create_graph,
              const std::vector<Tensor>& inputs = {});
// lt.grad: returns gradients of outputs with respect to inputs. An unused input gives null (an error unless
// allow_unused).
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         std::vector<Tensor> grad_outputs, bool retain_graph, bool create_graph, bool allow_unused);
// Does the same for edges, which start with so_far. Edges without a node want no gradient. The graph is retained.
std::vector<Tensor> grad_at(const std::vector<Tensor>& outputs, const std::vector<Edge>& inputs,
                            std::vector<Tensor> grad_outputs, std::vector<Tensor> so_far, bool create_graph);

// Is told what the engine does on this thread. Code that traces a backward installs it.
struct TapeWatch {
  virtual ~TapeWatch() = default;
  virtual void spent(const GradNode* node) = 0;               // it runs, and release() would drop what it saved
  virtual void read(const Tensor& fake, const char* op) = 0;  // op's node reads the elements it saved
  virtual void arrived(const GradNode* leaf) = 0;             // its first gradient
  virtual void added(const GradNode* node) = 0;               // a gradient is added to an earlier one, or may be
  // Returns true if the node gives no gradients and the other nodes go on.
  virtual bool skip(const GradNode* node, const Error& error) = 0;
  virtual void refused(const Tensor& /*fake*/) {}  // an error: it was written since it was saved
};
TapeWatch* tape_watch();
struct TapeWatchScope {
  explicit TapeWatchScope(TapeWatch* watch);
  ~TapeWatchScope();
  TapeWatch* before;
};

// Runs hook on the gradient of t whenever one is computed. Returns a function that removes it.
std::function<void()> register_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook,
                                    std::shared_ptr<HookKeeper> keeper = nullptr);
// Runs hook on t, a leaf, whenever a backward has added to its .grad.
std::function<void()> register_post_accumulate_grad_hook(const Tensor& t, std::function<void(const Tensor&)> hook,
                                                         std::shared_ptr<HookKeeper> keeper = nullptr);
// Makes t, a non-leaf, keep its gradient in .grad, as it is after all hooks.
void retain_grad(const Tensor& t);
bool is_leaf(const Tensor& t);
bool has_hooks(const Tensor& t);               // hooks that run when its gradient is computed
AutogradMeta& autograd_meta(const Tensor& t);  // made on first use

}  // namespace lutra
