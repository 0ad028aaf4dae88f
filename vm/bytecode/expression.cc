// Reconstructs the source expression of a slot's value: `h:max():item()`. Reports use it to name values that are not
// locals.
#include <cstdio>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"

namespace lutra::bc {

namespace {

constexpr int kDeepest = 6;

class Expression {
 public:
  explicit Expression(const Proto& p) : p_(p) {}

  std::string of(Pc pc, unsigned slot, int depth = 0) const {
    if (std::string name = local_name(p_, pc, slot); !name.empty()) return name;
    const Pc writer = writer_of(pc, slot);
    return writer && depth < kDeepest ? made_by(writer, slot, depth + 1) : std::string();
  }

 private:
  // Returns the last instruction before pc that wrote the slot, if no jump lies between them; else 0.
  Pc writer_of(Pc pc, unsigned slot) const {
    while (pc-- > 1) {
      const Ins i = p_.code[pc];
      if (!known(i) || info(i).traits & (kJump | kEnds | kCompare)) return 0;
      if (effects(p_, pc).writes[slot]) return pc;
    }
    return 0;
  }

  std::string constant(unsigned k) const {
    const auto* s = k < p_.kgc.size() ? std::get_if<std::string>(&p_.kgc[k]) : nullptr;
    return s ? *s : std::string();
  }

  std::string number(unsigned k) const {
    if (k >= p_.knum.size()) return {};
    if (auto* i = std::get_if<int32_t>(&p_.knum[k])) return std::to_string(*i);
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", std::get<double>(p_.knum[k]));
    return text;
  }

  // Adds parentheses if there is an operator outside of parentheses.
  static std::string whole(const std::string& s) {
    int open = 0;
    for (const char c : s) {
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (c == ' ' && open == 0) return "(" + s + ")";
    }
    return s;
  }

  static std::string join(const std::string& a, const char* op, const std::string& b) {
    return a.empty() || b.empty() ? std::string() : str(whole(a), " ", op, " ", whole(b));
  }

  // Returns the text of a CALL, such as h:max(). The callee was loaded into `base` before.
  std::string call(Pc pc, unsigned base, unsigned slot, unsigned operands, int depth) const {
    const Pc loaded = writer_of(pc, base);
    std::string callee;
    const Ins i = loaded ? p_.code[loaded] : 0;
    if (loaded && op(i) == Op::TGETS) {
      const Ins before = p_.code[loaded - 1];
      const bool method = op(before) == Op::MOV && op_a(before) == base + 2 && op_d(before) == op_b(i);
      const std::string object = whole(of(loaded, op_b(i), depth));
      if (!object.empty()) callee = str(object, method ? ":" : ".", constant(op_c(i)));
      if (method && operands > 0) --operands;
    } else if (loaded) {
      callee = of(pc, base, depth);
    }
    if (callee.empty()) return {};
    const std::string text = callee + (operands > 0 ? "(...)" : "()");
    return slot == base ? text : str("result ", slot - base + 1, " of ", text);
  }

  std::string made_by(Pc pc, unsigned slot, int depth) const {
    const Ins i = p_.code[pc];
    const auto b = [&] { return of(pc, op_b(i), depth); };
    const auto c = [&] { return of(pc, op_c(i), depth); };
    static const char* const kSigns[] = {"+", "-", "*", "/", "%"};
    switch (op(i)) {
      case Op::MOV: return of(pc, op_d(i), depth);
      case Op::GGET: return constant(op_d(i));
      case Op::UGET: return upvalue_name(p_, op_d(i));
      case Op::KSHORT: return std::to_string(static_cast<int16_t>(op_d(i)));
      case Op::KNUM: return number(op_d(i));
      case Op::CALL: return call(pc, op_a(i), slot, op_c(i) - 1, depth);
      case Op::CALLM: return call(pc, op_a(i), slot, 1, depth);
      case Op::TGETS: {
        const std::string object = whole(b());
        return object.empty() ? object : object + "." + constant(op_c(i));
      }
      case Op::TGETB: {
        const std::string object = whole(b());
        return object.empty() ? object : str(object, "[", op_c(i), "]");
      }
      case Op::TGETV: {
        const std::string object = whole(b()), key = c();
        return object.empty() || key.empty() ? std::string() : str(object, "[", key, "]");
      }
      case Op::LEN: {
        const std::string object = whole(of(pc, op_d(i), depth));
        return object.empty() ? object : "#" + object;
      }
      case Op::POW: return join(b(), "^", c());
      default: break;
    }
    if (op(i) >= Op::ADDVN && op(i) <= Op::MODVN)
      return join(b(), kSigns[int(op(i)) - int(Op::ADDVN)], number(op_c(i)));
    if (op(i) >= Op::ADDNV && op(i) <= Op::MODNV)
      return join(number(op_c(i)), kSigns[int(op(i)) - int(Op::ADDNV)], b());
    if (op(i) >= Op::ADDVV && op(i) <= Op::MODVV) return join(b(), kSigns[int(op(i)) - int(Op::ADDVV)], c());
    return {};
  }

  const Proto& p_;
};

}  // namespace

std::string expression_text(const Proto& proto, Pc pc, unsigned slot) { return Expression(proto).of(pc, slot); }

}  // namespace lutra::bc
