// Calls differentiable ops and gives their results GradNodes.
#include "ops/grad/tape.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "ops/decompose/emit.h"
#include "ops/defs/each_tensor.h"
#include "ops/grad/node_memory.h"
#include "ops/grad/saved_tensor.h"
#include "ops/grad/saves.h"
#include "ops/grad/vjp.h"

namespace lutra {

void fail_second_backward() {
  fail("backward: trying to backward through the graph a second time, after its saved tensors were freed; ",
       "give retain_graph=true the first time");
}
namespace {

// One counter for the process: several threads in turn may make a graph, and backward identifies its nodes by number.
std::atomic<uint64_t> next_seq{1};

struct AccumulateGrad : GradNode {
  Tensor leaf;
  explicit AccumulateGrad(const Tensor& t) : leaf(t) {
    seq = next_seq++;
    tell_hooks(true);
  }
  ~AccumulateGrad() override {
    if (!leaf->autograd || leaf->autograd->accumulator != this) return;
    leaf->autograd->accumulator = nullptr;
    tell_hooks(false);
  }
  void tell_hooks(bool leads) const {
    for (const GradHook& hook : leaf->autograd->hooks) {
      if (hook.keeper) hook.keeper->graph_leads_here(leads);
    }
  }
  const char* name() const override { return "AccumulateGrad"; }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override {
    fail_internal("backward accumulates into leaves itself");
  }
  const Tensor* own_leaf() const override { return &leaf; }
  void release() override {}
};

// A recorded call of one op.
struct OpNode : GradNode {
  OpId op;
  Args args;                            // without the tensors
  std::vector<SavedTensor> args_saved;  // one for each tensor argument, in the order of next
  std::vector<SavedTensor> results_saved;
  bool in_place = false;  // the result was written over the first argument
  bool released = false;
  NodeBytes bytes;

  OpNode(OpId op, const Args& call_args, bool in_place = false) : op(op), args(call_args), in_place(in_place) {
    std::vector<Tensor> inputs;
    uint32_t wants = 0;
    each_argument_tensor(call_args, [&](size_t i, const Tensor& t) {
      inputs.push_back(t);
      if (t->requires_grad) wants |= 1u << i;
    });
    masks = saved_by(op, wants, in_place);
    each_argument_tensor(call_args, [&](size_t i, const Tensor& t) {
      const bool read = masks.args >> i & 1, overwritten = in_place && i == 0;
      args_saved.push_back(!read         ? SavedTensor::shape_of(t)
                           : overwritten ? SavedTensor::copy_of(t, saver(i))
                                         : SavedTensor::elements_of(t, saver(i)));
    });
    each_argument_tensor(args, [](size_t, Tensor& t) { t = Tensor(); });
    link(*this, inputs);
    bytes.add(
        int64_t(sizeof *this + args.size() * sizeof(Value) + inputs.size() * (sizeof(SavedTensor) + sizeof(Edge))));
  }

  uint32_t saver(size_t i) const { return (uint32_t(op) + 1) << 8 | uint32_t(i); }

  void save_results(const Results& results) {
    bytes.add(int64_t(results.size() * (sizeof(SavedTensor) + sizeof(TensorImpl) + sizeof(AutogradMeta))));
    for (size_t i = 0; i < results.size(); i++) {
      bool read = masks.results >> i & 1;
      results_saved.push_back(read ? SavedTensor::elements_of(results[i], saver(128 + i))
                                   : SavedTensor::shape_of(results[i]));
    }
  }

  const char* name() const override { return info(op).name; }

  std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool create_graph) override {
    if (released) fail_second_backward();
    if (tape_watch() && (masks.args | masks.results)) tape_watch()->spent(this);
    Args call = args;
    size_t position = 0;
    each_argument_tensor(call, [&](size_t, Tensor& t) {
      const Edge& edge = next[position];
      t = args_saved[position++].unpack(info(op).name, create_graph ? &edge : nullptr);
    });
    Results results;
    for (size_t i = 0; i < results_saved.size(); i++) {
      Edge self{Ref<GradNode>(this), uint32_t(i)};
      results.push_back(results_saved[i].unpack(info(op).name, create_graph ? &self : nullptr));
    }
    VjpContext ctx{op, call, results, grads, {}, std::vector<Tensor>(args.size())};
    for (const Edge& edge : next) ctx.wanted.push_back(bool(edge.node));
    ctx.in_place = in_place;
    if (create_graph || !run_as_one_op(ctx)) info(op).vjp(ctx);
    ctx.lists.resize(args.size());
    std::vector<Tensor> out;
    for (size_t i = 0; i < call.size(); i++) {
      if (call[i].is<Tensor>()) out.push_back(checked(ctx.out[i], call[i].as<Tensor>(), i));
      if (!call[i].is<std::vector<Tensor>>()) continue;
      const auto& list = call[i].as<std::vector<Tensor>>();
      ctx.lists[i].resize(list.size());
      for (size_t k = 0; k < list.size(); k++) out.push_back(checked(ctx.lists[i][k], list[k], i));
    }
    return out;
  }

  bool visit(NodeVisitor& v) override {
    if (released) return false;
    v.fact(uint64_t(op) << 32 | masks.args << 16 | masks.results << 1 | uint64_t(in_place));
    v.args(args);
    v.fact(args_saved.size() << 32 | results_saved.size());
    for (SavedTensor& s : args_saved) v.saved(s, info(op).name);
    for (SavedTensor& s : results_saved) v.saved(s, info(op).name);
    return true;
  }
  Ref<GradNode> copy() const override { return Ref<GradNode>(new OpNode(*this)); }

  bool is_part() const override { return op == OpId::select || op == OpId::slice || op == OpId::diagonal; }
  Tensor part_of(const Tensor& whole) const override {
    Args call = args;
    call[0] = whole;
    return op1(op, std::move(call));
  }

  bool is_released() const override { return released; }
  void release() override {
    if (!(masks.args | masks.results)) return;  // it has saved nothing, so it may run again
    released = true;
    hooks.clear();  // they don't run any more, and may own what owns the node
    for (SavedTensor& s : args_saved) s.release();
    for (SavedTensor& s : results_saved) s.release();
  }

 private:
  SaveMasks masks;

  // Checks that a rule's gradient has its argument's sizes and dtype.
  Tensor checked(const Tensor& g, const Tensor& arg, size_t i) const {
    if (!g) return g;
    bool same = g->dtype == arg->dtype && g->sizes.size() == arg->sizes.size();
    for (size_t d = 0; same && d < g->sizes.size(); d++) same = g->sizes[d].hint == arg->sizes[d].hint;
    LUTRA_CHECK(same, "vjp of ", info(op).name, " gives ", describe(g), " for '", info(op).args[i].name, "', ",
                describe(arg));
    return g;
  }
};

// The memory layout of a view's base that its gradient must get, if the steps to the view contain an as_strided.
struct BasePlaces {
  Sizes strides;
  SymInt offset, start, end;  // offset of the base; the range of places that the base and the views use
  bool matter = false;

  BasePlaces(const Tensor& base, const Ref<ViewHistory>& view) : strides(base->strides), offset(base->offset) {
    start = offset, end = end_of(base->sizes, strides, offset);
    for (const auto* s = static_cast<const ViewStep*>(view.get()); s; s = step_before(*s)) {
      if (s->op != OpId::as_strided) continue;
      matter = true;
      if (s->args[3].is_none()) continue;
      const SymInt at = s->args[3].sym_int();
      start = sym_min(start, at), end = sym_max(end, end_of(s->args[1].as<Sizes>(), s->args[2].as<Sizes>(), at));
    }
  }
  void visit(NodeVisitor& v) {
    v.sizes(strides);
    for (SymInt* n : {&offset, &start, &end}) v.size(*n);
  }
  // Copies g into the base's layout.
  Tensor lay(const Tensor& g) const {
    // An empty view may end before it starts.
    Tensor memory = full({sym_max(end - start, 0)}, 0.0, g->dtype, g->device());
    Tensor out = op1(OpId::as_strided, {memory, g->sizes, strides, Scalar::of_sym(offset - start)});
    return call_inplace(OpId::copy_, {out, g});
  }

 private:
  static SymInt end_of(const Sizes& sizes, const Sizes& strides, SymInt offset) {
    SymInt last = offset;
    for (size_t d = 0; d < sizes.size(); d++) last = last + (sizes[d] - 1) * strides[d];
    return last + 1;
  }
};

// Visits the steps to a view. Returns a copy of them.
Ref<ViewHistory> visited_view(const Ref<ViewHistory>& view, NodeVisitor& v) {
  std::vector<const ViewStep*> steps;
  for (const auto* s = static_cast<const ViewStep*>(view.get()); s; s = step_before(*s)) steps.push_back(s);
  Ref<ViewHistory> out;
  v.fact(steps.size());
  for (size_t i = steps.size(); i-- > 0;) {
    auto step = make_ref<ViewStep>();
    step->version = steps[i]->version;
    step->op = steps[i]->op, step->args = steps[i]->args, step->length = steps[i]->length;
    step->previous = out;
    v.fact(uint64_t(step->op));
    v.args(step->args);
    out = Ref<ViewHistory>(step.get());
  }
  return out;
}

// A write through a view: the new value of the base is its old one with the written values in the place of the view.
// next: the base, then the writer's result.
struct CopySlices : GradNode {
  Ref<ViewHistory> view;
  BasePlaces places;
  Sizes src_sizes;
  DType src_dtype;
  Device src_device;

  CopySlices(const Tensor& written, const Tensor& src, Edge writer)
      : view(written->view),
        places(written->base, written->view),
        src_sizes(src->sizes),
        src_dtype(src->dtype),
        src_device(src->device()) {
    link(*this, {written->base, Tensor()});
    next.set_own(1, std::move(writer));
  }
  const char* name() const override { return "CopySlices"; }
  std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool) override {
    Tensor to_base, to_src;
    if (next[1].node) {
      Tensor g = places.matter ? places.lay(grads[0]) : contiguous(grads[0]);
      to_src = on_device(to_dtype(sum_to_size(replay_view(view, g, start()), src_sizes), src_dtype), src_device);
    }
    if (next[0].node) {
      to_base = places.matter ? places.lay(grads[0]) : op1(OpId::clone, {contiguous(grads[0])});
      Tensor hole = replay_view(view, to_base, start());
      call_inplace(OpId::copy_, {hole, full({}, 0.0, hole->dtype, hole->device())});
    }
    return {to_base, to_src};
  }
  bool visit(NodeVisitor& v) override {
    v.fact(uint64_t(src_dtype) << 16 | uint64_t(src_device.type) << 8 | uint64_t(places.matter));
    v.fact(uint64_t(src_device.index));
    v.sizes(src_sizes);
    if (places.matter) places.visit(v);
    view = visited_view(view, v);
    return true;
  }
  Ref<GradNode> copy() const override { return Ref<GradNode>(new CopySlices(*this)); }
  void release() override {}

 private:
  SymInt start() const { return places.matter ? places.start : SymInt(0); }
};

void check_writable(const char* op, const Tensor& self) {
  if (is_complex(self->dtype) || (self->base && is_complex(self->base->dtype))) {
    fail(op, ": complex tensors have no gradients yet; detach() the argument, or run this in lt.no_grad");
  }
  if (self->requires_grad && is_leaf(self)) {
    fail(op, ": a leaf Variable that requires grad is being used in an in-place operation.");
  }
  if (!self->base) return;
  if (base_left(self)) fail(op, ": a view is being modified in place whose base took other memory (set_); clone() it");
  if ((self->base->requires_grad || self->requires_grad) && is_leaf(self->base)) {
    fail(op, ": a view of a leaf Variable that requires grad is being used in an in-place operation.");
  }
  if (!self->view) {
    fail(op,
         ": a view that was made in no_grad mode is being modified in place with grad mode on; make it outside of "
         "no_grad, or detach() it");
  }
}

// Makes self, which was written, the result that edge names, with the sizes and dtype of src.
void take_history(const Tensor& self, const Tensor& src, const Edge& edge) {
  if (!self->view) return set_history(self, edge.node, edge.result);
  if (self->base->layout_version) self->view = step_by_places(self);
  set_history(self->base, Ref<GradNode>(new CopySlices(self, src, edge)), 0);
  refresh_view(self);
}

// Runs copy_(self, src) on the tape.
Tensor tape_copy(Args& args) {
  Tensor self = args[0].as<Tensor>(), src = args[1].as<Tensor>();
  Edge edge;
  if (self->view) {
    edge = gradient_edge(src);
  } else {
    auto* op = new OpNode(OpId::copy_, args);
    edge.node = Ref<GradNode>(op);
    op->save_results({self});
  }
  {
    GradModeScope off(false);
    call_inplace_below_tape(OpId::copy_, args);
  }
  take_history(self, src, edge);
  return self;
}

// Runs an op whose rule covers its in-place form, which writes the result over its first argument.
Tensor tape_overwrite(OpId op, Args& args) {
  Tensor self = args[0].as<Tensor>();
  auto* node = new OpNode(op, args, true);
  const Edge edge{Ref<GradNode>(node), 0};
  {
    GradModeScope off(false);
    call_inplace_below_tape(op, args);
  }
  self->requires_grad = true;
  node->save_results({self});
  take_history(self, self, edge);
  return self;
}

// Runs any other in-place op: computes its value and copies that into the first argument.
Tensor tape_assign(OpId op, Args& args) {
  Tensor self = args[0].as<Tensor>(), value;
  reads_written(op, args);
  {
    OverwriteScope overwrite(args);
    value = call_op(op, args)[0];
  }
  if (value.same(self)) return self;
  Args copy = {self, value};
  if (self->view || !value->requires_grad || value->dtype != self->dtype) return tape_copy(copy);
  const Edge edge = gradient_edge(value);
  {
    GradModeScope off(false);
    call_inplace_below_tape(OpId::copy_, copy);
  }
  set_history(self, edge.node, edge.result);
  return self;
}

}  // namespace

void NodeVisitor::text(std::string_view s) {
  fact(s.size());
  for (size_t i = 0; i < s.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, s.data() + i, std::min<size_t>(8, s.size() - i));
    fact(word);
  }
}

void NodeVisitor::sizes(Sizes& sizes) {
  fact(sizes.size());
  for (SymInt& n : sizes) size(n);
}

void NodeVisitor::args(Args& args) {
  for (Value& v : args) {
    fact(v.v.index());
    if (v.is<std::vector<Tensor>>()) fact(v.as<std::vector<Tensor>>().size());
    if (v.is<bool>()) fact(v.as<bool>());
    if (v.is<DType>()) fact(uint64_t(v.as<DType>()));
    if (v.is<Device>()) fact(uint64_t(v.as<Device>().type) << 32 | uint64_t(v.as<Device>().index));
    if (v.is<std::string>()) text(v.as<std::string>());
    if (v.is<Sizes>()) sizes(v.as<Sizes>());
    if (v.is<FunctionRef>()) object(v.as<FunctionRef>());
    if (!v.is<Scalar>()) continue;
    Scalar& s = v.as<Scalar>();
    fact(uint64_t(s.kind) << 1 | uint64_t(s.is_complex));
    if (s.kind == Scalar::kInt) {
      SymInt n = v.sym_int();
      size(n);
      s = Scalar::of_sym(n);
    } else if (s.kind == Scalar::kNumber && !s.is_complex) {
      number(s);
    } else {
      fact(uint64_t(s.i));
      fact(std::bit_cast<uint64_t>(s.im));
    }
  }
}

std::vector<Tensor> GradNode::apply_joint(JointCall&) { fail_internal("a node that is not joint is asked jointly"); }
bool GradNode::leads(uint32_t, const std::function<bool(const Edge&)>&) {
  fail_internal("a node that is not joint is asked jointly");
}

Tensor GradNode::part_of(const Tensor&) const { fail_internal("a node whose result is no part is asked for one"); }

void Edges::bury_own() {
  for (Edge& e : own_) bury(std::move(e.node));
}

GradNode::~GradNode() { next.bury_own(); }

AutogradMeta::~AutogradMeta() { bury(std::move(grad_fn)); }

Tensor replay_view(const Ref<ViewHistory>& history, const Tensor& base, SymInt start) {
  std::vector<const ViewStep*> steps;
  for (const auto* s = static_cast<const ViewStep*>(history.get()); s; s = step_before(*s)) steps.push_back(s);
  Tensor t = base;
  while (!steps.empty()) {
    Args args = steps.back()->args;
    args[0] = t;
    const bool placed = steps.back()->op == OpId::as_strided && !args[3].is_none();
    if (placed) args[3] = Scalar::of_sym(args[3].sym_int() - start);
    t = op1(steps.back()->op, std::move(args));
    steps.pop_back();
  }
  return t;
}

Tensor view_by_places(Tensor base, const Tensor& t) {
  if (is_complex(base->dtype) && !is_complex(t->dtype)) base = op1(OpId::view_as_real, {base});
  return op1(OpId::as_strided, {base, t->sizes, t->strides, Scalar::of_sym(t->offset)});
}

Tensor complex_view(const Tensor& t) {
  if (is_complex(t->dtype)) return t;
  const SymInt pairs = int64_t(t->storage->nbytes / (2 * size_of(t->dtype)));
  const Tensor floats = op1(OpId::as_strided, {t, Sizes{pairs, 2}, Sizes{2, 1}, int_arg(0)});
  return op1(OpId::view_as_complex, {floats});
}

Tensor leaf_of(const GradNode* node) {
  const Tensor* leaf = node ? node->own_leaf() : nullptr;
  return leaf ? *leaf : Tensor();
}

AutogradMeta& autograd_meta(const Tensor& t) {
  if (!t->autograd) t->autograd = make_ref<AutogradMeta>();
  return *t->autograd;
}

bool is_leaf(const Tensor& t) { return !t->autograd || !t->autograd->grad_fn; }

namespace {
bool result_of(const Retained& r, const AutogradMeta& meta) { return *r.meta == &meta; }
}  // namespace

bool has_hooks(const Tensor& t) {
  if (!t->autograd) return false;
  const AutogradMeta& meta = *t->autograd;
  if (!meta.grad_fn) return meta.has_hooks();
  for (auto& [result, hook] : meta.grad_fn->hooks) {
    if (result == meta.output_nr && *hook.live) return true;
  }
  for (const Retained& r : meta.grad_fn->retained) {
    if (result_of(r, meta)) return true;
  }
  return false;
}

void take_history(const Tensor& self, const Tensor& source) { take_history(self, source, gradient_edge(source)); }

void refresh_view(const Tensor& t) {
  if (!t->view || t->view->version == t->storage->version) return;
  if (t->base->layout_version) t->view = step_by_places(t);
  t->view->version = t->storage->version;
  refresh_view(t->base);  // a complex base may be a view itself
  if (!t->base->requires_grad || base_left(t)) return;
  if (is_complex(t->dtype) || is_complex(t->base->dtype)) {
    t->requires_grad = true;  // see lost_history
    return;
  }
  GradModeScope on(true);
  Tensor again = replay_view(t->view, t->base);
  set_history(t, again->autograd->grad_fn, again->autograd->output_nr);
}

void check_is_new(const char* title, const Tensor& t) {
  if (t->requires_grad && is_leaf(t)) {
    fail(title, ": forward gives back a leaf that requires grad; give back a result of its own, or write a clone()");
  }
  if (t->view) fail(title, ": forward has written a view and gives it back; write its base, or a clone() of it");
}

void note_new_layout(const Tensor& t) {
  if (t->view) t->view = step_by_places(t);
  t->layout_version++;
  t->changed();
}

Edge gradient_edge(const Tensor& t) {
  refresh_view(t);
  if (!t->requires_grad) return {};
  AutogradMeta& meta = autograd_meta(t);
  if (meta.grad_fn) {
    for (const GradHook& hook : meta.hooks) {
      if (hook.keeper) hook.keeper->graph_leads_here(true);
    }
    return {meta.grad_fn, meta.output_nr};
  }
  if (!meta.accumulator) {
    Ref<GradNode> node(new AccumulateGrad(t));
    meta.accumulator = node.get();
    return {node, 0};
  }
  return {Ref<GradNode>(meta.accumulator), 0};
}

std::unordered_set<const GradNode*> nodes_behind(const Tensor& t) {
  std::unordered_set<const GradNode*> visited;
  const Edge own = gradient_edge(t);
  std::vector<const GradNode*> stack = {own.node.get()};
  while (!stack.empty()) {
    const GradNode* node = stack.back();
    stack.pop_back();
    if (!node || !visited.insert(node).second) continue;
    for (const Edge& e : node->next) stack.push_back(e.node.get());
  }
  return visited;
}

void link(GradNode& node, const std::vector<Tensor>& inputs) {
  for (const Tensor& t : inputs) node.next.push_back(t ? gradient_edge(t) : Edge{});
  node.seq = next_seq++;
}

namespace {
// Moves the retained gradients of a tensor to its new node: a tensor retains the gradient of its last value.
void move_retained(GradNode& from, GradNode& to, const AutogradMeta& meta, uint32_t output_nr) {
  const auto end = std::remove_if(from.retained.begin(), from.retained.end(), [&](const Retained& r) {
    if (!result_of(r, meta)) return false;
    if (&from != &to) to.retained.push_back({output_nr, r.meta});
    return &from != &to;
  });
  from.retained.erase(end, from.retained.end());
}
}  // namespace

void set_history(const Tensor& result, Ref<GradNode> node, uint32_t output_nr) {
  AutogradMeta& meta = autograd_meta(result);
  result->requires_grad = true;
  if (meta.grad_fn && !meta.grad_fn->retained.empty()) move_retained(*meta.grad_fn, *node, meta, output_nr);
  bury(std::move(meta.grad_fn));
  meta.grad_fn = std::move(node);
  meta.output_nr = output_nr;
  result->changed();
}

Results tape_call(OpId op, Args& args) {
  const OpInfo& row = info(op);
  // The parts rely on the meta rule's checks.
  if (row.vjp_decomposes) return row.meta(op, args), call_parts(row, args);
  auto* node = new OpNode(op, args);
  Ref<GradNode> keep(node);
  Results results;
  {
    GradModeScope off(false);
    results = call_below_tape(op, args);
  }
  // A result that is the argument itself (a conversion to its own dtype) has its history already.
  for (const Value& v : args) {
    if (v.is<Tensor>() && v.as<Tensor>().same(results[0])) return results;
  }
  for (size_t i = 0; i < results.size(); i++) {
    if (is_float(results[i]->dtype)) results[i]->requires_grad = true;
  }
  node->save_results(results);
  for (size_t i = 0; i < results.size(); i++) {
    if (is_float(results[i]->dtype)) set_history(results[i], keep, uint32_t(i));
  }
  return results;
}

Tensor tape_call_inplace(OpId op, Args& args) {
  const OpInfo& row = info(op);
  Tensor self = args[0].as<Tensor>();
  std::string name = inplace_name(op);
  check_writable(name.c_str(), self);
  if (op == OpId::copy_ && self.same(args[1].as<Tensor>())) return self;
  if (!is_float(self->dtype)) {
    GradModeScope off(false);
    return call_inplace_below_tape(op, args);
  }
  if (!row.vjp && !row.vjp_decomposes) {
    fail(name, ": not differentiable, but an argument requires grad; detach() it or run this in lt.no_grad");
  }
  if (op == OpId::copy_) return tape_copy(args);
  const ResultSpec spec = row.meta(op, args)[0];
  check_inplace(op, args, spec);
  return row.vjp && spec.dtype == self->dtype ? tape_overwrite(op, args) : tape_assign(op, args);
}

}  // namespace lutra
