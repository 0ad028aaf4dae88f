// Verifies element functions statement by statement, so that the parser can name the line of the first wrong one.
#pragma once
#include <string>
#include <vector>

#include "jit/lower/lower.h"

namespace lutra {

class FunctionVerifier {
 public:
  // writes: the function is one of node.low.writes, whose index has no dimensions.
  FunctionVerifier(const LoweredNode& node, const ElementFunction& function, bool writes);
  // Checks the next statement. Returns "" or what is wrong.
  std::string next();
  std::string end();

 private:
  std::string operands(const FunctionStmt& s) const;
  std::string types(const FunctionStmt& s) const;
  std::string place(const Affine& at) const;
  std::string read(const FunctionStmt& s) const;
  std::string write(const FunctionStmt& s);
  bool sees(int32_t v) const { return v >= 0 && size_t(v) < types_.size() && types_[size_t(v)] < DType::kNone; }
  bool is(int32_t v, DType t) const { return sees(v) && types_[size_t(v)] == t; }

  const LoweredNode& node_;
  const ElementFunction& f_;
  bool writes_;
  std::vector<DType> types_;  // of statements; kNone if not visible
  struct Loop {
    int32_t id;
    size_t begin;  // statement
  };
  std::vector<Loop> open_;
  int32_t loops_ = 0;
};

// Checks the parts of a node that are not functions.
std::string verify_form(const LoweredNode& node);

}  // namespace lutra
