// lt.limits: limits on a call's time, memory and threads.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "ops/defs/modes.h"

struct lua_State;

namespace lutra {

// Implements limits{seconds = n, bytes = n, threads = n}: pushes a function (f, ...) -> f(...) that raises an error
// when n seconds are over or the state would hold more than n bytes. f must not yield across it.
int make_limits(lua_State* L);

struct CallLimits {
  double seconds = 0;
  int64_t bytes = 0;  // bytes that the state may hold: Lua's heap and tensors
  int threads = 0;
  bool any() const { return seconds > 0 || bytes > 0 || threads > 0; }
  bool operator==(const CallLimits&) const = default;
};

// The limits of a call, for a scope; 0: no limit. If `wish` is not null, the call also ends once *wish is set and
// wake() was called for its thread.
class RunLimit {
 public:
  RunLimit(lua_State* L, const CallLimits& limits, const std::atomic<bool>* wish);
  ~RunLimit();
  RunLimit(const RunLimit&) = delete;
  // Returns the message of the limit, of this scope or of an outer one, that ended a call with that status and error;
  // empty if no limit did.
  std::string message(int status, const char* error);
  // Call it if the call ended by itself.
  void returned() { end_ = kOwn; }
  // Returns whether this thread is within a RunLimit scope, of any state.
  static bool runs();

 private:
  std::string own_message(int status, const char* error) const;
  // The modes before the call, which the destructor restores: a limit may end the code that would have restored them.
  // They are read from the state, since they are not installed yet when a host calls.
  const std::shared_ptr<Modes> modes_;
  const bool grad_;
  const AutocastMode autocast_;
  enum { kUnknown, kOwn, kByLimit } end_ = kUnknown;
  RunLimit* const outer_;  // the scope around this one on this thread
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};
// Makes this thread's Lua state leave machine code at its next line, if that polls for it. May be called in a signal
// handler.
void leave_traces(lua_State* L);
// Makes a thread check its `wish` flags. May be called from any thread, and in a signal handler.
void wake(pid_t thread);
// Returns the id that gettid() returns, cached to save the system call.
pid_t this_thread();

// Raises an error with the current line. In a hook that is level 0, not luaL_error's level 1.
void raise_in_hook(lua_State* L, const char* message);

// Makes this state's machine code poll a flag on every line, which a signal handler can set. It uses LuaJIT's profiler
// in line mode, with an interval that never ends.
void keep_line_mode(lua_State* L);
// Does the same if no other state has the line mode, and returns whether it did. It lasts until leave_line_mode, which
// the owner calls before it closes.
bool share_line_mode(lua_State* L);
void leave_line_mode(lua_State* L);

}  // namespace lutra
