// What capture and guards read of hooks: which functions run when a leaf's gradient is computed.
#pragma once
#include "ops/core/tensor.h"

struct lua_State;

namespace lutra {

// The function of a hook. Its address is good as long as the tensor's userdata, which leads to it.
struct HookFunction {
  lua_State* L = nullptr;  // of its state; null: no function of a state that lives
  const void* address = nullptr;
};
// Of those that run, the one at place k >= 0, in order of registration; ~k: at place k of those that run when .grad has
// its sum. Null: there are not so many.
const GradHook* hook_at(const Tensor& leaf, int k);
HookFunction function_of(const GradHook& hook);
// The function at place k; nil where there are not so many, false where it is none of this state.
void push_hook(lua_State* L, const Tensor& leaf, int k);

}  // namespace lutra
