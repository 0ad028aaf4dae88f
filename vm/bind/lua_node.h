// A tape node whose gradients a Lua function computes (lt.autograd.Function, hooks of modules).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/grad/node_saves.h"
#include "ops/grad/tape.h"
#include "vm/bind/anchor.h"

namespace lutra {

class LuaNode final : public GradNode {
 public:
  // `function` and `context` are stack indices. The function receives the context, the gradients of the results and the
  // saved tensors, and returns the gradients of the inputs. The context's elements 1, 2, ... are functions that it
  // calls.
  LuaNode(std::string title, lua_State* L, int function, int context);
  const char* name() const override { return title_.c_str(); }
  std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool create_graph) override;
  void release() override;
  bool calls_lua() const override { return true; }

  // Null after release().
  const std::shared_ptr<const LuaCallee>& callee() const { return callee_; }
  // Returns edges for the gradients of `count` more results.
  std::vector<Edge> more_results(size_t count);
  size_t results = 0;
  NodeSaves saved;

 private:
  std::string title_;
  std::shared_ptr<const LuaCallee> callee_;
};

}  // namespace lutra
