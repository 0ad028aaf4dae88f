// A lua_State for one test, with a few helpers; closes it at the end.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <lua.hpp>
#include <string>

#include <catch2/catch.hpp>

#include "tests/golden.h"

namespace lutra {

// Overwrites what it frees, so that the use of a freed prototype shows.
inline void* poisoning_allocator(void*, void* old, size_t old_size, size_t new_size) {
  void* fresh = nullptr;
  if (new_size) {
    fresh = std::malloc(new_size);
    if (!fresh) return nullptr;
    if (old) std::memcpy(fresh, old, std::min(old_size, new_size));
  }
  if (old) std::memset(old, 0xdb, old_size);
  std::free(old);
  return fresh;
}

class LuaState {
 public:
  LuaState() : L(lua_newstate(poisoning_allocator, nullptr)) { luaL_openlibs(L); }
  ~LuaState() { lua_close(L); }
  LuaState(const LuaState&) = delete;
  LuaState& operator=(const LuaState&) = delete;

  // Runs a chunk; its results stay on the stack.
  void run(const std::string& code, const char* name = "=test") {
    const int status = luaL_loadbuffer(L, code.data(), code.size(), name) || lua_pcall(L, 0, LUA_MULTRET, 0);
    INFO(code);
    if (status) FAIL(lua_tostring(L, -1));
  }
  void run_file(const std::string& relative) {
    const std::string path = source_path(relative), name = "@" + relative, text = read_text(relative);
    REQUIRE_FALSE(text.empty());
    run(text, name.c_str());
  }
  std::string dump(int index) {
    std::string out;
    lua_pushvalue(L, index);
    lua_dump(
        L,
        [](lua_State*, const void* p, size_t n, void* ud) {
          static_cast<std::string*>(ud)->append(static_cast<const char*>(p), n);
          return 0;
        },
        &out);
    lua_pop(L, 1);
    return out;
  }
  // The dump of a function written as Lua text, `function(x) ... end`.
  std::string dump_text(const std::string& function) {
    run("return " + function, "=text");
    std::string out = dump(-1);
    lua_pop(L, 1);
    return out;
  }

  lua_State* const L;
};

}  // namespace lutra
