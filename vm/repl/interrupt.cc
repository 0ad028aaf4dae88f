// Turns SIGINT into an error in Lua. See interrupt.h. Invariants:
// 1. Control-C starts round 1. A timer starts another round every kRound until the prompt is back. A program has that
//    time to clean up after an error that it caught.
// 2. Round n raises n errors in a row, so each round leaves one more enclosing pcall. Round 2 leaves a loop around a
//    pcall; the code around that loop then cleans up undisturbed.
// 3. Handlers run on a stack of their own: generated kernels of libraries use the stack pointer as a general register,
//    and a signal frame would overwrite their buffers.
#include "vm/repl/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <lua.hpp>

#include "ops/core/error.h"
#include "vm/host/limits.h"

namespace lutra {
namespace {

lua_State* main_state = nullptr;
pthread_t main_thread;
timer_t timer;
bool has_timer = false, is_script = false;
lua_Hook other_hook = nullptr;  // the hook that ours replaces
int other_mask = 0, other_count = 0;
volatile sig_atomic_t running = 0, presses = 0, at_prompt = 0;
volatile sig_atomic_t rounds = 0, errors_left = 0, is_new_round = 0;

int presses_to_die = 3;
constexpr long kRound = 100'000'000;  // nanoseconds

void set_timer(long nanoseconds) {
  const itimerspec time = {{0, nanoseconds}, {0, nanoseconds}};
  if (has_timer) timer_settime(timer, 0, &time, nullptr);
}

void stop_hook(lua_State* L, lua_Debug*) {
  if (is_new_round) {
    is_new_round = 0;
    if (!interrupt_wanted.exchange(false)) errors_left = errors_left - 1;  // a launch has raised one already
  }
  if (errors_left <= 1) lua_sethook(L, other_hook, other_mask, other_count);
  if (errors_left <= 0) return;
  errors_left = errors_left - 1;
  raise_in_hook(L, "interrupted!");
}

// Makes LuaJIT's traces return to its interpreter, which then runs the hook. Without the profiler's handler (a program
// may have stopped it) the signal would end the process.
void leave_traces() {
  struct sigaction now;
  if (sigaction(SIGPROF, nullptr, &now) != 0) return;
  if (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  raise(SIGPROF);
}

void start_round() {
  rounds = rounds + 1;
  errors_left = rounds;
  is_new_round = 1;
  interrupt_wanted = true;
  if (lua_gethook(main_state) != stop_hook) {
    other_hook = lua_gethook(main_state);
    other_mask = lua_gethookmask(main_state), other_count = lua_gethookcount(main_state);
  }
  lua_sethook(main_state, stop_hook, LUA_MASKCOUNT, 1);
  if (!is_script) leave_traces();
}

void press() {
  if (!running && !is_script) {
    at_prompt = 1;
    return;
  }
  presses = presses + 1;
  if (!running || presses >= presses_to_die) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    return;
  }
  if (!is_script && presses == presses_to_die - 1) {
    const char text[] = "\nstill running; Control-C once more ends the session\n";
    if (write(2, text, sizeof text - 1) < 0) return;
  }
  start_round();
  set_timer(kRound);
}

void on_interrupt(int, siginfo_t* info, void*) {
  const bool is_timer = info->si_code == SI_TIMER;
  if (!pthread_equal(pthread_self(), main_thread)) {
    pthread_kill(main_thread, SIGINT);
  } else if (!is_timer) {
    press();
  } else if (running && rounds > 0) {
    start_round();
  }
}

void listen() {
  static char stack[1 << 16];
  stack_t other = {};
  other.ss_sp = stack, other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_interrupt;  // no SA_RESTART: a blocked read stops, too
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void open_script_interrupts(lua_State* L) {
  struct sigaction now;
  if (sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) return;  // a background job of a shell
  main_state = L;
  main_thread = pthread_self();
  is_script = true, presses_to_die = 2;
  listen();
}

void open_interrupts(lua_State* L) {
  main_state = L;
  main_thread = pthread_self();
  is_script = false, presses_to_die = 3;
  keep_line_mode(L);
  listen();
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGINT;
  event._sigev_un._tid = gettid();
  has_timer = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
}

void forget_errors() {
  errors_left = 0;
  if (!main_state || lua_gethook(main_state) != stop_hook) return;
  lua_sethook(main_state, other_hook, other_mask, other_count);
}

RunScope::RunScope() {
  presses = 0;
  rounds = 0;
  interrupt_wanted.exchange(false);
  running = 1;
}

RunScope::~RunScope() {
  running = 0;
  if (rounds > 0) set_timer(0);
  rounds = 0;
  forget_errors();
  interrupt_wanted.exchange(false);
}

bool take_interrupt() {
  const bool came = at_prompt;
  at_prompt = 0;
  return came;
}

}  // namespace lutra
