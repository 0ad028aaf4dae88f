// Turns text into tokens, numbers, expressions and types. Each error names its line.
#include "jit/graph/text_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "ops/core/error.h"
#include "ops/core/intern.h"

namespace lutra {
namespace {

// Limits the nesting of an expression. The printer names large expressions ($n), so printed ones are flat.
struct Nested {
  Nested(TextReader& r, int& depth) : depth(depth) {
    if (depth >= 200) r.error("an expression is nested too deeply");
    depth++;
  }
  ~Nested() { depth--; }
  int& depth;
};

}  // namespace

void TextReader::error(const std::string& what) { error_at(line, what); }

void TextReader::error_at(int where, const std::string& what) {
  throw TextError(str(form_, ", line ", where, ": ", what));
}

void TextReader::skip() {
  for (; at < text.size() && isspace(static_cast<unsigned char>(text[at])); at++) line += text[at] == '\n';
}

bool TextReader::peek(const std::string& s) {
  skip();
  return text.compare(at, s.size(), s) == 0;
}

bool TextReader::accept(const std::string& s) {
  if (!peek(s)) return false;
  if (isalpha(static_cast<unsigned char>(s[0])) && at + s.size() < text.size()) {
    char c = text[at + s.size()];
    if (isalnum(static_cast<unsigned char>(c)) || c == '_') return false;
  }
  at += s.size();
  return true;
}

void TextReader::expect(const std::string& s) {
  if (!accept(s)) error("expected '" + s + "'" + (at < text.size() ? " before '" + text.substr(at, 12) + "'" : ""));
}

std::string TextReader::word() {
  skip();
  size_t b = at;
  while (at < text.size() && (isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) at++;
  if (b == at) error("expected a name");
  return text.substr(b, at - b);
}

std::string TextReader::quoted() {
  expect("'");
  std::string s;
  for (; at < text.size() && text[at] != '\''; at++) {
    if (text[at] == '\\' && at + 1 < text.size()) at++;
    s += text[at];
  }
  if (at >= text.size()) error("a string without its end");
  at++;
  return s;
}

std::string TextReader::number(bool& whole) {
  skip();
  size_t b = at;
  if (at < text.size() && text[at] == '-') at++;
  while (at < text.size() && (isalnum(static_cast<unsigned char>(text[at])) || text[at] == '.' ||
                              ((text[at] == '-' || text[at] == '+') && text[at - 1] == 'e'))) {
    at++;
  }
  std::string s = text.substr(b, at - b);
  whole = !s.empty() && s.find_first_not_of("-0123456789") == std::string::npos;
  char* end = nullptr;
  std::strtod(s.c_str(), &end);
  if (s.empty() || *end) error("expected a number, got '" + s + "'");
  return s;
}

int64_t TextReader::integer() {
  bool whole;
  std::string s = number(whole);
  if (!whole) error("expected an integer, got '" + s + "'");
  return whole_number(s);
}

int32_t TextReader::place() {
  const int64_t v = integer();
  if (v < 0 || v > INT32_MAX) error(str("number out of range: ", v));
  return int32_t(v);
}

int64_t TextReader::whole_number(const std::string& s) {
  errno = 0;
  const int64_t v = std::strtoll(s.c_str(), nullptr, 10);
  if (errno == ERANGE) error("number out of range: " + s);
  return v;
}

int32_t TextReader::expr() {
  skip();
  SymEnv& env = env_;
  if (accept("$")) {
    const int64_t n = integer();
    if (n < 0 || size_t(n) >= lets_.size()) error(str("$", n, " is not defined"));
    return lets_[size_t(n)];
  }
  Nested nested(*this, depth_);
  if (at < text.size() && isalpha(static_cast<unsigned char>(text[at])) && !peek("inf") && !peek("nan")) {
    std::string w = word();
    expect("(");
    for (int i = 0; i <= int(kLastSymOp); i++) {
      SymOp op = SymOp(i);
      if (w != name(op)) continue;
      if (arity(op) == 0) return leaf(op, false);
      int32_t a = expr(), b = 0;
      if (arity(op) == 2) expect(","), b = expr();
      expect(")");
      const bool divides = op == SymOp::kFloorDiv || op == SymOp::kMod;
      if (divides && env[b].i == 0) error("division by zero");
      return env.make(op, a, b);
    }
    error("unknown host op '" + w + "'");
  }
  bool whole;
  std::string s = number(whole);
  return whole ? env.constant(whole_number(s)) : env.number(std::strtod(s.c_str(), nullptr));
}

int32_t TextReader::leaf(SymOp op, bool declared) {
  const int32_t a = place();
  int32_t b = 0;
  if (op != SymOp::kScalarInput) expect(","), b = place();
  expect(")");
  if (op == SymOp::kScalarInput && size_t(a) >= scalars_.size()) error("scalar input out of range");
  int64_t hint = 0;
  if (declared) expect("="), hint = integer();
  if (declared && op == SymOp::kSize) {
    SymRange range{0, INT64_MAX};
    if (accept("in")) {
      range.low = integer();
      expect("to");
      range.high = integer();
    }
    if (!range.contains(hint)) error("a size outside of its range");
    env_.assume_sizes(range);
  }
  double d = op == SymOp::kScalarInput ? scalars_[size_t(a)] : 0;
  return env_.leaf(op, a, b, hint, d);
}

SymInt TextReader::size() {
  int32_t id = expr();
  if (is_number(env_[id].op)) error("a size must be an integer");
  return SymInt::of_expr(env_, id);
}

Sizes TextReader::sizes(const char* open, const char* close) {
  Sizes v;
  expect(open);
  while (!accept(close)) {
    if (!v.empty()) expect(",");
    v.push_back(size());
  }
  return v;
}

DType TextReader::dtype() {
  const std::string w = word();
  const DType t = dtype_from_ir_name(w);
  if (t == DType::kNone) error("unknown type '" + w + "'");
  return t;
}

TextReader::Type TextReader::type() {
  const DType t = dtype();
  Sizes s = sizes("[", "]");
  expect("strides");
  Sizes st = sizes("[", "]");
  if (s.size() != st.size()) error("as many strides as sizes are expected");
  if (s.size() > kMaxDims) error("too many dimensions");
  int64_t elements = 1;
  for (const SymInt& n : s) {
    if (n.hint < 0) error("a negative size");
    if (n.hint > 0 && __builtin_mul_overflow(elements, n.hint, &elements)) error("a tensor with too many elements");
  }
  return {t, s, st};
}

void TextReader::read_location(const char*& file, int& number) {
  if (!accept(";")) return;
  skip();
  const size_t end = std::min(text.find('\n', at), text.size());
  const size_t colon = text.rfind(':', end);
  if (colon == std::string::npos || colon < at) error("expected file:line");
  file = intern(text.substr(at, colon - at));
  number = std::atoi(text.c_str() + colon + 1);
  at = end;
}

void TextReader::read_sym() {
  const std::string w = word();
  expect("(");
  if (w != "size" && w != "stride") error("expected size or stride");
  leaf(w == "size" ? SymOp::kSize : SymOp::kStride, true);
}

double TextReader::read_scalar(std::string& name) {
  name = quoted();
  expect("=");
  bool whole;
  const std::string s = number(whole);
  scalars_.push_back(std::strtod(s.c_str(), nullptr));
  return scalars_.back();
}

void TextReader::read_let() {
  expect("$");
  if (size_t(integer()) != lets_.size()) error("expressions are numbered in order");
  expect("=");
  lets_.push_back(expr());
}

}  // namespace lutra
