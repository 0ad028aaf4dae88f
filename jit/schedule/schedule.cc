// Makes a plan from a graph: groups its units, builds their kernels, then assigns buffers and memory.
#include "jit/schedule/schedule.h"

#include <algorithm>
#include <cmath>

#include "jit/device/backend.h"
#include "jit/graph/function.h"
#include "jit/schedule/combine.h"
#include "jit/schedule/fuse.h"
#include "jit/schedule/memory.h"
#include "jit/schedule/several_steps.h"
#include "ops/extern/extern.h"

namespace lutra {
namespace {

constexpr size_t kMaxName = 48;

class Planner {
 public:
  Planner(const Graph& graph, LoweredGraph lowered, const ScheduleOptions& options)
      : env_(*graph.env),
        lowered_(std::move(lowered)),
        units_(graph, lowered_, options.fuse, options.machine),
        options_(options),
        decisions_(options.decisions) {}

  Plan run(bool is_function) {
    const Graph& g = units_.graph;
    plan_.device = units_.device;
    plan_.rng_calls = g.rng_calls;
    add_inputs();
    std::vector<Group> groups = fuse(units_, options_.fuse, decisions_);
    find_outputs();
    for (const Group& group : groups) launch(group);
    for (const Value& v : g.outputs) output(v);
    if (options_.fuse) combine_launches(plan_);
    plan_memory(plan_, env_);
    if (!is_function) plan_.guards = env_.guards();
    close(plan_, env_);
    return std::move(plan_);
  }

 private:
  static ExprId expr(SymInt v) { return v.to_expr(); }

  void add_inputs() {
    int32_t position = 0;
    for (size_t i = 0; i < units_.graph.inputs.size(); i++) {
      const GraphInput& in = units_.graph.inputs[i];
      Buffer b{Buffer::kInput, in.value->dtype, expr(in.value->numel()), int32_t(i)};
      if (in.constant) {
        b.kind = Buffer::kConstant;
        b.index = plan_.constants++;
      }
      size_t same = 0;
      while (units_.graph.inputs[same].value->storage != in.value->storage) same++;
      b.storage = int32_t(same);
      plan_.positions.push_back(in.constant ? -1 : position++);
      plan_.buffers.push_back(b);
    }
    buffers_.assign(plan_.buffers.size() + size_t(units_.size()), -1);
    for (size_t i = 0; i < plan_.buffers.size(); i++) buffers_[i] = int32_t(i);
  }

  void find_outputs() {
    // Fusion may have added units.
    buffers_.resize(units_.graph.inputs.size() + size_t(units_.size()), -1);
    is_output_.assign(buffers_.size(), false);
    for (int32_t u = 0; u < units_.size(); u++) {
      if (units_[u].in_place >= 0) buffers_[size_t(units_.source_of(u))] = units_[u].in_place;
    }
    for (const Value& v : units_.graph.outputs) {
      if (v.is<Tensor>() && v.tensor()) is_output_[size_t(units_.resolve(v.tensor()).id)] = true;
    }
  }

  // Returns the number of elements that the tensor spans: numel for a dense layout.
  SymInt extent(const Tensor& t) {
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t d = 0; d < t->sizes.size(); d++) order.push_back({t->strides[d].hint, d});
    std::sort(order.begin(), order.end());
    SymInt dense = 1, last = 1;
    bool is_dense = true;
    for (auto [hint, d] : order) {
      is_dense &= units_.facts.is_one(t->sizes[d]) || units_.facts.equal(t->strides[d], dense);
      dense = dense * t->sizes[d];
      last = last + (t->sizes[d] - 1) * t->strides[d];
    }
    return is_dense ? t->numel() : sym_max(last, 0);
  }

  int32_t buffer(int32_t source) {
    int32_t& b = buffers_[size_t(source)];
    if (b >= 0) return b;
    const Tensor& t = units_.value_of(source);
    bool out = is_output_[size_t(source)];
    plan_.buffers.push_back({out ? Buffer::kOutput : Buffer::kTemp, t->dtype, expr(extent(t))});
    return b = int32_t(plan_.buffers.size() - 1);
  }

  BufferView view(const Tensor& t) {
    const ViewSource& s = units_.resolve(t);
    BufferView v;
    v.buffer = buffer(s.id);
    v.dtype = t->dtype;
    for (SymInt n : t->sizes) v.sizes.push_back(expr(n));
    for (SymInt n : t->strides) v.strides.push_back(expr(n));
    v.offset = expr(units_.offset_of(s, t));
    return v;
  }

  void mutated(int32_t input) {
    if (std::find(plan_.mutated.begin(), plan_.mutated.end(), input) == plan_.mutated.end()) {
      plan_.mutated.push_back(input);
    }
  }

  // Returns the op whose result a copy puts in its place.
  static OpId copied(const Node* node) {
    const Tensor& from = node->args[1].as<Tensor>();
    return from->node && !from->node->is_input() ? from->node->op : node->op;
  }
  // Joins the names of the group's ops in order, for people. for_errors: a copy has the name of the op that it
  // copies.
  std::string name_of(const std::vector<int32_t>& units, bool for_errors = false) const {
    std::string text;
    for (int32_t u : units) {
      const Node* node = units_[u].node;
      std::string part = name(for_errors && node->is_copy() ? copied(node) : node->op);
      if (for_errors && (part == text || text.ends_with("_" + part))) continue;
      if (text.size() + part.size() + 1 > kMaxName) {
        text += "_etc";
        break;
      }
      text += (text.empty() ? "" : "_") + part;
    }
    return text;
  }

  void add_kernel(Body& body, const std::vector<KernelFault>& faults, const std::string& name, const Node* node,
                  const std::string& error_name = "") {
    BodyArgs args;
    KernelLaunch launch;
    launch.kernel = body.finish(name, args);
    for (int32_t b : args.buffers) launch.buffers.push_back(buffer(b));
    launch.ints = args.ints;
    launch.scalars = args.scalars;
    bool parallel = !(args.extent.is_constant() && args.extent.hint == 0) || has_parallel(launch.kernel);
    if (parallel) launch.extent = expr(args.extent);
    launch.work = expr(args.work);
    launch.op = error_name.empty() ? name : error_name;
    if (node->file) launch.file = node->file;
    launch.line = node->line;
    for (const BodyArgs::Check& c : args.checks) {
      const KernelFault& f = faults[size_t(c.fault)];
      const OpId reported = f.node->origin != OpId::kCount ? f.node->origin : f.node->op;
      const bool wraps = f.node->op == OpId::index;  // index's last argument is the name of the op that the user called
      std::string op = wraps ? f.node->args.back().as<std::string>() : lutra::name(reported);
      const bool target = reported == OpId::nll_loss || reported == OpId::cross_entropy;
      const bool values = f.node->op == OpId::check_values;
      std::string message = values ? f.node->args[2].as<std::string>() : "";
      // The message of a function that is not an op begins with its name: "one_hot: ..."
      if (const size_t colon = message.find(": "); colon != std::string::npos) {
        op = message.substr(0, colon), message.erase(0, colon + 2);
      }
      launch.faults.push_back(
          {c.arg, f.dim, op, f.node->file ? f.node->file : "", f.node->line, wraps, target, message});
    }
    if (std::string bad = loop::verify(launch.kernel); !bad.empty()) {
      fail_internal("schedule: ", bad, "\n", loop::print(launch.kernel));
    }
    plan_.launches.push_back(std::move(launch));
  }

  static bool has_parallel(const loop::Kernel& k) {
    for (const loop::Stmt& s : k.body) {
      const auto* l = std::get_if<std::unique_ptr<loop::Loop>>(&s);
      if (l && (*l)->parallel) return true;
    }
    return false;
  }

  void launch(const Group& group) {
    const ComputeUnit& first = units_[group.units[0]];
    if (first.in_place >= 0) mutated(first.in_place);
    if (first.low.kind == Lowered::kExtern) return launch_extern(first, group.units[0]);
    if (first.low.kind == Lowered::kExternResult) return;
    if (first.low.kind == Lowered::kJoin) return launch_join(first, group.units[0]);
    if (first.alone()) return launch_scatter(first, group.units[0]);
    bool empty = true;
    for (int32_t u : group.roots) empty &= units_[u].is_empty();
    if (empty) return;
    GroupKernel kernel(units_, group.units, group.roots);
    const std::string& why = kernel.build();
    LUTRA_CHECK(why.empty(), "a group without a kernel: ", why);
    const Node* node = first.node;
    for (int32_t u : group.units) {
      if (!node->file) node = units_[u].node;
      if (units_[u].is_copy()) mutated(units_.resolve(units_[u].value).id);
    }
    add_kernel(kernel.body, kernel.faults, name_of(group.units), node, name_of(group.units, true));
  }

  void launch_extern(const ComputeUnit& u, int32_t id) {
    ExternLaunch launch;
    launch.op = u.node->op;
    symbols_.clear();
    const OpInfo& op = info(u.node->op);
    for (size_t i = 0; i < u.node->args.size(); i++) extern_argument(launch, op.args[i].type, u.node->args[i]);
    if (op.has(kControl) && options_.fuse && !backend_of(units_.device).preferences.leaves_processors) {
      for (const auto& f : several_steps(*u.node)) add_function(launch, *f);
    }
    launch.symbols = int32_t(symbols_.size());
    launch.ints.insert(launch.ints.end(), symbols_.begin(), symbols_.end());
    for (const Tensor& t : u.node->results) launch.out.push_back(view(t));
    LUTRA_CHECK(launch.out[0].buffer == buffer(units_.source_of(id)), "an extern result elsewhere");
    if (u.node->file) launch.file = u.node->file;
    launch.line = u.node->line;
    plan_.launches.push_back(std::move(launch));
  }

  void add_function(ExternLaunch& launch, const Graph& f) {
    const SymScope scope(f.env.get());  // without symbols it may be another env
    launch.functions.push_back(int32_t(plan_.functions.size()));
    plan_.functions.push_back(Planner(f, lower(f), options_).run(true));
    Plan& function = plan_.functions.back();
    for (SymExpr& e : function.exprs) {
      if (e.op == SymOp::kSize || e.op == SymOp::kStride) {
        const ExprId leaf = env_.leaf(e.op, e.a, e.b, e.i);
        e = {SymOp::kSize, int32_t(function.positions.size()), place_of(symbols_, leaf), e.i};
      } else if (e.op == SymOp::kScalarInput) {
        e.a = place_of(launch.scalars, env_.leaf(e.op, e.a, 0, 0, e.d));
      }
    }
  }
  static int32_t place_of(std::vector<ExprId>& list, ExprId id) {
    const auto at = std::find(list.begin(), list.end(), id);
    const auto place = int32_t(at - list.begin());
    if (at == list.end()) list.push_back(id);
    return place;
  }

  // Adds an argument to the launch; see ExternCall for the places.
  void extern_argument(ExternLaunch& launch, ArgType type, const Value& v) {
    const auto number = [&](const Scalar& s) { return s.expr ? s.expr : env_.number(s.to_double()); };
    switch (type) {
      case ArgType::kTensor: launch.in.push_back(v.is_none() ? BufferView() : view(v.tensor())); break;
      case ArgType::kTensorList:
        for (const Tensor& t : v.as<std::vector<Tensor>>()) launch.in.push_back(view(t));
        if (info(launch.op).has(kControl)) launch.ints.push_back(expr(int64_t(v.as<std::vector<Tensor>>().size())));
        break;
      case ArgType::kOperand:
        if (v.is<Tensor>()) {
          launch.in.push_back(view(v.tensor()));
          break;
        }
        [[fallthrough]];
      case ArgType::kScalar:
      case ArgType::kFloat: launch.scalars.push_back(number(v.is_none() ? Scalar(NAN) : v.as<Scalar>())); break;
      case ArgType::kInt: launch.ints.push_back(expr(v.is_none() ? SymInt(kNoInt) : v.sym_int())); break;
      case ArgType::kIntList:
        if (v.is_none()) break;
        for (SymInt s : v.as<Sizes>()) launch.ints.push_back(expr(s));
        break;
      case ArgType::kBool: launch.ints.push_back(expr(SymInt(v.as<bool>()))); break;
      case ArgType::kFunction: add_function(launch, graph_of(v.as<FunctionRef>())); break;
      case ArgType::kStr: launch.strings.push_back(v.is_none() ? "" : v.as<std::string>()); break;
      case ArgType::kDType:
      case ArgType::kFloatList:  // only in rows that no graph has
      case ArgType::kDevice: break;
    }
  }

  void launch_join(const ComputeUnit& u, int32_t id) {
    if (u.is_empty()) return;
    std::vector<int32_t> none;
    for (const ElementFunction& part : u.low.writes) {
      GroupKernel writes(units_, none, none);
      writes.build_write(part, id, true);
      add_kernel(writes.body, writes.faults, name(u.node->op), u.node);
    }
  }

  // Copies the input, unless the unit writes in place, then writes over the copy.
  void launch_scatter(const ComputeUnit& u, int32_t id) {
    std::vector<int32_t> none;
    if (!u.is_empty() && u.in_place < 0) {
      GroupKernel copy(units_, none, none);
      copy.build_copy(u.low.reads[0], units_.source_of(id), u.value);
      add_kernel(copy.body, copy.faults, str(name(u.node->op), "_copy"), u.node);
    }
    GroupKernel writes(units_, none, none);
    writes.build_write(u.low.writes[0], id, u.low.independent);
    add_kernel(writes.body, writes.faults, name(u.node->op), u.node);
    std::get<KernelLaunch>(plan_.launches.back()).repeats = u.repeats;
  }

  void output(const Value& v) {
    PlanOutput out;
    if (v.is<Tensor>() && v.tensor()) {
      out.kind = PlanOutput::kTensor;
      out.view = view(v.tensor());
    } else if (v.is<Scalar>()) {
      const Scalar& s = v.as<Scalar>();
      out.kind = PlanOutput::kScalar;
      out.scalar = s.expr ? s.expr : s.kind == Scalar::kNumber ? env_.number(s.d) : env_.constant(s.i);
    }
    plan_.outputs.push_back(std::move(out));
  }

  SymEnv& env_;
  LoweredGraph lowered_;
  ComputeUnits units_;
  const ScheduleOptions& options_;
  Decisions decisions_;
  Plan plan_;
  std::vector<int32_t> buffers_;  // by source
  std::vector<bool> is_output_;
  std::vector<ExprId> symbols_;  // integers that the functions of the current launch read of this graph
};

}  // namespace

void close(Plan& plan, const SymEnv& env) {
  std::vector<bool> used(env.size(), false);
  each_expr(plan, [&](ExprId id) { used[size_t(id)] = true; });
  for (size_t id = used.size(); id-- > 1;) {
    const SymExpr& e = env[ExprId(id)];
    if (used[id] && arity(e.op) >= 1) used[size_t(e.a)] = true;
    if (used[id] && arity(e.op) == 2) used[size_t(e.b)] = true;
  }
  used[0] = true;
  std::vector<ExprId> place(env.size(), 0);
  for (size_t id = 0; id < used.size(); id++) {
    if (!used[id]) continue;
    SymExpr e = env[ExprId(id)];
    if (arity(e.op) >= 1) e.a = place[size_t(e.a)];
    if (arity(e.op) == 2) e.b = place[size_t(e.b)];
    place[id] = ExprId(plan.exprs.size());
    plan.exprs.push_back(e);
  }
  each_expr(plan, [&](ExprId& id) { id = place[size_t(id)]; });
}

Plan schedule(const Graph& graph, LoweredGraph lowered, const ScheduleOptions& options) {
  SymScope scope(graph.env.get());
  return Planner(graph, std::move(lowered), options).run(false);
}

Plan schedule(const Graph& graph, const ScheduleOptions& options) { return schedule(graph, lower(graph), options); }

}  // namespace lutra
