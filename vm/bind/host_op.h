// Ops that a host registered, as Lua functions: bindings made from a schema, whose calls become graph nodes without a
// graph break.
#pragma once
#include "ops/defs/host_op.h"
#include "vm/bind/binding.h"

namespace lutra {

struct HostOp : Binding {
  std::string title;  // "blur", "image::blur"
  std::string text;   // title and schema, as they appear in graphs
  std::vector<ArgInfo> args;
  size_t results = 1;
  bool has_gradient = false;
  virtual ~HostOp() = default;
  // Returns the types of a call's results for tensors of these types. The values of floats are unknown.
  virtual std::vector<HostResult> shape(const HostForm& form, const std::vector<HostResult>& tensors) const = 0;
};

// Parses a schema such as "blur(Tensor x, *, int radius=2) -> Tensor" into title, arguments and number of results of
// op. Throws Error(kUser) if it is malformed or has a type that host ops do not support.
void read_host_schema(const std::string& schema, HostOp& op);
// Pushes the function of op. op must live as long as the state.
void push_host_op(lua_State* L, const HostOp& op);

}  // namespace lutra
