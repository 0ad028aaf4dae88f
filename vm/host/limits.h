// lt.limits: what a call may take: time, memory, threads.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "ops/defs/modes.h"

struct lua_State;

namespace lutra {

// limits{seconds = n, bytes = n, threads = n}: pushes a function (f, ...) -> f(...) that raises an error when n seconds
// are over, or the state would hold more than n bytes. f must not yield out of it.
int make_limits(lua_State* L);

struct CallLimits {
  double seconds = 0;
  int64_t bytes = 0;  // that the state may hold: Lua's heap and tensors
  int threads = 0;
  bool any() const { return seconds > 0 || bytes > 0 || threads > 0; }
  bool operator==(const CallLimits&) const = default;
};

// What a call may take, for a scope; 0: anything. With a wish it ends, too, once *wish is set and its thread woken.
class RunLimit {
 public:
  RunLimit(lua_State* L, const CallLimits& limits, const std::atomic<bool>* wish);
  ~RunLimit();
  RunLimit(const RunLimit&) = delete;
  // Where a limit of this scope, or of one around it, has ended a call of that status and error: how it says so, else
  // empty.
  std::string told(int status, const char* error);
  // The call came to its own end.
  void returned() { end_ = kOwn; }
  // Whether this thread is within such a scope, of any state.
  static bool runs();

 private:
  std::string told_here(int status, const char* error) const;
  // A limit may end what would put a mode back: what the call found is there again after it. The state's own modes: at
  // a host's call they are not installed yet.
  const std::shared_ptr<Modes> modes_;
  const bool grad_;
  const AutocastMode autocast_;
  enum { kUnknown, kOwn, kByLimit } end_ = kUnknown;
  RunLimit* const outer_;  // of this thread
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};
// Machine code of this thread's Lua state is left at its next line, where it looks at that. Also in a signal's handler.
void leave_traces(lua_State* L);
// Makes a thread look at its wishes. From any thread, and in a signal's handler.
void wake(pid_t thread);
// gettid() without a call of the system.
pid_t this_thread();

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
