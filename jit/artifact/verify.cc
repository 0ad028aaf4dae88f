// What a plan says of itself, checked: a plan that was read may lie.
#include "jit/artifact/artifact.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

class Verifier {
 public:
  explicit Verifier(const Plan& plan) : p_(plan) {}

  std::string run() {
    expressions();
    buffers();
    for (size_t i = 0; i < p_.launches.size() && wrong_.empty(); i++) launch(i);
    outputs();
    for (const SymGuard& g : p_.guards) need(arity(g.cmp) == 1 || g.b > 0, "a guard without its second operand");
    for (const int32_t i : p_.mutated) need(is_input(i), "a write to input ", i);
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
      need(n < 1 || (e.a > 0 && size_t(e.a) < id), "expression ", id, " uses ", e.a);
      need(n < 2 || (e.b > 0 && size_t(e.b) < id), "expression ", id, " uses ", e.b);
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
      need(exists, "buffer b", i, " has place ", b.index);
    }
    for (const int32_t at : p_.positions) need(at >= -1 && at < int32_t(p_.positions.size()), "an input at ", at);
    need(p_.constants >= 0, p_.constants, " constants");
  }

  void view(const BufferView& v, bool absent) {
    need(is_buffer(v.buffer) || (absent && v.buffer == -1), "there is no buffer b", v.buffer);
    need(v.sizes.size() == v.strides.size(), "a view of ", v.sizes.size(), " sizes and ", v.strides.size(), " strides");
  }

  void launch(size_t i) {
    if (const auto* e = std::get_if<ExternLaunch>(&p_.launches[i])) {
      for (const BufferView& v : e->in) view(v, true);
      for (const BufferView& v : e->out) view(v, false);
      return;
    }
    const auto& k = std::get<KernelLaunch>(p_.launches[i]);
    need(k.buffers.size() == k.kernel.params.size() && k.ints.size() == size_t(k.kernel.ints) &&
             k.scalars.size() == size_t(k.kernel.scalars),
         "launch ", i, " of ", k.kernel.name, " has other arguments than the kernel");
    for (const int32_t b : k.buffers) need(is_buffer(b), "launch ", i, ": there is no buffer b", b);
    for (const Fault& f : k.faults) need(f.arg >= 0 && f.arg < k.kernel.ints, "launch ", i, " checks n", f.arg);
    if (std::string wrong = loop::verify(k.kernel); !wrong.empty()) need(false, "kernel ", k.kernel.name, ": ", wrong);
  }

  void outputs() {
    for (const PlanOutput& out : p_.outputs) {
      if (out.kind == PlanOutput::kTensor) view(out.view, false);
      need(out.kind != PlanOutput::kScalar || out.scalar > 0, "an output without its expression");
    }
  }

  const Plan& p_;
  std::string wrong_;
};

}  // namespace

std::string verify(const Plan& plan) { return Verifier(plan).run(); }

}  // namespace lutra
