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
// Places of hooks that run when .grad has its sum begin there, those of others at 0.
constexpr int kPostAccumulateHooks = 1 << 12;
// Of those that run, the one at place k, in order of registration; null: there are not so many.
const GradHook* hook_at(const Tensor& leaf, int k);
HookFunction function_of(const GradHook& hook);
// The function at place k; nil where there are not so many, false where it is none of this state.
void push_hook(lua_State* L, const Tensor& leaf, int k);

}  // namespace lutra
