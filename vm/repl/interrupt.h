// Control-C: it raises an error in Lua while a chunk runs, and clears the line at the prompt.
#pragma once

struct lua_State;

namespace lutra {

// Handles SIGINT for scripts, as luajit does: the first Control-C raises "interrupted!", the second ends the process.
// LuaJIT's machine code does not notice the first one; calls of C functions from it do.
void open_script_interrupts(lua_State* L);

// Handles SIGINT for the REPL. It starts LuaJIT's profiler in line mode, with an interval that never ends. Machine code
// then polls a flag on every line, which Control-C sets. Otherwise compiled loops could not be stopped.
void open_interrupts(lua_State* L);

// A scope in which Control-C raises "interrupted!" in Lua or at the next kernel launch, again and again until the scope
// ends. So it also stops a program that catches errors and continues. The third Control-C in a row ends the process.
class RunScope {
 public:
  RunScope();
  ~RunScope();
  RunScope(const RunScope&) = delete;
};

// Cancels the remaining errors of the round. Called by the handler of an error that leaves the program.
void forget_errors();

// Returns whether Control-C was pressed at the prompt since the last call.
bool take_interrupt();

}  // namespace lutra
