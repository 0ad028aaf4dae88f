// One element function after another, statement by statement: the parser names the line of the first that is wrong.
#pragma once
#include <string>
#include <vector>

#include "jit/lower/lower.h"

namespace lutra {

class FunctionVerifier {
 public:
  // writes: a function of node.low.writes, whose index has no dimensions.
  FunctionVerifier(const LoweredNode& node, const ElementFunction& function, bool writes);
  // Of the statement after those that were looked at: empty, or what is wrong.
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
  std::vector<DType> types_;  // of statements that are visible, else kNone
  struct Loop {
    int32_t id;
    size_t begin;  // statement
  };
  std::vector<Loop> open_;
  int32_t loops_ = 0;
};

// Of what is not in functions.
std::string verify_form(const LoweredNode& node);

}  // namespace lutra
