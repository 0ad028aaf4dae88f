// Reads tokens, numbers, expressions and types. The parsers of graph text and lowered text share it.
#pragma once
#include <new>
#include <string>
#include <vector>

#include "ops/core/dtype.h"
#include "ops/core/error.h"
#include "ops/core/sym.h"
#include "ops/core/tensor.h"

namespace lutra {

// A syntax error. Its message names the kind of text and the line.
struct TextError : Error {
  explicit TextError(const std::string& what) : Error(ErrorKind::kUser, what) {}
};

class TextReader {
 public:
  TextReader(const std::string& text, const char* form, SymEnv& env) : text(text), form_(form), env_(env) {}

  [[noreturn]] void error(const std::string& what);
  [[noreturn]] void error_at(int line, const std::string& what);
  // Calls read. An error without a line, such as a meta rule's, gets the line where read began.
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
  std::string quoted();  // in single quotes
  // Returns a number's text. Sets `whole` if it is an integer.
  std::string number(bool& whole);
  int64_t integer();
  int32_t place();  // a non-negative int32
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
  Type type();  // checked: a type that a tensor can have
  // Reads "; file:line" if it is there.
  void read_location(const char*& file, int& number);
  // These read the rest of a line that declares a leaf, a number or an expression, after its first word.
  void read_sym();
  double read_scalar(std::string& name);
  void read_let();
  // Lets this text refer to the numbers that the text around it declares.
  void take_scalars(const TextReader& outer) { scalars_ = outer.scalars_; }

  const std::string& text;
  size_t at = 0;
  int line = 1;

 private:
  // Reads a leaf after "size(", with its hint if the line declares it.
  int32_t leaf(SymOp op, bool declared);

  const char* form_;
  SymEnv& env_;
  int depth_ = 0;
  std::vector<int32_t> lets_;    // the expressions named $0, $1 ...
  std::vector<double> scalars_;  // hints
};

}  // namespace lutra
