// Plan to text, for people and golden tests.
#include <sstream>

#include "jit/graph/text.h"
#include "jit/schedule/plan.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

struct Printer {
  const Plan& p;
  std::ostringstream out;

  std::string expr(ExprId e) { return e ? expr_text(p.exprs, e) : "0"; }
  std::string list(const std::vector<ExprId>& v) {
    std::string s;
    for (size_t i = 0; i < v.size(); i++) s += (i ? ", " : "") + expr(v[i]);
    return s;
  }
  std::string view(const BufferView& v) {
    std::string offset = expr(v.offset);
    return str("b", v.buffer, "[", list(v.sizes), "; ", list(v.strides), offset == "0" ? "" : " + " + offset, "]");
  }

  void buffers() {
    for (size_t i = 0; i < p.buffers.size(); i++) {
      const Buffer& b = p.buffers[i];
      out << "  b" << i << ": ";
      switch (b.kind) {
        case Buffer::kInput: out << "input " << b.index; break;
        case Buffer::kConstant: out << "constant " << b.index; break;
        case Buffer::kOutput: out << "output"; break;
        case Buffer::kTemp: out << "slot " << b.index; break;
      }
      out << " " << info(b.dtype).ir_name << "[" << expr(b.elements) << "]\n";
    }
    for (size_t i = 0; i < p.slots.size(); i++) {
      const ArenaSlot& s = p.slots[i];
      out << "  slot " << i << ": " << expr(s.bytes) << " bytes, launches " << s.first << " to " << s.last << "\n";
    }
  }

  void launch(const KernelLaunch& l) {
    out << (l.beside ? "  beside (" : "  launch (");
    for (size_t i = 0; i < l.buffers.size(); i++) out << (i ? ", " : "") << "b" << l.buffers[i];
    out << "; " << list(l.ints) << "; " << list(l.scalars) << ")";
    if (l.extent) out << " extent " << expr(l.extent) << " work " << expr(l.work);
    if (l.repeats) out << " repeats";
    for (const Fault& f : l.faults) out << " fault(" << f.op << ", n" << f.arg << ", dim " << f.dim << ")";
    if (!l.file.empty()) out << " ; " << l.file << ":" << l.line;
    out << "\n";
    std::istringstream lines(loop::print(l.kernel));
    for (std::string line; std::getline(lines, line);) out << "    " << line << "\n";
  }

  void launch(const ExternLaunch& l) {
    out << "  extern " << name(l.op) << "(";
    for (size_t i = 0; i < l.in.size(); i++) out << (i ? ", " : "") << (l.in[i].buffer < 0 ? "none" : view(l.in[i]));
    if (!l.ints.empty() || !l.scalars.empty()) out << "; " << list(l.ints) << "; " << list(l.scalars);
    for (const std::string& s : l.strings) out << "; '" << s << "'";
    for (int32_t f : l.functions) out << "; function " << f;
    out << ") -> ";
    for (size_t i = 0; i < l.out.size(); i++) out << (i ? ", " : "") << view(l.out[i]);
    if (!l.file.empty()) out << " ; " << l.file << ":" << l.line;
    out << "\n";
  }

  std::string run() {
    out << "plan {\n";
    for (size_t i = 0; i < p.functions.size(); i++) {
      out << "  function " << i << "\n";
      std::istringstream lines(print(p.functions[i]));
      for (std::string line; std::getline(lines, line);) out << "    " << line << "\n";
    }
    buffers();
    for (const Launch& l : p.launches) std::visit([&](const auto& x) { launch(x); }, l);
    if (!p.mutated.empty()) {
      out << "  writes";
      for (int32_t i : p.mutated) out << " input " << i;
      out << "\n";
    }
    out << "  return ";
    for (size_t i = 0; i < p.outputs.size(); i++) {
      const PlanOutput& o = p.outputs[i];
      out << (i ? ", " : "");
      if (o.kind == PlanOutput::kTensor) out << view(o.view);
      if (o.kind == PlanOutput::kScalar) out << expr(o.scalar);
      if (o.kind == PlanOutput::kNone) out << "none";
    }
    out << "\n}\n";
    return out.str();
  }
};

}  // namespace

std::string print(const Plan& plan) { return Printer{plan, {}}.run(); }

}  // namespace lutra
