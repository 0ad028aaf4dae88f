// SIGINT in, an error in Lua out. See interrupt.h.
#include "vm/repl/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <lua.hpp>

#include "ops/core/error.h"

namespace lutra {
namespace {

lua_State* main_state = nullptr;
pthread_t main_thread;
volatile sig_atomic_t running = 0, presses = 0, at_prompt = 0;

constexpr int kPressesToDie = 3;

void stop_hook(lua_State* L, lua_Debug*) {
  lua_sethook(L, nullptr, 0, 0);
  if (!interrupt_wanted.exchange(false)) return;  // a launch has raised it already
  luaL_error(L, "interrupted!");
}

void profiler_tick(void*, lua_State*, int, int) {}

// Lets LuaJIT's traces fall back to its interpreter, which then meets the hook. Without the profiler's handler (a
// program may have stopped it) the signal would end the process.
void leave_traces() {
  struct sigaction now;
  if (sigaction(SIGPROF, nullptr, &now) != 0) return;
  if (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  raise(SIGPROF);
}

void on_interrupt(int) {
  if (!pthread_equal(pthread_self(), main_thread)) {
    pthread_kill(main_thread, SIGINT);
    return;
  }
  if (!running) {
    at_prompt = 1;
    return;
  }
  presses = presses + 1;
  if (presses >= kPressesToDie) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    return;
  }
  if (presses == kPressesToDie - 1) {
    const char text[] = "\nstill running; Control-C once more ends the session\n";
    if (write(2, text, sizeof text - 1) < 0) return;
  }
  interrupt_wanted = true;
  lua_sethook(main_state, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
  leave_traces();
}

}  // namespace

void open_interrupts(lua_State* L) {
  main_state = L;
  main_thread = pthread_self();
  luaJIT_profile_start(L, "li1000000000", profiler_tick, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_interrupt;  // no SA_RESTART: reading stops, too
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

RunScope::RunScope() {
  presses = 0;
  interrupt_wanted = false;
  running = 1;
}

RunScope::~RunScope() {
  running = 0;
  lua_sethook(main_state, nullptr, 0, 0);
  interrupt_wanted = false;
}

bool take_interrupt() {
  const bool came = at_prompt;
  at_prompt = 0;
  return came;
}

}  // namespace lutra
