// Control-C: while a chunk runs it raises an error in Lua, at the prompt it clears the line.
#pragma once

struct lua_State;

namespace lutra {

// Takes SIGINT over for scripts, as luajit does: the first Control-C raises "interrupted!", the second ends the
// process. LuaJIT's machine code sees neither; calls of C functions in it do.
void open_script_interrupts(lua_State* L);

// Takes SIGINT over for the REPL. LuaJIT's profiler is set to its line mode without ever ticking: its machine code then
// looks at a flag on every line, which Control-C sets; without it compiled loops could not be left.
void open_interrupts(lua_State* L);

// While one lives, Control-C raises "interrupted!" in Lua or at the next launch of a kernel, and again until the scope
// ends: a program that catches errors and goes on ends, too. The third Control-C in a row ends the process.
class RunScope {
 public:
  RunScope();
  ~RunScope();
  RunScope(const RunScope&) = delete;
};

// For who handles an error that leaves the program: no more are raised in a row with it.
void forget_errors();

// Whether Control-C came at the prompt since the last call.
bool take_interrupt();

}  // namespace lutra
