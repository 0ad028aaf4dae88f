// The forms in which a public name can be called: the rows of forms.def. A name without rows is called by its op's
// schema.
#pragma once
#include <map>
#include <span>

#include "ops/defs/op.h"

namespace lutra {

struct Form {
  OpId op;
  const char* schema;
  std::vector<ArgInfo> args;  // parsed from schema
  uint32_t flags;             // kMethodOnly, kFunctionOnly
  // For each argument of op: the index of the form's argument that gives it, or -1 for a constant.
  std::vector<int> from;
  Args constants;
  int inplace = -1;  // the form's argument that asks for the in-place form, if the op has no name_

  // Makes the op's arguments from the form's.
  Args op_args(const Args& given) const;
};

// The forms by name, in the order of their rows.
const std::map<std::string, std::vector<Form>, std::less<>>& forms();

struct OtherName {
  const char *name, *of;
  bool copies;  // the results are copied
};
std::span<const OtherName> other_names();

}  // namespace lutra
