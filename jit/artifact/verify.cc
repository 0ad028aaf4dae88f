// Verifies a plan: one that was read may be invalid.
#include "jit/artifact/archive.h"
#include "jit/artifact/artifact.h"
#include "ops/core/error.h"
#include "ops/defs/control.h"
#include "ops/meta/unbacked.h"

namespace lutra {
namespace {

const char* const kOtherArguments = "a launch does not fit the arguments or results of its functions";

class Verifier {
 public:
  explicit Verifier(const Plan& plan) : p_(plan) {}

  std::string run() {
    expressions();
    buffers();
    for (size_t i = 0; i < p_.launches.size() && wrong_.empty(); i++) launch(i);
    outputs();
    for (const SymGuard& g : p_.guards) need(arity(g.cmp) == 1 || g.b > 0, "a guard lacks its second operand");
    for (const int32_t i : p_.mutated) need(is_input(i), "the plan writes to input ", i, ", which it does not have");
    for (size_t i = 0; i < p_.functions.size() && wrong_.empty(); i++) function(i);
    return wrong_;
  }

 private:
  template <class... T>
  void need(bool holds, const T&... what) {
    if (!holds && wrong_.empty()) wrong_ = str(what...);
  }
  bool is_expr(ExprId id) const { return id >= 0 && size_t(id) < p_.exprs.size(); }
  bool is_input(int32_t i) const { return i >= 0 && (p_.positions.empty() || size_t(i) < p_.positions.size()); }
  bool is_buffer(int32_t b) const { return b >= 0 && size_t(b) < p_.buffers.size(); }

  void expressions() {
    need(!p_.exprs.empty(), "no expressions");
    for (size_t id = 1; id < p_.exprs.size(); id++) {
      const SymExpr& e = p_.exprs[id];
      const int n = arity(e.op);
      need(n < 1 || (e.a > 0 && size_t(e.a) < id), "expression ", id, " uses expression ", e.a);
      need(n < 2 || (e.b > 0 && size_t(e.b) < id), "expression ", id, " uses expression ", e.b);
      need(n > 0 || e.a >= 0, "expression ", id, " reads input ", e.a);
    }
    each_expr(p_, [&](ExprId id) { need(is_expr(id), "there is no expression ", id); });
  }

  void buffers() {
    for (size_t i = 0; i < p_.buffers.size(); i++) {
      const Buffer& b = p_.buffers[i];
      const size_t places = b.kind == Buffer::kConstant ? size_t(p_.constants) : p_.slots.size();
      const bool exists = b.kind == Buffer::kInput    ? is_input(b.index)
                          : b.kind == Buffer::kOutput ? true
                                                      : b.index >= 0 && size_t(b.index) < places;
      need(exists, "buffer b", i, " has no place ", b.index);
    }
    for (const int32_t at : p_.positions)
      need(at >= -1 && at < int32_t(p_.positions.size()), "there is no position ", at, " of an input");
    need(p_.constants >= 0, "the plan has ", p_.constants, " constants");
  }

  void view(const BufferView& v, bool absent) {
    need(is_buffer(v.buffer) || (absent && v.buffer == -1), "there is no buffer b", v.buffer);
    need(v.sizes.size() == v.strides.size(), "a view has ", v.sizes.size(), " sizes and ", v.strides.size(),
         " strides");
  }

  void launch(size_t i) {
    if (const auto* e = std::get_if<ExternLaunch>(&p_.launches[i])) {
      for (const BufferView& v : e->in) view(v, true);
      for (const BufferView& v : e->out) view(v, false);
      if (info(e->op).has(kControl) || !e->functions.empty()) control(*e);
      if (info(e->op).dynamic) unbacked(*e);
      return;
    }
    const auto& k = std::get<KernelLaunch>(p_.launches[i]);
    need(k.buffers.size() == k.kernel.params.size() && k.ints.size() == size_t(k.kernel.ints) &&
             k.scalars.size() == size_t(k.kernel.scalars),
         "launch ", i, " of ", k.kernel.name, " has other arguments than the kernel");
    for (const int32_t b : k.buffers) need(is_buffer(b), "launch ", i, ": there is no buffer b", b);
    for (const Fault& f : k.faults)
      need(f.arg >= 0 && f.arg < k.kernel.ints, "launch ", i, " checks n", f.arg, ", which the kernel does not have");
    if (std::string wrong = loop::verify(k.kernel); !wrong.empty()) need(false, "kernel ", k.kernel.name, ": ", wrong);
  }

  // An op that determines a size must name a scalar of the graph for it.
  void unbacked(const ExternLaunch& e) {
    if (!wrong_.empty()) return;
    if (tells_number(e.op)) {
      const ExprId number = e.scalars.empty() ? 0 : e.scalars.back();
      need(number > 0 && p_.exprs[size_t(number)].op == SymOp::kScalarInput && !e.out.empty(),
           "the number that an op determines is not a number of the graph");
    } else {
      const ExprId size = !e.out.empty() && !e.out[0].sizes.empty() ? e.out[0].sizes[0] : 0;
      const SymExpr &n = p_.exprs[size_t(size)], &number = p_.exprs[size_t(n.a)];
      need(size > 0 && n.op == SymOp::kToInt && number.op == SymOp::kScalarInput,
           "a data-dependent size is not a number of the graph");
    }
    size_t in = 0;
    for (const ArgInfo& arg : info(e.op).args) {
      if (arg.type != ArgType::kTensor) continue;
      need(in < e.in.size() && (e.in[in].buffer >= 0 || arg.optional), "a required operand is missing");
      if (!wrong_.empty()) return;
      in++;
    }
  }

  // Each output of a function must have a buffer of its own; the launch passes the memory for it.
  void function(size_t i) {
    const Plan& f = p_.functions[i];
    if (std::string wrong = verify(f); !wrong.empty()) return need(false, "function ", i, ": ", wrong);
    need(f.constants == 0 && f.mutated.empty() && f.rng_calls == 0 && f.guards.empty(), "function ", i,
         " has constants, writes, random numbers or guards");
    for (const PlanOutput& out : f.outputs) {
      const bool own = out.kind == PlanOutput::kTensor && out.view.buffer >= 0 &&
                       f.buffers[size_t(out.view.buffer)].kind == Buffer::kOutput;
      need(own, "function ", i, " returns a result without a buffer of its own");
    }
  }

  // The leaves of a launch's functions must be among what it gives them.
  void leaves(const ExternLaunch& e) {
    need(e.symbols >= 0 && size_t(e.symbols) <= e.ints.size(), "a launch gives its functions ", e.symbols, " numbers");
    for (const int32_t f : e.functions) {
      need(f >= 0 && size_t(f) < p_.functions.size(), "there is no function ", f);
      if (!wrong_.empty()) return;
      const Plan& function = p_.functions[size_t(f)];
      for (const SymExpr& x : function.exprs) {
        const bool own = x.op == SymOp::kSize && size_t(x.a) == function.positions.size();
        need(x.op != SymOp::kStride && (x.op != SymOp::kSize || (own && x.b >= 0 && x.b < e.symbols)), "function ", f,
             " reads a size that its launch does not give");
        need(x.op != SymOp::kScalarInput || size_t(x.a) < e.scalars.size(), "function ", f,
             " reads a number that its launch does not give");
      }
    }
  }

  // Returns the number of arguments of function k of a launch.
  size_t taken(const ExternLaunch& e, size_t k) {
    need(k < e.functions.size(), "a launch has ", e.functions.size(), " functions");
    return wrong_.empty() ? p_.functions[size_t(e.functions[k])].positions.size() : 0;
  }
  // Returns the number of results of function k. Call taken() first, which checks that the function exists.
  size_t given(const ExternLaunch& e, size_t k) const {
    return wrong_.empty() ? p_.functions[size_t(e.functions[k])].outputs.size() : 0;
  }
  // Returns the value of integer argument k, a number of arguments or results.
  size_t number(const ExternLaunch& e, size_t k) {
    need(k < e.ints.size() && p_.exprs[size_t(e.ints[k])].op == SymOp::kConstInt,
         "an argument that counts others is not a constant");
    const int64_t n = wrong_.empty() ? p_.exprs[size_t(e.ints[k])].i : 0;
    need(n >= 0 && n <= int64_t(e.in.size() + e.out.size() + kMaxDims), "an argument counts ", n, " others");
    return wrong_.empty() ? size_t(n) : 0;
  }

  // Returns the number of ints that are not symbols.
  size_t own_ints(const ExternLaunch& e) const { return e.ints.size() - size_t(e.symbols); }

  void cond(const ExternLaunch& e) {
    const size_t in = e.in.size(), out = e.out.size();
    const size_t f = number(e, 0), g = number(e, 1);
    need(own_ints(e) == 2 && in == 1 + f + g && taken(e, 0) == f && taken(e, 1) == g && given(e, 0) == out &&
             given(e, 1) == out,
         kOtherArguments);
  }

  void while_loop(const ExternLaunch& e) {
    const size_t in = e.in.size(), out = e.out.size();
    const size_t carried = number(e, 0), tests = number(e, 1), reads = number(e, 2);
    need(in == carried + tests + reads && taken(e, 0) == carried + tests && taken(e, 1) == carried + reads &&
             given(e, 0) == 1 && given(e, 1) == out && carried <= out && own_ints(e) == 4,
         kOtherArguments);
    need(e.functions.size() == 2 || (taken(e, 2) == in && given(e, 2) == 1 && taken(e, 3) == carried + reads &&
                                     given(e, 3) == carried + kStepsAtOnce * (out - carried)),
         kOtherArguments);
    for (size_t k = carried; wrong_.empty() && k < out; k++)
      need(!e.out[k].sizes.empty(), "a stacked result has no dimension for the steps");
  }

  void while_loop_back(const ExternLaunch& e) {
    const size_t in = e.in.size(), out = e.out.size();
    const size_t carried = number(e, 0), reads = number(e, 1), sums = number(e, 2), back_reads = number(e, 3);
    const size_t rest = 1 + carried + reads + sums + back_reads, saved = number(e, 4);
    need(own_ints(e) == 5 && in == rest + saved && taken(e, 0) == carried + reads && given(e, 0) >= carried,
         kOtherArguments);
    need(wrong_.empty() && (saved == 0 || saved == given(e, 0) - carried), kOtherArguments);
    need(wrong_.empty() && taken(e, 1) == sums + (given(e, 0) - carried) + back_reads && given(e, 1) == sums &&
             out == sums,
         kOtherArguments);
    const size_t functions = e.functions.size();
    if (functions == 2 || !wrong_.empty()) return;
    const size_t made = kStepsAtOnce * (given(e, 0) - carried);
    need(taken(e, 2) == sums + made + back_reads && given(e, 2) == sums, kOtherArguments);
    need(functions == 3 || (taken(e, 3) == carried + reads && given(e, 3) == carried + made), kOtherArguments);
  }

  void scan(const ExternLaunch& e) {
    const size_t in = e.in.size(), out = e.out.size();
    const size_t carried = number(e, 0), slices = number(e, 1), reads = number(e, 3 + slices);
    need(slices > 0 && in == carried + slices + reads && taken(e, 0) == in && given(e, 0) == out && carried <= out &&
             own_ints(e) == 4 + slices,
         kOtherArguments);
    for (size_t k = 0; wrong_.empty() && k < slices; k++) {
      need(number(e, 2 + k) < e.in[carried + k].sizes.size(),
           "a scan goes along a dimension that its input does not have");
    }
  }

  // A launch must have as many arguments and results as its functions.
  void control(const ExternLaunch& e) {
    leaves(e);
    if (!wrong_.empty()) return;
    switch (control_of(e.op)) {
      case Control::kCond: return cond(e);
      case Control::kWhileLoop: return while_loop(e);
      case Control::kWhileLoopBack: return while_loop_back(e);
      case Control::kScan: return scan(e);
      default: need(false, name(e.op), " runs no functions");
    }
  }

  void outputs() {
    for (const PlanOutput& out : p_.outputs) {
      if (out.kind == PlanOutput::kTensor) view(out.view, false);
      need(out.kind != PlanOutput::kScalar || out.scalar > 0, "an output lacks its expression");
    }
  }

  const Plan& p_;
  std::string wrong_;
};

}  // namespace

std::string verify(const Plan& plan) { return Verifier(plan).run(); }

namespace {

PlanOutput::Kind kind_of(const Value& v) {
  if (v.is<Tensor>()) return v.tensor() ? PlanOutput::kTensor : PlanOutput::kNone;
  return v.is<Scalar>() ? PlanOutput::kScalar : PlanOutput::kNone;
}

std::string why_not_of(const Artifact& a, const Graph& graph) {
  const Plan& p = a.plan;
  const size_t constants = constants_of(graph).size(), inputs = graph.inputs.size();
  if (p.positions.empty() ? constants > 0 : p.positions.size() < inputs) return "it has other inputs";
  int32_t next = 0;
  for (size_t i = 0; i < p.positions.size(); i++) {  // a pass may have appended constants
    const bool constant = i >= inputs || graph.inputs[i].constant;
    if (p.positions[i] != (constant ? -1 : next++)) return str("input ", i, " has another position");
  }
  for (const Buffer& b : p.buffers) {
    if (b.kind == Buffer::kInput && size_t(b.index) >= inputs) return str("it reads input ", b.index);
  }
  for (const SymExpr& e : p.exprs) {
    const bool size = e.op == SymOp::kSize || e.op == SymOp::kStride;
    if (size && (size_t(e.a) >= inputs || size_t(e.b) >= graph.inputs[size_t(e.a)].value->sizes.size() ||
                 graph.inputs[size_t(e.a)].constant))
      return str("it reads dimension ", e.b, " of input ", e.a);
    if (e.op == SymOp::kScalarInput && size_t(e.a) >= graph.scalars.size()) return str("it reads number ", e.a);
  }
  for (const int32_t i : p.mutated) {
    if (size_t(i) >= inputs) return str("it writes input ", i);
  }
  for (const Constant& c : a.constants) {
    if (c.given >= 0 && size_t(c.given) >= constants) return str("it reads constant ", c.given);
  }
  if (p.outputs.size() != graph.outputs.size()) return str("it has ", p.outputs.size(), " results");
  for (size_t i = 0; i < p.outputs.size(); i++) {
    if (p.outputs[i].kind != kind_of(graph.outputs[i])) return str("result ", i, " is of another kind");
  }
  if (p.rng_calls != graph.rng_calls) return str("it draws random numbers ", p.rng_calls, " times");
  return "";
}

}  // namespace

void check_serves(const Artifact& artifact, const Graph& graph) {
  const std::string why = why_not_of(artifact, graph);
  if (!why.empty()) throw artifact::Damaged("it is of another graph: " + why);
}

}  // namespace lutra
