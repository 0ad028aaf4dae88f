/* lutra_interrupt from other threads and from a signal's handler, and lutra_set_limits: what runs ends soon, the state
 * goes on. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/host/check.h"
#include "vm/capi/lutra.h"

static lutra_State* S;
static double asked;  /* when the end was asked for */
static int rounds = 3; /* of each program, at random moments; LUTRA_TEST_SCALE times as many */

static double between(double least, double most) { return least + (most - least) * rand() / RAND_MAX; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_for(double seconds) {
  struct timespec t;
  t.tv_sec = (time_t)seconds, t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
  nanosleep(&t, NULL);
}

/* host.begin() says that the program runs: an interrupt before that does nothing. Starts what `alarm_at` asks for. */
static int runs;
static struct itimerval alarm_at;
static int begin(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  (void)state, (void)arg, (void)in, (void)n, (void)out;
  *m = 0;
  __atomic_store_n(&runs, 1, __ATOMIC_RELEASE);
  if (alarm_at.it_value.tv_usec) setitimer(ITIMER_REAL, &alarm_at, NULL);
  return LUTRA_OK;
}

static int run_begun(const char* program) {
  char text[1000];
  int code;
  strcpy(text, "host.begin() ");
  strcat(text, program);
  code = lutra_do_string(S, text, "=loop");
  __atomic_store_n(&runs, 1, __ATOMIC_RELEASE); /* also where it failed before it began: nobody waits for it */
  return code;
}

static void* interrupt_soon(void* arg) {
  while (!__atomic_load_n(&runs, __ATOMIC_ACQUIRE)) wait_for(0.0005);
  wait_for(*(double*)arg);
  asked = now();
  check(lutra_interrupt(S) == LUTRA_OK, "interrupt");
  return NULL;
}

/* The thread sanitizer delivers a signal when the thread next calls a function that it knows: LuaJIT calls none. */
#ifndef __SANITIZE_THREAD__
#define LUA_ALONE(program) program,
#else
#define LUA_ALONE(program)
#endif

static const char* const loops[] = {
    LUA_ALONE("while true do end")
    LUA_ALONE("for i = 1, 1e12 do local x = i * 2 end")
    LUA_ALONE("local t = {} while true do t[#t % 100 + 1] = {#t} end")
    LUA_ALONE("local s = '' while true do s = (s .. 'x'):sub(-50) end")
    LUA_ALONE("while true do string.rep('x', 1e6) end")
    "local x = lt.ones(100) while true do x = x * 1 end",
    "local x = lt.ones(2000, 500) while true do x = x:sin() end",
    "local x = lt.ones(600, 600) while true do x:mm(x) end",
    "local f, x = lt.compile(function(x) return x * 2 + 1 end), lt.ones(3) while true do f(x) end",
    "local f = lt.compile(function(x) for i = 1, 40 do x = (x:sin() + x:cos()):exp():log1p() end return x end)\n"
    "while true do f(lt.ones(1000, 500)) end",
    "while true do lt.compile(function(x) for i = 1, 100 do x = (x * i):sin() + x end return x end)(lt.ones(3)) end",
    LUA_ALONE("while true do pcall(function() while true do end end) end")
    "while true do pcall(function() while true do local x = lt.ones(2) * 2 end end) end",
    LUA_ALONE("local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end")
    LUA_ALONE("coroutine.wrap(function() while true do end end)()")
    "local w = lt.ones(50, {requires_grad = true})\n"
    "while true do local y = w for i = 1, 200 do y = y * 1.01 end y:sum():backward() end",
    "lt.no_grad(function() while true do local x = lt.ones(9) end end)",
    LUA_ALONE("host.again(1e9)")};
static const char own_loop[] =
#ifndef __SANITIZE_THREAD__
    "while true do end";
#else
    "while true do lt.ones(2):sum() end";
#endif
enum { kLoops = sizeof loops / sizeof *loops };

/* host.again(n) runs loops of the program n times, from the host. */
static int again(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  double i;
  (void)arg, (void)out;
  *m = 0;
  for (i = 0; n == 1 && i < in[0].as.number; i++) {
    if (lutra_do_string(state, "for i = 1, 1000 do end", "=again") != LUTRA_OK)
      return lutra_fail(state, lutra_error(state));
  }
  return LUTRA_OK;
}

static void goes_on(const char* after) {
  const int code = lutra_do_string(
      S, "assert(lt.is_grad_enabled()) local f = lt.compile(function(x) return x * 3 end)\n"
         "for i = 1, 3 do assert(f(lt.ones(4)):sum():item() == 12) end local n = 0 for i = 1, 1e5 do n = n + i end\n"
         "assert(n == 5000050000)", "=after");
  if (getenv("LUTRA_TEST_VERBOSE")) fprintf(stderr, "%.3f s late: %.60s\n", now() - asked, after);
  if (code == LUTRA_OK) return;
  ++failures;
  fprintf(stderr, "FAILED after %s: %s\n", after, lutra_error(S));
}

static void ended(int code, const char* text, const char* program, double latest) {
  const double late = now() - asked;
  if (code == LUTRA_ERROR_LIMIT && strstr(lutra_error(S), text) && late < latest) return;
  ++failures;
  fprintf(stderr, "FAILED %s: code %d, %.3f s late: %s\n", program, code, late, lutra_error(S));
}

static void interrupts(double latest) {
  int i, round;
  for (i = 0; i < kLoops; i++) {
    for (round = 0; round < rounds; round++) {
      pthread_t thread;
      double after = between(0.001, 0.07);
      int code;
      __atomic_store_n(&runs, 0, __ATOMIC_RELEASE);
      pthread_create(&thread, NULL, interrupt_soon, &after);
      code = run_begun(loops[i]);
      pthread_join(thread, NULL);
      ended(code, "interrupted!", loops[i], latest);
      goes_on(loops[i]);
    }
  }
}

static void limits(double latest) {
  lutra_Limits l;
  int i, round;
  memset(&l, 0, sizeof l);
  l.size = sizeof l;
  for (i = 0; i < kLoops; i++) {
    for (round = 0; round < rounds; round++) {
      int code;
      l.seconds = between(0.001, 0.07);
      check(lutra_set_limits(S, &l) == LUTRA_OK, "set_limits");
      asked = now() + l.seconds;
      code = lutra_do_string(S, loops[i], "=loop");
      ended(code, "seconds are over", loops[i], latest);
      check(lutra_set_limits(S, NULL) == LUTRA_OK, "no limits");
      goes_on(loops[i]);
    }
  }
  l.seconds = -1;
  check(lutra_set_limits(S, &l) == LUTRA_ERROR_ARGUMENT, "negative seconds");
  l.seconds = 0, l.threads = -1;
  check(lutra_set_limits(S, &l) == LUTRA_ERROR_ARGUMENT, "negative threads");
  check(lutra_set_limits(NULL, &l) == LUTRA_ERROR_STATE && lutra_interrupt(NULL) == LUTRA_ERROR_STATE, "no state");
}

static const char* const hogs[] = {
    "local t = {} while true do t[#t + 1] = {} end",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "local s = 'x' while true do s = s .. s end",
    "return ('x'):rep(1e9)",
    "local t = {} while true do t[#t + 1] = ('x'):rep(1e5) .. #t end",
    "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
    "local t = {} while true do local i = #t t[i + 1] = function() return i end end",
    "local t = {} while true do t[#t + 1] = lt.ones(10000) end",
    "local x = lt.ones(10) while true do x = lt.cat({x, x}) end",
    "return lt.ones(1000, 1000, 1000)",
    "return lt.randn(10000, 10000):sort()",
    "return lt.compile(function(x) return (x:expand(1e9) * 2):sin() end)(lt.ones(1))",
    "local f, t = lt.compile(function(x) return x * 2 end), {lt.ones(1000000)} while true do t[#t + 1] = f(t[#t]) end",
    "local y = lt.ones(100000, {requires_grad = true}) while true do y = y * y:sigmoid() end",
    "local y = lt.ones(1, {requires_grad = true}) while true do y = y + 1 end",
    "local x = lt.ones(1000, 1000) local t = {} while true do t[#t + 1] = x:mm(x) end",
    "return lt.ones(3000, 3000):tolist()",
    "coroutine.wrap(function() local t = {} while true do t[#t + 1] = {} end end)()",
    "local t = {} host.again(1) while true do t[#t + 1] = {} end"};
enum { kHogs = sizeof hogs / sizeof *hogs };

static void bytes(void) {
  lutra_Limits l;
  int i, round;
  memset(&l, 0, sizeof l);
  l.size = sizeof l, l.threads = 1;
  for (i = 0; i < kHogs; i++) {
    for (round = 0; round < rounds; round++) {
      int code;
      l.bytes = (uint64_t)between(16e6, 64e6);
      check(lutra_set_limits(S, &l) == LUTRA_OK, "set_limits");
      code = lutra_do_string(S, hogs[i], "=hog");
      asked = now();
      ended(code, "bytes are used up", hogs[i], 5);
      goes_on(hogs[i]);
      check(lutra_set_limits(S, NULL) == LUTRA_OK, "no limits");
    }
  }
  check(lutra_do_string(S, "lt.ones(2e7)", "=large") == LUTRA_OK, "without the limit");
}

static void on_alarm(int number) {
  (void)number;
  asked = now();
  lutra_interrupt(S);
}

/* What a limit ends within lt.no_grad or lt.autocast, before that puts its mode back. */
static void modes_come_back(void) {
  static const char* const texts[] = {
      "host.begin() lt.set_grad_enabled(false) lt.set_autocast_enabled('cpu', true) while true do lt.ones(2):sum() end",
      "lt.set_grad_enabled(false) lt.set_autocast_enabled('cpu', true) return lt.ones(1000, 1000, 1000)"};
  lutra_Limits l;
  int i;
  memset(&l, 0, sizeof l);
  l.size = sizeof l, l.seconds = 0.02, l.bytes = 64000000;
  for (i = 0; i < 2; i++) {
    check(lutra_set_limits(S, &l) == LUTRA_OK, "set_limits");
    check(lutra_do_string(S, texts[i], "=modes") == LUTRA_ERROR_LIMIT, texts[i]);
    check(lutra_set_limits(S, NULL) == LUTRA_OK, "no limits");
    check(lutra_do_string(S, "assert(lt.is_grad_enabled() and not lt.is_autocast_enabled 'cpu')", "=modes") == LUTRA_OK,
          "modes are as before a call that a limit ended");
  }
  check(lutra_do_string(S, "lt.set_grad_enabled(false)", "=modes") == LUTRA_OK, "off");
  check(lutra_do_string(S, "assert(not lt.is_grad_enabled()) lt.set_grad_enabled(true)", "=modes") == LUTRA_OK,
        "a mode that a call has set stays");
}

/* host.nested(program, who, seconds) runs the program from the host, in this state or another one, after
 * lutra_set_limits where seconds or bytes are given; nested_code is what came of it. */
static lutra_State* other;
static int nested_code;
static int nested(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  lutra_State* who = n > 1 && in[1].as.number != 0 ? other : state;
  lutra_Limits l;
  char program[300];
  (void)arg, (void)out;
  *m = 0;
  strcpy(program, in[0].as.string);
  memset(&l, 0, sizeof l);
  l.size = sizeof l;
  if (n > 2) {
    l.seconds = in[2].as.number < 1000 ? in[2].as.number : 0;
    l.bytes = in[2].as.number < 1000 ? 0 : (uint64_t)in[2].as.number;
    check(lutra_set_limits(who, &l) == LUTRA_OK, "set_limits in a callback");
  }
  nested_code = lutra_do_string(who, program, "=nested");
  if (n > 2) check(lutra_set_limits(who, NULL) == LUTRA_OK, "no limits");
  return LUTRA_OK;
}

static void nested_calls(void) {
  static const struct Row {
    const char* program;
    double seconds;  /* of the outer call */
    int outer, inner;
  } rows[] = {
      {"host.nested('while true do lt.ones(2):sum() end')", 0.03, LUTRA_ERROR_LIMIT, LUTRA_ERROR_LIMIT},
      {"pcall(lt.limits{seconds = 0.03}, host.nested, 'while true do lt.ones(2):sum() end')", 0, LUTRA_OK,
       LUTRA_ERROR_LIMIT},
      {"host.nested('while true do lt.ones(2):sum() end', 0, 0.03)", 0, LUTRA_OK, LUTRA_ERROR_LIMIT},
      {"host.nested('while true do lt.ones(2):sum() end', 0, 0.03)", 900, LUTRA_OK, LUTRA_ERROR_LIMIT},
      {"host.nested('while true do lt.ones(2):sum() end', 0, 900)", 0.03, LUTRA_ERROR_LIMIT, LUTRA_ERROR_LIMIT},
      {"host.nested('local t = {} while true do t[#t + 1] = lt.ones(1e5) end', 0, 3e7)", 0, LUTRA_OK,
       LUTRA_ERROR_LIMIT},
      {"host.nested('error(1)', 0, 900)", 900, LUTRA_OK, LUTRA_ERROR_RUN},
      {"host.nested('while true do lt.ones(2):sum() end', 1)", 0.03, LUTRA_ERROR_LIMIT, LUTRA_ERROR_LIMIT},
      {"host.nested('lt.set_grad_enabled(false) while true do lt.ones(2):sum() end', 1)", 0.03, LUTRA_ERROR_LIMIT,
       LUTRA_ERROR_LIMIT},
      {"host.nested('lt.set_grad_enabled(false) while true do lt.ones(2):sum() end', 0)", 0.03, LUTRA_ERROR_LIMIT,
       LUTRA_ERROR_LIMIT}};
  const char* const modes = "assert(lt.is_grad_enabled())";
  int i, quiet;
  for (quiet = 0; quiet < 2; quiet++) {
    lutra_Options o;
    memset(&o, 0, sizeof o);
    o.size = sizeof o, o.no_interrupt = quiet;
    other = lutra_open(&o);
    for (i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
      lutra_Limits l;
      char program[400];
      memset(&l, 0, sizeof l);
      l.size = sizeof l, l.seconds = rows[i].seconds, nested_code = -1;
      strcpy(program, rows[i].program);
      if (rows[i].outer) strcat(program, " while true do lt.ones(2):sum() end");
      lutra_set_limits(S, &l);
      check(lutra_do_string(S, program, "=nested") == rows[i].outer, rows[i].program);
      lutra_set_limits(S, NULL);
      check(nested_code == rows[i].inner, rows[i].program);
      check(lutra_do_string(other, modes, "=modes") == LUTRA_OK, rows[i].program);
      check(lutra_do_string(S, modes, "=modes") == LUTRA_OK, rows[i].program);
    }
    lutra_close(other);
  }
}

/* An error of the program's own after a refusal that it has caught. */
static void modes_stay(void) {
  lutra_Limits l;
  memset(&l, 0, sizeof l);
  l.size = sizeof l, l.bytes = 32000000;
  lutra_set_limits(S, &l);
  check(lutra_do_string(S, "pcall(lt.ones, 1e8) lt.set_grad_enabled(false) error 'own'", "=own") == LUTRA_ERROR_RUN, "own");
  lutra_set_limits(S, NULL);
  check(lutra_do_string(S, "assert(not lt.is_grad_enabled()) lt.set_grad_enabled(true)", "=modes") == LUTRA_OK,
        "a mode stays where no limit ended the call");
}

static void from_a_handler(double latest) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  alarm_at.it_value.tv_usec = 30000;
  ended(run_begun(own_loop), "interrupted!", "a signal's handler", latest);
  alarm_at.it_value.tv_usec = 0;
  goes_on("a signal's handler");
}

/* Two threads, each with a state of its own and limits. */
static void* with_own_state(void* arg) {
  lutra_State* own = lutra_open(NULL);
  lutra_Limits l;
  int i;
  memset(&l, 0, sizeof l);
  l.size = sizeof l, l.seconds = 0.02;
  for (i = 0; i < 20; i++) {
    lutra_set_limits(own, &l);
    check(lutra_do_string(own, own_loop, "=own") == LUTRA_ERROR_LIMIT, "a limit in a thread");
    lutra_set_limits(own, NULL);
    check(lutra_do_string(own, "assert(lt.ones(2):sum():item() == 2)", "=own") == LUTRA_OK, "and after it");
  }
  lutra_close(own);
  return arg;
}

/* The profiler goes from state to state while others reach their limits: its signal ends no process. */
static void* opens_and_closes(void* arg) {
  const double end = now() + *(double*)arg;
  while (now() < end) {
    lutra_State* own = lutra_open(NULL);
    lutra_Limits l;
    memset(&l, 0, sizeof l);
    l.size = sizeof l, l.seconds = 0.0005;
    lutra_set_limits(own, &l);
    check(lutra_do_string(own, own_loop, "=own") == LUTRA_ERROR_LIMIT, "a limit of a short life");
    lutra_close(own);
  }
  return NULL;
}

static void short_lives(void) {
  pthread_t threads[16];
  double seconds = 0.1 * rounds;
  int i;
  for (i = 0; i < 16; i++) pthread_create(&threads[i], NULL, opens_and_closes, &seconds);
  for (i = 0; i < 16; i++) pthread_join(threads[i], NULL);
}

/* A child of fork() has none of its parent's timers. */
static void in_a_child(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    lutra_Limits limits;
    memset(&limits, 0, sizeof limits);
    limits.size = sizeof limits, limits.seconds = 0.02;
    alarm(20);
    if (lutra_set_limits(S, &limits) != LUTRA_OK) _exit(2);
    _exit(lutra_do_string(S, "local x = lt.ones(100) while true do x = x * 1 end", "=loop") != LUTRA_ERROR_LIMIT);
  }
  check(child > 0 && waitpid(child, &status, 0) == child, "a child");
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a limit in a child");
}

int main(void) {
  /* 50 ms are what is meant; tests run beside others, and under sanitizers. */
  const double latest = 5;
  pthread_t threads[2];
  const char* scale = getenv("LUTRA_TEST_SCALE");
  int i;
  if (scale) rounds = 3 * atof(scale) > 1 ? (int)(3 * atof(scale)) : 1;
  S = lutra_open(NULL);
  if (!S) return fputs(lutra_error(NULL), stderr), 1;
  check(lutra_register(S, "host.again", again, NULL) == LUTRA_OK, "register");
  check(lutra_register(S, "host.nested", nested, NULL) == LUTRA_OK, "register");
  check(lutra_register(S, "host.begin", begin, NULL) == LUTRA_OK, "register");
  check(lutra_interrupt(S) == LUTRA_OK, "nothing runs");
  goes_on("an interrupt of nothing");
  interrupts(latest);
  limits(latest);
  bytes();
  in_a_child();
  from_a_handler(latest);
  modes_come_back();
  modes_stay();
  nested_calls();
  for (i = 0; i < 2; i++) pthread_create(&threads[i], NULL, with_own_state, NULL);
  for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  lutra_close(S);
  check(lutra_interrupt(S) == LUTRA_ERROR_STATE, "a closed state");
  short_lives();
  return failures;
}
