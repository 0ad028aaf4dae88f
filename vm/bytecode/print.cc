// Prints the listing of a prototype, one line for each instruction: pc, [line], opcode, operands as slot:name,
// constants.
#include <cstdio>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"

namespace lutra::bc {

namespace {

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 32 || c >= 127) {
      char text[8];
      std::snprintf(text, sizeof text, "\\x%02x", c);
      out += text;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + '"';
}

std::string number(double d) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", d);
  double back = 0;
  for (int digits = 1; digits <= 17 && back != d && d == d; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, d);
    std::sscanf(text, "%lf", &back);
  }
  return text;
}

std::string kvalue(const KValue& v) {
  switch (v.index()) {
    case 0: return "nil";
    case 1: return std::get<bool>(v) ? "true" : "false";
    case 2: return std::to_string(std::get<int32_t>(v));
    case 3: return number(std::get<double>(v));
    default: return quoted(std::get<std::string>(v));
  }
}

std::string kgc(const KGC& k) {
  if (auto* s = std::get_if<std::string>(&k)) return quoted(*s);
  if (auto* c = std::get_if<Child>(&k)) return str("proto ", c->proto);
  if (auto* i = std::get_if<int64_t>(&k)) return str(*i, "LL");
  if (auto* u = std::get_if<uint64_t>(&k)) return str(*u, "ULL");
  if (auto* z = std::get_if<std::complex<double>>(&k)) return str(number(z->real()), "+", number(z->imag()), "i");
  std::string out = "{";
  const auto& t = std::get<Template>(k);
  for (size_t i = 1; i < t.array.size(); ++i) out += (out.size() > 1 ? ", " : "") + kvalue(t.array[i]);
  for (const auto& [key, value] : t.hash) out += (out.size() > 1 ? ", [" : "[") + kvalue(key) + "]=" + kvalue(value);
  return out + "}";
}

std::string slot(const Proto& p, Pc pc, unsigned s) {
  const std::string name = local_name(p, pc, s);
  return name.empty() ? std::to_string(s) : str(s, ":", name);
}

std::string operand(const Proto& p, Pc pc, Mode mode, unsigned v) {
  static const char* const kPrimitives[] = {"nil", "false", "true"};
  switch (mode) {
    case Mode::Dst: return slot(p, pc + 1, v);
    case Mode::Var: return slot(p, pc, v);
    case Mode::Uv: return str("u", v, ":", upvalue_name(p, v));
    case Mode::Lits: return std::to_string(static_cast<int16_t>(v));
    case Mode::Pri: return v <= 2 ? kPrimitives[v] : std::to_string(v);
    case Mode::Num:
      if (v >= p.knum.size()) return str("n", v);
      if (auto* i = std::get_if<int32_t>(&p.knum[v])) return std::to_string(*i);
      return number(std::get<double>(p.knum[v]));
    case Mode::Str:
    case Mode::Tab:
    case Mode::Func:
    case Mode::Cdata: return v < p.kgc.size() ? kgc(p.kgc[v]) : str("k", v);
    default: return std::to_string(v);
  }
}

}  // namespace

std::string print_instruction(const Proto& p, Pc pc) {
  const Ins i = p.code[pc];
  char head[64];
  if (!known(i)) return str(pc, " ?", i);
  const OpInfo& row = info(i);
  std::snprintf(head, sizeof head, "%04u [%u] %-6s", pc, p.line(pc), row.name);
  std::string out = head;
  if (row.a != Mode::None) out += " " + operand(p, pc, row.a, op_a(i));
  if (row.b != Mode::None) out += " " + operand(p, pc, row.b, op_b(i)) + " " + operand(p, pc, row.c, op_c(i));
  if (row.b == Mode::None && row.c == Mode::Jump) {
    char target[16];
    std::snprintf(target, sizeof target, " => %04u", jump_target(pc, i));
    out += target;
  } else if (row.b == Mode::None && row.c != Mode::None) {
    out += " " + operand(p, pc, row.c, op_d(i));
  }
  return out;
}

std::string print(const Proto& p) {
  std::string out = str("function params=", +p.num_params, p.vararg() ? "+..." : "", " slots=", +p.framesize,
                        " upvalues=", p.upvalues.size(), "\n");
  for (Pc pc = 1; pc < p.size(); ++pc) out += print_instruction(p, pc) + "\n";
  return out;
}

}  // namespace lutra::bc
