// Loop IR to text. The form is that of loop.h; parse_kernel reads it back.
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "jit/loop/loop.h"
#include "ops/core/error.h"

namespace lutra::loop {
namespace {

class Printer {
 public:
  explicit Printer(const Kernel& k) : k_(k), is_size_(size_t(std::max(k.ints, 0)), false) { find_sizes(k.body); }

  std::string run() {
    out_ << "kernel @" << k_.name << "(";
    for (size_t i = 0; i < k_.params.size(); i++) {
      out_ << (i ? ", " : "") << "p" << i << ": " << info(k_.params[i].type).ir_name
           << (k_.params[i].written  ? " out"
               : k_.params[i].shared ? " shared"
                                     : " in");
    }
    out_ << ";";
    for (int32_t i = 0; i < k_.ints; i++) out_ << (i ? ", " : " ") << int_arg(i);
    out_ << ";";
    for (int32_t i = 0; i < k_.scalars; i++) out_ << (i ? ", x" : " x") << i;
    out_ << ") {\n";
    body(k_.body, 1);
    out_ << "}\n";
    return out_.str();
  }

 private:
  void mark(int32_t arg) {
    if (arg >= 0 && arg < k_.ints) is_size_[size_t(arg)] = true;
  }
  void find_sizes(const std::vector<Stmt>& stmts) {
    for (const Stmt& s : stmts) {
      if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
        mark((*l)->size.arg);
        find_sizes((*l)->body);
      } else {
        const Inst& in = std::get<Inst>(s);
        if (in.op == Op::kIntArg || in.op == Op::kCheck) mark(in.arg);
      }
    }
  }
  std::string int_arg(int32_t i) const {
    const bool size = i >= 0 && i < k_.ints && is_size_[size_t(i)];
    return (size ? "n" : "s") + std::to_string(i);
  }
  std::string coef(const Coef& c) const { return c.arg >= 0 ? int_arg(c.arg) : std::to_string(c.literal); }

  void body(const std::vector<Stmt>& stmts, int depth) {
    for (const Stmt& s : stmts) {
      if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
        loop(**l, depth);
      } else {
        indent(depth);
        inst(std::get<Inst>(s));
        out_ << "\n";
      }
    }
  }

  void indent(int depth) {
    for (int i = 0; i < depth; i++) out_ << "  ";
  }

  void loop(const Loop& l, int depth) {
    indent(depth);
    out_ << "for i" << l.id << " in " << coef(l.size);
    if (l.parallel) out_ << " parallel";
    if (l.mode == LoopMode::kVector) out_ << " vector";
    if (l.mode == LoopMode::kLanes) out_ << " lanes";
    if (!l.accs.empty()) {
      out_ << " acc(";
      for (size_t i = 0; i < l.accs.size(); i++) {
        const Accumulator& a = l.accs[i];
        out_ << (i ? ", %" : "%") << a.id << ": " << name(a.op) << "." << info(a.type).ir_name;
        if (a.lanes != 1) out_ << " x" << a.lanes;
        if (a.block) out_ << " by " << a.block;
      }
      out_ << ")";
    }
    out_ << " {\n";
    body(l.body, depth + 1);
    indent(depth);
    out_ << "}\n";
  }

  void access(const Access& a) {
    out_ << "p" << a.ptr << "[";
    bool first = true;
    if (a.offset.arg >= 0 || a.offset.literal != 0 || a.terms.empty()) out_ << coef(a.offset), first = false;
    for (const Access::Term& t : a.terms) {
      out_ << (first ? "" : " + ") << (t.is_value ? "%" : "i") << t.id;
      if (!(t.stride == Coef::of(1))) out_ << "*" << coef(t.stride);
      first = false;
    }
    out_ << "]";
  }

  void constant(const Inst& in) {
    if (!is_float(in.type)) {
      out_ << in.iimm;
    } else if (std::isnan(in.imm)) {
      out_ << "nan";
    } else if (std::isinf(in.imm)) {
      out_ << (in.imm < 0 ? "-inf" : "inf");
    } else {
      char buf[40];
      snprintf(buf, sizeof buf, "%.15g", in.imm);
      if (strtod(buf, nullptr) != in.imm) snprintf(buf, sizeof buf, "%.17g", in.imm);
      out_ << buf;
    }
  }

  void inst(const Inst& in) {
    if (in.id >= 0) out_ << "%" << in.id << " = ";
    out_ << name(in.op) << "." << info(in.type).ir_name << " ";
    switch (in.op) {
      case Op::kConst: constant(in); return;
      case Op::kScalar: out_ << "x" << in.arg; return;
      case Op::kIntArg: out_ << int_arg(in.arg); return;
      case Op::kIndex: out_ << "i" << in.arg; return;
      case Op::kLoad: access(in.access); return;
      case Op::kStore:
      case Op::kStoreAdd:
        access(in.access);
        out_ << ", %" << in.a;
        return;
      case Op::kAccum: out_ << "%" << in.arg << ", %" << in.a; return;
      case Op::kCheck: out_ << "%" << in.a << ", " << int_arg(in.arg); return;
      default: break;
    }
    const int32_t operands[] = {in.a, in.b, in.c};
    for (int i = 0; i < info(in.op).operands; i++) out_ << (i ? ", %" : "%") << operands[i];
    if (info(in.op).rule == TypeRule::kRandom) out_ << ", " << in.arg;
  }

  const Kernel& k_;
  std::vector<bool> is_size_;
  std::ostringstream out_;
};

}  // namespace

std::string print(const Kernel& k) { return Printer(k).run(); }

}  // namespace lutra::loop
