// Functions shared only by the files of this folder.
#pragma once
#include "ops/core/tensor.h"

struct lua_State;

namespace lutra {

// Makes the weak table and the metatable of tensors; leaves the metatable (with __gc only) on the stack.
void open_tensor_userdata(lua_State* L);
// The one C function behind every binding; upvalue 1 is the Binding.
int binding_entry(lua_State* L);
// Pushes the userdata of a tensor, or nil if it has none.
void push_known_tensor(lua_State* L, const TensorImpl* t);

// -- describe.cc: fields of the table at the top of the stack
void set_field(lua_State* L, const char* key, const std::string& text);
void set_field(lua_State* L, const char* key, double value);
void set_flag(lua_State* L, const char* key, bool value);

// -- hooks.cc
int register_hook_of(lua_State* L);
int register_post_accumulate_grad_hook_of(lua_State* L);
// Notify the hooks of a tensor that it has got a userdata, at the top of the stack; that its last userdata was
// collected.
void hooks_gain_userdata(lua_State* L, const AutogradMeta& meta);
void hooks_lose_userdata(const AutogradMeta& meta);

// -- lua_node.cc
int make_node_of(lua_State* L);
int checkpoint_of(lua_State* L);  // checkpoint.cc

}  // namespace lutra
