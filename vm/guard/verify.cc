// Verifies that the steps of a guard program use registers, inputs and tables that exist.
#include "vm/guard/program.h"

namespace lutra {
namespace {

struct Verifier {
  const GuardProgram& p;
  int registers = 0;  // number of registers that the steps so far have written
  std::vector<bool> loaded = std::vector<bool>(p.tensors.size());
  std::string wrong{};

  void check(const char* kind, int index, size_t count) {
    if (wrong.empty() && (index < 0 || size_t(index) >= count)) wrong = str("there is no ", kind, " ", index);
  }
  void reg(int r) { check("register", r, size_t(registers)); }
  void tensor(int i) { check("tensor input", i, p.tensors.size()); }
  void load(int i) {
    tensor(i);
    if (!wrong.empty()) return;
    if (loaded[size_t(i)]) wrong = str("tensor input ", i, " is loaded twice");
    loaded[size_t(i)] = true;
  }

  void group(const GuardStep& s) {
    check("group", s.index, p.groups.size());
    if (!wrong.empty()) return;
    const GuardGroup& g = p.groups[size_t(s.index)];
    check("writer", g.writers, g.members.size() + 1);
    for (const auto& [member, upvalue] : g.members) {
      s.op == GuardOp::kDistinctTensorsCheck ? tensor(member) : reg(member);
      check("upvalue", upvalue, 256);
    }
  }

  void memory(const GuardStep& s) {
    check("group", s.index, p.groups.size());
    if (!wrong.empty()) return;
    const auto& members = p.groups[size_t(s.index)].members;
    for (const auto& [member, offset] : members) tensor(member);
    if (!members.empty()) load(members[0].first);
  }

  void symbols() {
    for (int i = 0; i < int(p.symbols.size()); i++) {
      const SymExpr& e = p.symbols[i];
      if (e.op == SymOp::kScalarInput) check("number", e.a, p.scalar_sources.size());
      if (e.op != SymOp::kSize && e.op != SymOp::kStride) continue;
      tensor(e.a);
      if (wrong.empty()) check("dimension", e.b, p.tensors[size_t(e.a)].sizes.size());
    }
  }

  void step(const GuardStep& s) {
    switch (s.op) {
      case GuardOp::kGradLoad: return tensor(s.a), load(s.index);
      case GuardOp::kGradNilCheck: return tensor(s.a);
      case GuardOp::kGradTensorCheck: return tensor(s.index);
      case GuardOp::kDistinctCheck:
      case GuardOp::kDistinctTensorsCheck:
      case GuardOp::kDistinctVariablesCheck:
      case GuardOp::kSameVariableCheck: return group(s);
      case GuardOp::kMemoryCheck: return memory(s);
      case GuardOp::kSymbolsCheck: return symbols();
      case GuardOp::kOverlapCheck:
        for (int i : p.written) tensor(i);
        return;
      case GuardOp::kTensorCheck: load(s.index); break;
      case GuardOp::kNumberCheck: check("number", s.index, p.scalar_sources.size()); break;
      case GuardOp::kKeysCheck: check("list of keys", s.index, p.keys.size()); break;
      default:;
    }
    if (s.a >= 0) reg(s.a);
    if (s.b >= 0) reg(s.b);
  }

  std::string run() {
    for (size_t i = 0; i < p.steps.size(); i++) {
      step(p.steps[i]);
      if (!wrong.empty()) return str("step ", i, ": ", wrong);
      registers += is_load(p.steps[i].op) && p.steps[i].op != GuardOp::kGradLoad;
    }
    return registers == p.registers ? "" : str(registers, " registers are written, not ", p.registers);
  }
};

}  // namespace

std::string verify(const GuardProgram& program) { return Verifier{program}.run(); }

}  // namespace lutra
