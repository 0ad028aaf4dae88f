// The forms in which a public name can be called: the rows of forms.def. A name without rows is an op's own.
#pragma once
#include <map>
#include <span>

#include "ops/defs/op.h"

namespace lutra {

struct Form {
  OpId op;
  const char* schema;
  std::vector<ArgInfo> args;  // of schema
  uint32_t flags;             // kMethodOnly, kFunctionOnly
  // For each argument of op: the form's argument that gives it, or -1 and a constant.
  std::vector<int> from;
  Args constants;
  int inplace = -1;  // the form's argument that asks for name_, where the op has none of that name

  // The op's arguments out of the form's.
  Args op_args(const Args& given) const;
};

// By name, in the order of their rows.
const std::map<std::string, std::vector<Form>, std::less<>>& forms();

struct OtherName {
  const char *name, *of;
  bool copies;  // the results
};
std::span<const OtherName> other_names();

}  // namespace lutra
