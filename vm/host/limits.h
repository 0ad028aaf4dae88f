// lt.limits: how long a call may take.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

struct lua_State;

namespace lutra {

// limits{seconds = n}: pushes a function (f, ...) -> f(...) that raises an error when n seconds are over. f must not
// yield out of it.
int make_limits(lua_State* L);

class LimitScope;

// What a host's call may take, for a scope: seconds (0: any number), and until *wish is set and its thread woken.
class RunLimit {
 public:
  RunLimit(lua_State* L, double seconds, const std::atomic<bool>* wish);
  ~RunLimit();
  RunLimit(const RunLimit&) = delete;
  bool tells(const std::string& error) const;  // whether a limit of this scope raised it

 private:
  std::unique_ptr<LimitScope> wish_, time_;
};
// Makes a thread look at its wishes. From any thread, and in a signal's handler.
void wake(pid_t thread);

// Raises an error on the line that runs. In a hook that is level 0, not luaL_error's 1.
void raise_in_hook(lua_State* L, const char* message);

// From now on this state's machine code looks at a flag on every line, which a signal's handler sets: LuaJIT's profiler
// in its line mode, without ever ticking.
void keep_line_mode(lua_State* L);
// The same where no other state has it; whether that is so. Until leave_line_mode, which the owner calls before it
// closes.
bool share_line_mode(lua_State* L);
void leave_line_mode(lua_State* L);

}  // namespace lutra
