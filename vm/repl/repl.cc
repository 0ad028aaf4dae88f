// A plain REPL: lines in, the values of expressions out. A chunk that is not complete asks for more lines.
#include "vm/repl/repl.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <lua.hpp>
#include <string>

#include "vm/capi/lutra.h"

namespace lutra {
namespace {

lua_State* interrupted_state = nullptr;

void stop_hook(lua_State* L, lua_Debug*) {
  lua_sethook(L, nullptr, 0, 0);
  luaL_error(L, "interrupted!");
}

// Control-C: the hook raises an error at the next call, return or instruction; a second one ends the process.
void on_interrupt(int) {
  std::signal(SIGINT, SIG_DFL);
  lua_sethook(interrupted_state, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

bool read_line(const char* prompt, std::string* out) {
  std::fputs(prompt, stdout);
  std::fflush(stdout);
  out->clear();
  for (int c; (c = std::getchar()) != EOF;) {
    if (c == '\n') return true;
    out->push_back(char(c));
  }
  return !out->empty();
}

// Whether the message on the stack says that the chunk ends too early.
bool incomplete(lua_State* L, int status) {
  if (status != LUA_ERRSYNTAX) return false;
  const std::string message = lua_tostring(L, -1);
  const char kEof[] = "'<eof>'";
  return message.size() >= sizeof kEof - 1 &&
         message.compare(message.size() - (sizeof kEof - 1), std::string::npos, kEof) == 0;
}

int load(lua_State* L, const std::string& text) { return luaL_loadbuffer(L, text.data(), text.size(), "=stdin"); }

// Prints its arguments by the global print; nothing where there are none.
int show(lua_State* L) {
  const int count = lua_gettop(L);
  if (count == 0) return 0;
  luaL_checkstack(L, 2, "too many results to print");
  lua_getglobal(L, "print");
  lua_insert(L, 1);
  lua_call(L, count, 0);
  return 0;
}

// Pushes the chunk of one input, to be called with `show`. False at the end of the input. An expression is an argument
// of show and not returned: a tail call would lose its line in errors.
bool read_chunk(lua_State* L, int* status) {
  std::string line, text;
  if (!read_line("> ", &text)) return false;
  if (!text.empty() && text[0] == '=') text = text.substr(1);
  for (;;) {
    *status = load(L, "local _lutra_show = ...; _lutra_show(" + text + "\n)");
    if (*status == 0) return true;
    lua_pop(L, 1);
    *status = load(L, text);
    if (!incomplete(L, *status)) return true;
    if (!read_line(">> ", &line)) return true;
    lua_pop(L, 1);
    text += "\n" + line;
  }
}

void print_error(const char* text) { std::fprintf(stderr, "%s\n", text); }

}  // namespace

int run_repl(lutra_State* S) {
  lua_State* L = lutra_lua(S);
  interrupted_state = L;
  std::printf("Lutra %s. Control-D leaves.\n", lutra_version());
  const int top = lua_gettop(L);
  for (int status; read_chunk(L, &status);) {
    if (status != 0) {
      print_error(lua_tostring(L, -1));
    } else {
      std::signal(SIGINT, on_interrupt);
      lua_pushcfunction(L, show);
      const int code = lutra_call(S, 1, 0);
      std::signal(SIGINT, SIG_DFL);
      if (code != LUTRA_OK) print_error(lutra_error(S));
    }
    lua_settop(L, top);
  }
  std::fputs("\n", stdout);
  return 0;
}

}  // namespace lutra
