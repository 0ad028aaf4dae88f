// The Runtime of a lua_State and the boundary between C++ errors and Lua errors.
#include "vm/host/runtime.h"

#include <cstring>
#include <lua.hpp>
#include <memory>
#include <new>

#include "ops/core/error.h"

namespace lutra {
namespace {

const char kRuntimeKey = 0, kThreadKey = 0;
thread_local lua_State* current = nullptr;

struct CurrentScope {
  explicit CurrentScope(lua_State* L) : saved(current) { current = L; }
  ~CurrentScope() { current = saved; }
  lua_State* saved;
};

struct Box {
  Runtime* runtime;
};

int collect_runtime(lua_State* L) {
  auto* box = static_cast<Box*>(lua_touserdata(L, 1));
  if (box->runtime) *box->runtime->alive = false;
  delete box->runtime;
  box->runtime = nullptr;
  return 0;
}

Box* find_box(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kRuntimeKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* box = static_cast<Box*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return box;
}

// "FILE:LINE: " of the user's line: the first Lua function on the stack that is not the standard library's own, or the
// first of all.
void push_where(lua_State* L) {
  lua_Debug frame, found;
  bool any = false;
  for (int level = 1; level < 64 && lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline <= 0) continue;
    const bool stdlib = std::strncmp(frame.source, "@lutra/", 7) == 0;
    if (!any || !stdlib) found = frame;
    any = true;
    if (!stdlib) break;
  }
  if (any) {
    lua_pushfstring(L, "%s:%d: ", found.short_src, found.currentline);
  } else {
    lua_pushliteral(L, "");
  }
}

// The message on the stack, with the line in front.
void push_message(lua_State* L, const char* prefix, const char* what) {
  lua_settop(L, 0);
  push_where(L);
  lua_pushstring(L, prefix);
  lua_pushstring(L, what);
  lua_concat(L, 3);
}

}  // namespace

Runtime& runtime(lua_State* L) {
  Box* box = find_box(L);
  if (!box || !box->runtime) fail_internal("Lutra is not open in this Lua state");
  return *box->runtime;
}

void load_environment(Config& config);  // config.cc

bool make_runtime(lua_State* L) {
  if (find_box(L)) return false;
  auto fresh = std::make_unique<Runtime>();
  load_environment(fresh->config);
  lua_pushlightuserdata(L, const_cast<char*>(&kRuntimeKey));
  auto* box = static_cast<Box*>(lua_newuserdata(L, sizeof(Box)));
  box->runtime = nullptr;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, collect_runtime);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  fresh->L = L;
  box->runtime = fresh.release();
  // The thread that opened Lutra may be a coroutine: it lives as long as the state.
  lua_pushlightuserdata(L, const_cast<char*>(&kThreadKey));
  lua_pushthread(L);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return true;
}

lua_State* current_lua() { return current; }

std::weak_ptr<bool> runtime_alive(lua_State* L) { return runtime(L).alive; }

int guarded(lua_State* L, int (*fn)(lua_State*)) {
  {
    CurrentScope scope(L);
    try {
      return fn(L);
    } catch (const std::bad_alloc&) {
      push_message(L, "", "out of memory");
    } catch (const Error& error) {
      push_message(L, error.kind == ErrorKind::kInternal ? "internal error: " : "", error.what());
    } catch (const std::exception& error) {
      push_message(L, "internal error: ", error.what());
    }
  }
  return lua_error(L);
}

}  // namespace lutra
