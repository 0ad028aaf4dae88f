// Queries about hooks for capture and guards: which functions run when a leaf's gradient is computed.
#pragma once
#include "ops/core/tensor.h"

struct lua_State;

namespace lutra {

// The function of a hook. Its address is valid as long as the tensor's userdata, which refers to it.
struct HookFunction {
  lua_State* L = nullptr;  // a thread of its state; null if it is not a function of a live state
  const void* address = nullptr;
};
// Returns the hook with index k >= 0 among those that run, in order of registration. ~k is index k among the hooks that
// run after .grad was accumulated. Returns null if there are fewer.
const GradHook* hook_at(const Tensor& leaf, int k);
HookFunction function_of(const GradHook& hook);
// Pushes the function of the hook with index k. Pushes nil if there are fewer, false if it is not a function of this
// state.
void push_hook(lua_State* L, const Tensor& leaf, int k);

}  // namespace lutra
