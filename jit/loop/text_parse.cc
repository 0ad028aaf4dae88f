// Parses the text of loop IR by recursive descent. Malformed text is an Error that names the line.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "jit/loop/loop.h"
#include "ops/core/error.h"

namespace lutra::loop {
namespace {

constexpr int kMaxDepth = 64;        // of nested loops
constexpr int64_t kMaxId = 1 << 24;  // of values, loops and arguments

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  Kernel run() {
    expect("kernel");
    expect("@");
    k_.name = word();
    expect("(");
    params();
    expect(";");
    k_.ints = names("ns", ";");
    k_.scalars = names("x", ")");
    expect("{");
    body(k_.body, 1);
    skip();
    if (pos_ < text_.size()) error("text after the kernel");
    return std::move(k_);
  }

 private:
  [[noreturn]] void error(const std::string& what) {
    int line = 1;
    for (size_t i = 0; i < pos_ && i < text_.size(); i++) line += text_[i] == '\n';
    fail("loop IR, line ", line, ": ", what);
  }
  void skip() {
    while (pos_ < text_.size() && isspace(uint8_t(text_[pos_]))) pos_++;
  }
  static bool is_word(char c) { return isalnum(uint8_t(c)) || c == '_'; }
  bool accept(const std::string& token) {
    skip();
    if (text_.compare(pos_, token.size(), token) != 0) return false;
    const size_t end = pos_ + token.size();
    if (is_word(token.back()) && end < text_.size() && is_word(text_[end])) return false;
    pos_ = end;
    return true;
  }
  void expect(const std::string& token) {
    if (!accept(token)) error("'" + token + "' expected");
  }
  std::string word() {
    skip();
    const size_t begin = pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) pos_++;
    if (begin == pos_) error("a name expected");
    return text_.substr(begin, pos_ - begin);
  }
  int64_t integer() {
    skip();
    const size_t begin = pos_;
    if (pos_ < text_.size() && text_[pos_] == '-') pos_++;
    const size_t digits = pos_;
    while (pos_ < text_.size() && isdigit(uint8_t(text_[pos_]))) pos_++;
    if (digits == pos_) error("a whole number expected");
    errno = 0;
    const int64_t v = strtoll(text_.c_str() + begin, nullptr, 10);
    if (errno == ERANGE) error("number out of range");
    return v;
  }
  double number() {
    skip();
    if (accept("nan")) return std::numeric_limits<double>::quiet_NaN();
    char* end = nullptr;
    const double v = strtod(text_.c_str() + pos_, &end);
    if (end == text_.c_str() + pos_) error("a number expected");
    pos_ = size_t(end - text_.c_str());
    return v;
  }
  int32_t small() {
    const int64_t v = integer();
    if (v < 0 || v >= kMaxId) error("number out of range");
    return int32_t(v);
  }
  // <letter><number>, the letter one of `letters`.
  bool at(const char* letters) {
    skip();
    return pos_ + 1 < text_.size() && std::string(letters).find(text_[pos_]) != std::string::npos &&
           isdigit(uint8_t(text_[pos_ + 1]));
  }
  int32_t numbered(const char* letters) {
    if (!at(letters)) error(std::string("one of '") + letters + "' and a number expected");
    pos_++;
    return small();
  }
  int32_t use() { return see_value(numbered("%")); }
  int32_t see_value(int32_t id) {
    k_.values = std::max(k_.values, id + 1);
    return id;
  }
  int32_t see_loop(int32_t id) {
    k_.loops = std::max(k_.loops, id + 1);
    return id;
  }
  DType type() {
    const std::string w = word();
    const DType t = dtype_from_ir_name(w);
    if (t == DType::kNone) error("no such type: " + w);
    return t;
  }
  Coef coef() { return at("ns") ? Coef::of_arg(numbered("ns")) : Coef::of(integer()); }

  void params() {
    if (accept(";")) {
      pos_--;
      return;
    }
    do {
      if (numbered("p") != int32_t(k_.params.size())) error("pointer arguments are numbered in order");
      expect(":");
      Param p;
      p.type = type();
      p.written = accept("out");
      p.shared = !p.written && accept("shared");
      if (!p.written && !p.shared) expect("in");
      k_.params.push_back(p);
    } while (accept(","));
  }

  int32_t names(const char* letters, const char* end) {
    int32_t n = 0;
    if (accept(end)) return n;
    do {
      if (numbered(letters) != n) error("arguments are numbered in order");
      n++;
    } while (accept(","));
    expect(end);
    return n;
  }

  void body(std::vector<Stmt>& out, int depth) {
    if (depth > kMaxDepth) error("loops are nested too deep");
    while (!accept("}")) {
      if (pos_ >= text_.size()) error("'}' expected");
      if (accept("for"))
        out.push_back(loop(depth));
      else
        out.push_back(inst());
    }
  }

  std::unique_ptr<Loop> loop(int depth) {
    auto l = std::make_unique<Loop>();
    l->id = see_loop(numbered("i"));
    expect("in");
    l->size = coef();
    l->parallel = accept("parallel");
    if (accept("vector")) l->mode = LoopMode::kVector;
    if (accept("lanes")) l->mode = LoopMode::kLanes;
    if (accept("acc")) {
      expect("(");
      do l->accs.push_back(accumulator());
      while (accept(","));
      expect(")");
    }
    expect("{");
    body(l->body, depth + 1);
    return l;
  }

  Accumulator accumulator() {
    Accumulator a;
    a.id = use();
    expect(":");
    const std::string op = word();
    bool found = false;
    for (int i = 0; i <= int(RedOp::kAll) && !found; i++) {
      if (op == name(RedOp(i))) a.op = RedOp(i), found = true;
    }
    if (!found) error("no such reduction: " + op);
    expect(".");
    a.type = type();
    if (at("x")) a.lanes = numbered("x");
    if (accept("by")) a.block = small();
    return a;
  }

  Access access() {
    Access a;
    a.ptr = numbered("p");
    expect("[");
    if (!at("%i")) {
      a.offset = coef();
      if (accept("]")) return a;
      expect("+");
    }
    do {
      Access::Term t;
      t.is_value = at("%");
      t.id = t.is_value ? use() : see_loop(numbered("i"));
      t.stride = accept("*") ? coef() : Coef::of(1);
      a.terms.push_back(t);
    } while (accept("+"));
    expect("]");
    return a;
  }

  Inst inst() {
    Inst in{};
    if (at("%")) {
      in.id = use();
      expect("=");
    }
    const std::string op = word();
    in.op = Op::kCount;
    for (int i = 0; i < int(Op::kCount); i++) {
      if (op == name(Op(i))) in.op = Op(i);
    }
    if (in.op == Op::kCount) error("no such instruction: " + op);
    if (info(in.op).defines() != (in.id >= 0)) error(op + (in.id >= 0 ? " has no result" : " has a result"));
    expect(".");
    in.type = type();
    operands(in);
    return in;
  }

  void operands(Inst& in) {
    switch (in.op) {
      case Op::kConst:
        if (is_float(in.type))
          in.imm = number();
        else
          in.iimm = integer();
        return;
      case Op::kScalar: in.arg = numbered("x"); return;
      case Op::kIntArg: in.arg = numbered("ns"); return;
      case Op::kIndex: in.arg = see_loop(numbered("i")); return;
      case Op::kLoad: in.access = access(); return;
      case Op::kStore:
      case Op::kStoreAdd:
        in.access = access();
        expect(",");
        in.a = use();
        return;
      case Op::kAccum:
        in.arg = use();
        expect(",");
        in.a = use();
        return;
      case Op::kCheck:
        in.a = use();
        expect(",");
        in.arg = numbered("ns");
        return;
      default: break;
    }
    int32_t* const slots[] = {&in.a, &in.b, &in.c};
    for (int i = 0; i < info(in.op).operands; i++) {
      if (i) expect(",");
      *slots[i] = use();
    }
    if (info(in.op).rule == TypeRule::kRandom) {
      expect(",");
      in.arg = small();
    }
  }

  const std::string& text_;
  size_t pos_ = 0;
  Kernel k_;
};

}  // namespace

Kernel parse_kernel(const std::string& text) { return Parser(text).run(); }

}  // namespace lutra::loop
