// The read-evaluate-print loop. stdlib/repl formats values, completes names and prints help.
#include "vm/repl/repl.h"

#include <dirent.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <lua.hpp>
#include <string>

#include "vm/capi/lutra.h"
#include "vm/repl/history.h"
#include "vm/repl/interrupt.h"
#include "vm/repl/line_reader.h"

namespace lutra {
namespace {

constexpr char kPrompt[] = "> ", kContinued[] = ">> ";

// -- Lua's side: the table that stdlib/repl returns is at stack index `helpers`

// list(folder) -> the names in it; folders end with "/".
int list_folder(lua_State* L) {
  const char* path = luaL_checkstring(L, 1);
  lua_newtable(L);
  DIR* folder = opendir(path);
  if (!folder) return 1;
  int n = 0;
  while (const dirent* entry = readdir(folder)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    struct stat s;
    const bool is_folder = fstatat(dirfd(folder), entry->d_name, &s, 0) == 0 && S_ISDIR(s.st_mode);
    lua_pushfstring(L, "%s%s", entry->d_name, is_folder ? "/" : "");
    lua_rawseti(L, -2, ++n);
  }
  closedir(folder);
  return 1;
}

// Ends the line that the program printed last, so that the prompt or a value starts a new line.
void end_line() {
  if (isatty(1) && __fpending(stdout) > 0) std::fputs("\n", stdout);
  std::fflush(stdout);
  std::fflush(stderr);
}

int end_line_in_lua(lua_State*) {
  end_line();
  return 0;
}

// Pushes the table of helpers. Returns false and prints a message if it cannot be loaded.
bool push_helpers(lutra_State* S) {
  lua_State* L = lutra_lua(S);
  static const char chunk[] =
      "local lt, use = require 'lutra', nil\n"
      "local loaded = {}\n"
      "local host = {}\n"
      "host.list_folder, host.end_line = ...\n"
      "function use(name)\n"
      "  loaded[name] = loaded[name] or lt._native.stdlib('lutra.' .. name)(lt, use, host)\n"
      "  return loaded[name]\n"
      "end\n"
      "return use 'repl'";
  luaL_loadbuffer(L, chunk, sizeof chunk - 1, "=lutra");
  lua_pushcfunction(L, list_folder);
  lua_pushcfunction(L, end_line_in_lua);
  if (lutra_call(S, 2, 1) == LUTRA_OK) return true;
  std::fprintf(stderr, "lutra: %s\n", lutra_error(S));
  return false;
}

// Calls complete(text), which returns the length of the text to complete and a list of candidates.
Completion complete(lutra_State* S, int helpers, const std::string& text) {
  lua_State* L = lutra_lua(S);
  Completion out;
  const int top = lua_gettop(L);
  lua_getfield(L, helpers, "complete");
  lua_pushlstring(L, text.data(), text.size());
  if (lutra_call(S, 1, 2) == LUTRA_OK && lua_istable(L, -1)) {
    out.partial = size_t(lua_tonumber(L, -2));
    for (int i = 1; i <= int(lua_objlen(L, -1)); i++) {
      lua_rawgeti(L, -1, i);
      if (lua_isstring(L, -1)) out.candidates.emplace_back(lua_tostring(L, -1));
      lua_pop(L, 1);
    }
  }
  lua_settop(L, top);
  return out;
}

// -- inputs

// Calls read(text). Leaves the input's chunk, or the message of its syntax error, on the stack.
enum class Input { kChunk, kWrong, kMore };
Input read_chunk(lutra_State* S, int helpers, const std::string& text) {
  lua_State* L = lutra_lua(S);
  lua_getfield(L, helpers, "read");
  lua_pushlstring(L, text.data(), text.size());
  if (lutra_call(S, 1, 3) != LUTRA_OK) {
    lua_pushstring(L, lutra_error(S));
    return Input::kWrong;
  }
  const bool chunk = lua_isfunction(L, -3), more = lua_toboolean(L, -1);
  lua_pop(L, 1);
  lua_remove(L, chunk ? -1 : -2);
  return chunk ? Input::kChunk : more ? Input::kMore : Input::kWrong;
}

// The handler of a program's errors; upvalue 1: the helpers' on_error.
int on_error(lua_State* L) {
  forget_errors();
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

bool blank(const std::string& text) { return text.find_first_not_of(" \t\n") == std::string::npos; }

class Repl {
 public:
  Repl(lutra_State* S, int helpers) : S_(S), L_(lutra_lua(S)), helpers_(helpers), history_(history_path()) {
    if (isatty(0) && isatty(1)) {
      reader_ = open_editline([this](const std::string& before) { return complete(S_, helpers_, pending_ + before); },
                              history_.load());
    }
    edited_ = reader_ != nullptr;
    if (!reader_) reader_ = open_plain();
  }

  void loop() {
    const int top = lua_gettop(L_);
    std::string text;
    for (Input input = Input::kWrong; read_input(&text, &input); lua_settop(L_, top)) {
      if (blank(text)) continue;
      if (edited_) remember(text);
      input == Input::kChunk ? run() : report(lua_tostring(L_, -1));
    }
    end_line();
    if (isatty(1) || !edited_) std::fputs("\n", stdout);
  }

 private:
  // Reads one input, and leaves its chunk or an error message on the stack. Returns false at the end of the input.
  bool read_input(std::string* text, Input* input) {
    pending_.clear();
    for (;;) {
      end_line();
      std::string line;
      switch (reader_->read(pending_.empty() ? kPrompt : kContinued, &line)) {
        case LineReader::kEnd: return false;
        case LineReader::kInterrupt: pending_.clear(); continue;
        case LineReader::kLine: break;
      }
      *text = pending_ + line;
      if (blank(*text)) return true;
      *input = read_chunk(S_, helpers_, *text);
      if (*input != Input::kMore) return true;
      lua_pop(L_, 1);
      pending_ = *text + "\n";
    }
  }

  void remember(const std::string& text) {
    if (text == last_) return;
    last_ = text;
    reader_->remember(text);
    history_.append(text);
  }

  // Runs the chunk at the top of the stack.
  void run() {
    lua_getfield(L_, helpers_, "on_error");
    lua_pushcclosure(L_, on_error, 1);
    lua_getfield(L_, helpers_, "run");
    lua_pushvalue(L_, -3);
    int status;
    {
      // No other Lua code runs in this scope after the program, since Control-C could still raise errors in it.
      const RunScope scope;
      status = lua_pcall(L_, 1, 0, -3);
    }
    if (status != 0) return report(lua_isstring(L_, -1) ? lua_tostring(L_, -1) : "error in error handling");
    end_line();
  }

  static void report(const char* text) {
    end_line();
    std::fprintf(stderr, "%s\n", text);
  }

  lutra_State* S_;
  lua_State* L_;
  int helpers_;
  History history_;
  std::unique_ptr<LineReader> reader_;
  bool edited_ = false;
  std::string pending_, last_;
};

}  // namespace

int run_repl(lutra_State* S) {
  lua_State* L = lutra_lua(S);
  if (!push_helpers(S)) return 1;
  open_interrupts(L);
  std::printf("Lutra %s (%s). help() tells more, Control-D leaves.\n", lutra_version(), LUAJIT_VERSION);
  Repl(S, lua_gettop(L)).loop();
  return 0;
}

}  // namespace lutra
