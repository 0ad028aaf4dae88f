// Sandboxed states. stdlib/sandbox.lua makes the globals of programs; see sandbox.h.
//
// Invariants:
// 1. Programs have globals of their own from the first line on. No function that they can reach leads to the library's.
// 2. Functions that read or write files and addresses also refuse by themselves (check_not_sandboxed), in case a
//    program reaches them.
#include "vm/capi/sandbox.h"

#include <lua.hpp>
#include <string>

#include "vm/bind/save.h"
#include "vm/capi/patterns.h"
#include "vm/host/modes.h"
#include "vm/host/runtime.h"
#include "vm/host/stdlib.h"

namespace lutra::capi {
namespace {

struct FileSource {
  lutra_FileReader read;
  void* arg;
};

struct Bytes {
  std::string text;
  bool full = false;
};

void append(void* to, const char* text, size_t length) {
  auto* bytes = static_cast<Bytes*>(to);
  try {
    if (text && length) bytes->text.append(text, length);
  } catch (const std::exception&) {
    bytes->full = true;
  }
}

// read(name) -> text, or nil if the host has no such file. Upvalue 1: the host's function.
int read_file_impl(lua_State* L) {
  const auto& source = *static_cast<const FileSource*>(lua_touserdata(L, lua_upvalueindex(1)));
  size_t n = 0;
  const char* name = luaL_checklstring(L, 1, &n);
  if (std::string(name).size() != n) fail("a file's name must not contain zeros");
  Bytes bytes;
  if (!source.read || source.read(source.arg, name, append, &bytes) != LUTRA_OK) return 0;
  if (bytes.full) throw Error(ErrorKind::kMemory, str("out of memory: the file '", name, "'"));
  lua_pushlstring(L, bytes.text.data(), bytes.text.size());
  return 1;
}
int read_file(lua_State* L) { return guarded(L, read_file_impl); }

int parse_impl(lua_State* L) {
  size_t n = 0;
  const char* bytes = luaL_checklstring(L, 1, &n);
  push_safetensors(L, bytes, n);
  return 1;
}
int parse(lua_State* L) { return guarded(L, parse_impl); }

// Makes the table at the top of the stack the source of string methods, and pops it. Programs cannot reach it.
void confine_strings(lua_State* L) {
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 3);
}

}  // namespace

void confine(lua_State* L, const lutra_Options& options) {
  keep_globals(L);
  lua_getfield(L, -1, "_native");
  lua_getfield(L, -1, "use");
  lua_pushliteral(L, "sandbox");
  lua_call(L, 1, 1);
  *static_cast<FileSource*>(lua_newuserdata(L, sizeof(FileSource))) = {options.read_file, options.read_file_arg};
  lua_pushcclosure(L, read_file, 1);
  lua_pushcfunction(L, parse);
  push_patterns(L);
  lua_call(L, 3, 3);  // globals, methods of strings, module
  lua_insert(L, -3);
  confine_strings(L);
  lua_replace(L, LUA_GLOBALSINDEX);
  lua_replace(L, -3);  // the module
  lua_pop(L, 1);
  runtime(L).sandboxed = true;
  modes_of(L)->account->cleared = true;
}

const char* chunk_mode(lua_State* L) { return runtime(L).sandboxed ? "t" : "bt"; }

SandboxPause::SandboxPause(lua_State* L) : L_(L), saved_(runtime(L).sandboxed) { runtime(L).sandboxed = false; }
SandboxPause::~SandboxPause() { runtime(L_).sandboxed = saved_; }

}  // namespace lutra::capi
