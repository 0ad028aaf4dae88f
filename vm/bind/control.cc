// lt._native.control_join, control_border: borders of eager control flow (stdlib/control). They take and return lists
// of tensors.
#include "ops/grad/control_border.h"

#include <lua.hpp>

#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"

namespace lutra {
namespace {

// Returns the tensors of a list; empty if the value is not a table. Throws if an element is not a tensor.
std::vector<Tensor> tensors(lua_State* L, int table) {
  std::vector<Tensor> out;
  const int count = lua_istable(L, table) ? int(lua_objlen(L, table)) : 0;
  for (int i = 1; i <= count; i++) {
    lua_rawgeti(L, table, i);
    const Tensor* t = to_tensor(L, -1);
    if (!t) fail("control: item ", i, " of a list is no tensor");
    out.push_back(*t);
    refresh_view(*t);
    lua_pop(L, 1);
  }
  return out;
}

void push_list(lua_State* L, const std::vector<Tensor>& list) {
  lua_createtable(L, int(list.size()), 0);
  for (size_t i = 0; i < list.size(); i++) {
    push_tensor(L, list[i]);
    lua_rawseti(L, -2, int(i) + 1);
  }
}

// (results, others): joins branches. others[k] lists further tensors that get zero gradients from result k; false:
// none.
int join(lua_State* L) {
  lua_settop(L, 2);
  const std::vector<Tensor> results = tensors(L, 1);
  std::vector<std::vector<Tensor>> others;
  for (size_t k = 0; k < results.size(); k++) {
    lua_rawgeti(L, 2, int(k) + 1);
    others.push_back(tensors(L, 3));
    lua_settop(L, 2);
  }
  push_list(L, join_branches(results, others));
  return 1;
}

// (values, takes, reads, token) -> values, token. Makes a border between two steps of a loop (loop_border).
int border(lua_State* L) {
  lua_settop(L, 4);
  const std::vector<Tensor> values = tensors(L, 1);
  std::vector<bool> takes;
  for (size_t k = 0; k < values.size(); k++) {
    lua_rawgeti(L, 2, int(k) + 1);
    takes.push_back(lua_toboolean(L, -1));
    lua_pop(L, 1);
  }
  const Tensor* token = to_tensor(L, 4);
  const LoopBorder made = loop_border(values, takes, tensors(L, 3), token ? *token : Tensor());
  push_list(L, made.values);
  push_tensor(L, made.token);
  return 2;
}

const Special kControlSpecials[] = {
    {"_native.control_join", kHostEffect, nullptr, join},
    {"_native.control_border", kHostEffect, nullptr, border},
};

}  // namespace

std::span<const Special> control_specials() { return kControlSpecials; }

}  // namespace lutra
