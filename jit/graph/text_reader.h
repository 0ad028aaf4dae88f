// Graph text and lowered text as tokens, numbers, expressions and types: what their two parsers share.
#pragma once
#include <string>
#include <vector>

#include "ops/core/dtype.h"
#include "ops/core/sym.h"
#include "ops/core/tensor.h"

namespace lutra {

// An error of what it reads is a message that names `form` and the line.
class TextReader {
 public:
  TextReader(const std::string& text, const char* form, SymEnv& env) : text(text), form_(form), env_(env) {}

  [[noreturn]] void error(const std::string& what);
  void skip();
  bool peek(const std::string& s);
  bool accept(const std::string& s);
  void expect(const std::string& s);
  std::string word();
  std::string quoted();  // in '
  // A number's text; whole tells an integer.
  std::string number(bool& whole);
  int64_t integer();
  int64_t whole_number(const std::string& digits);

  // An expression of the env: a constant, a leaf or op(a, b).
  int32_t expr();
  SymInt size();
  Sizes sizes(const char* open, const char* close);
  struct Type {
    DType dtype;
    Sizes sizes, strides;
  };
  DType dtype();
  Type type();
  // "; file:line", where there is one.
  void read_location(const char*& file, int& number);
  // After its first word: a line that declares a leaf, a number or an expression.
  void read_sym();
  double read_scalar(std::string& name);
  void read_let();

  const std::string& text;
  size_t at = 0;
  int line = 1;

 private:
  // After "size(": the leaf, with its hint when it is being declared.
  int32_t leaf(SymOp op, bool declared);

  const char* form_;
  SymEnv& env_;
  int depth_ = 0;
  std::vector<int32_t> lets_;    // what $0, $1 ... stand for
  std::vector<double> scalars_;  // hints
};

}  // namespace lutra
