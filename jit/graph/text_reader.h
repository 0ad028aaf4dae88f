// Graph text and lowered text as tokens, numbers, expressions and types: what their two parsers share.
#pragma once
#include <new>
#include <string>
#include <vector>

#include "ops/core/dtype.h"
#include "ops/core/error.h"
#include "ops/core/sym.h"
#include "ops/core/tensor.h"

namespace lutra {

// What is wrong with a text: names its form and the line.
struct TextError : Error {
  explicit TextError(const std::string& what) : Error(ErrorKind::kUser, what) {}
};

class TextReader {
 public:
  TextReader(const std::string& text, const char* form, SymEnv& env) : text(text), form_(form), env_(env) {}

  [[noreturn]] void error(const std::string& what);
  [[noreturn]] void error_at(int line, const std::string& what);
  // Runs read, whose errors get the line where it began: those of ops and sizes know none.
  template <class F>
  void placed(const F& read) {
    skip();
    const int begin = line;
    try {
      read();
    } catch (const TextError&) {
      throw;
    } catch (const Error& e) {
      if (e.kind == ErrorKind::kInterrupt) throw;
      error_at(begin, e.what());
    } catch (const std::bad_alloc&) {
      error_at(begin, "there is not so much memory");
    }
  }
  void skip();
  bool peek(const std::string& s);
  bool accept(const std::string& s);
  void expect(const std::string& s);
  std::string word();
  std::string quoted();  // in '
  // A number's text; whole tells an integer.
  std::string number(bool& whole);
  int64_t integer();
  int32_t place();  // an integer from 0 on that fits
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
  Type type();  // one that a tensor may have
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
