// Ops that a host brought, as Lua functions: a schema in; a binding whose calls are nodes of a graph, without a break.
#pragma once
#include "ops/defs/host_op.h"
#include "vm/bind/binding.h"

namespace lutra {

struct HostOp : Binding {
  std::string title;  // "blur", "image::blur"
  std::string text;   // title and schema, as graphs have them
  std::vector<ArgInfo> args;
  size_t results = 1;
  bool has_gradient = false;
  virtual ~HostOp() = default;
  // The results of a call with tensors of these types; numbers are not known.
  virtual std::vector<HostResult> shape(const HostForm& form, const std::vector<HostResult>& tensors) const = 0;
};

// "blur(Tensor x, *, int radius=2) -> Tensor": title, schema and number of results of op. Throws Error(kUser) where it
// is none, or names types that no host's op takes.
void read_host_schema(const std::string& schema, HostOp& op);
// The function of op, which lives as long as the state.
void push_host_op(lua_State* L, const HostOp& op);

}  // namespace lutra
