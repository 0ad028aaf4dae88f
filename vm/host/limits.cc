// lt.limits{seconds = n}(f, ...): runs f, and stops it by an error when its time is over. Calls of a host stop in the
// same way, also when another thread requests it. heap.cc implements the limit of bytes.
//
// Invariants:
// 1. A signal on the thread that runs f, from a timer or from wake(), sets stop_reason, which C++ code polls, and a Lua
//    hook. Nothing else happens before the time is over.
// 2. The hook raises n errors in round n, with one round each kRound. So f may clean up after an error that it caught,
//    and leaves one more pcall in each round.
// 3. Of nested limits, the error names the outermost one whose time is over.
// 4. The previous hook is restored when f has returned or failed. The signal's action and the thread's timer and signal
//    stack stay, since other threads may have limits and a signal may still be pending.
#include "vm/host/limits.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <lua.hpp>
#include <memory>
#include <optional>
#include <string>

#include "jit/runtime/pool.h"
#include "ops/core/clock.h"
#include "ops/core/closest.h"
#include "ops/core/error.h"
#include "ops/core/interrupt.h"
#include "ops/defs/autocast.h"
#include "vm/host/callable.h"
#include "vm/host/heap.h"
#include "vm/host/modes.h"
#include "vm/host/runtime.h"

namespace lutra {

void raise_in_hook(lua_State* L, const char* message) {
  luaL_where(L, 0);
  lua_pushstring(L, message);
  lua_concat(L, 2);
  lua_error(L);
}

namespace {

constexpr long kRound = 200'000'000;  // nanoseconds
// A round lasts until the thread has had kMinCpu of CPU time to clean up, or for kLongestRound.
constexpr double kMinCpu = 0.02, kLongestRound = 5;  // seconds

int signal_number() { return SIGRTMIN + 7; }

// The owner of LuaJIT's profiler in line mode, which never ticks: traces then poll a flag on every line. Only one Lua
// state of the process can have it. Another state compiles no traces while it has limits.
std::atomic<const void*> line_mode_owner{nullptr};

void tick(void*, lua_State*, int, int) {}

const void* identity_of(lua_State* L) { return lua_topointer(L, LUA_REGISTRYINDEX); }

// Starts the profiler; only for the state that owns the line mode. It installs a SIGPROF handler, so that a signal
// after the profiler has stopped does not end the process.
void start_profiler(lua_State* L) {
  static const bool harmless = [] {
    struct sigaction now;
    if (sigaction(SIGPROF, nullptr, &now) != 0 || now.sa_flags & SA_SIGINFO || now.sa_handler != SIG_DFL) return false;
    now.sa_handler = [](int) {};
    return sigaction(SIGPROF, &now, nullptr) == 0;
  }();
  (void)harmless;
  luaJIT_profile_start(L, "li1000000000", tick, nullptr);
}

}  // namespace

class LeavableTraces {
 public:
  explicit LeavableTraces(lua_State* L) : L_(L) {
    const void* expected = nullptr;
    owner_ = line_mode_owner.compare_exchange_strong(expected, identity_of(L));
    if (owner_) start_profiler(L);
    if (owner_ || expected == identity_of(L)) return;
    stopped_ = is_on(L);
    if (stopped_) luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  }
  ~LeavableTraces() {
    if (stopped_) luaJIT_setmode(L_, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_ON);
    if (!owner_) return;
    luaJIT_profile_stop(L_);
    line_mode_owner = nullptr;
  }
  LeavableTraces(const LeavableTraces&) = delete;

 private:
  static bool is_on(lua_State* L) {
    const int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
    lua_getfield(L, -1, "jit");
    bool on = false;
    if (lua_istable(L, -1)) {
      lua_getfield(L, -1, "status");
      on = lua_isfunction(L, -1) && lua_pcall(L, 0, 1, 0) == 0 && lua_toboolean(L, -1);
    }
    lua_settop(L, top);
    return on;
  }
  lua_State* L_;
  bool owner_ = false, stopped_ = false;
};

// Does nothing for a state other than the owner: the profiler's handler would act on the state that another thread
// runs, or the profiler may just have stopped.
void leave_traces(lua_State* L) {
  if (line_mode_owner != identity_of(L)) return;
  struct sigaction profiler;
  if (sigaction(SIGPROF, nullptr, &profiler) != 0) return;
  if (!(profiler.sa_flags & SA_SIGINFO) && (profiler.sa_handler == SIG_DFL || profiler.sa_handler == SIG_IGN)) return;
  raise(SIGPROF);  // makes traces return to the interpreter, which runs the hook
}

namespace {

struct Message {
  char text[64];
};

// Returns the message of a time limit. It is cached, since a host usually sets the same limit for most calls.
const Message& time_message(double seconds) {
  static thread_local double last = 0;
  static thread_local Message message;
  if (seconds != last) {
    snprintf(message.text, sizeof message.text, "limits: %.14g seconds are over", seconds);
    last = seconds;
  }
  return message;
}

struct Limit {
  Limit* outer;
  double deadline;  // infinite: none
  const std::atomic<bool>* wish;
  Message message;
  bool over(double t) const { return deadline <= t || (wish && wish->load(std::memory_order_relaxed)); }
};

void on_signal(int);

// Returns how often this process was forked since the first call. A child does not inherit its parent's timers and
// thread ids.
int forks() {
  static std::atomic<int> count{0};
  [[maybe_unused]] static const int counts = pthread_atfork(nullptr, nullptr, [] { count++; });
  return count.load(std::memory_order_relaxed);
}

// A thread's timer, and a signal stack if the thread has none.
class Alarm {
 public:
  Alarm() {
    static const bool listening = [] {
      struct sigaction action = {};
      action.sa_handler = on_signal;
      action.sa_flags = SA_ONSTACK;  // no SA_RESTART: waiting for input stops, too
      sigemptyset(&action.sa_mask);
      return sigaction(signal_number(), &action, nullptr) == 0;
    }();
    if (!listening) fail_timer();
    make_timer();
    stack_t now = {};
    if (sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE)) return;
    stack_.reset(new char[kStack]);
    stack_t own = {};
    own.ss_sp = stack_.get(), own.ss_size = kStack;
    sigaltstack(&own, nullptr);
  }
  ~Alarm() {
    if (forks_ == forks()) timer_delete(timer_);
    stack_t now = {}, none = {};
    none.ss_flags = SS_DISABLE;
    if (stack_ && sigaltstack(nullptr, &now) == 0 && now.ss_sp == stack_.get()) sigaltstack(&none, nullptr);
  }
  Alarm(const Alarm&) = delete;
  // Makes a new timer in a forked child.
  void follow_fork() {
    if (forks_ != forks()) make_timer();
  }
  // Sets the timer to expire in `first` seconds and then each kRound; never if `first` is infinite. May be called in a
  // signal handler.
  void set(double first) {
    const bool ever = first < INFINITY;
    if ((!ever && !set_) || forks_ != forks()) return;
    set_ = ever;
    const double left = std::min(std::max(first, 1e-6), 1e9);
    itimerspec time = {};
    if (ever) time = {{0, kRound}, {time_t(left), long((left - std::floor(left)) * 1e9)}};
    timer_settime(timer_, 0, &time, nullptr);
  }

 private:
  [[noreturn]] static void fail_timer() { fail("limits: the system gives no timer"); }
  void make_timer() {
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = signal_number();
    event._sigev_un._tid = gettid();
    if (timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) fail_timer();
    forks_ = forks();
    set_ = false;
  }

  static constexpr size_t kStack = 1 << 16;
  std::unique_ptr<char[]> stack_;
  timer_t timer_ = {};
  int forks_ = -1;
  bool set_ = false;
};

// The thread's watch; it exists while the thread has limits.
struct LimitWatch {
  explicit LimitWatch(lua_State* L) : L(L), alarm(thread_alarm()) {
    hook = lua_gethook(L), mask = lua_gethookmask(L), count = lua_gethookcount(L);
  }
  ~LimitWatch() {
    alarm.set(INFINITY);
    stop_reason = nullptr;
    lua_sethook(L, hook, mask, count);
  }
  LimitWatch(const LimitWatch&) = delete;

  static Alarm& thread_alarm() {
    static thread_local Alarm alarm;
    alarm.follow_fork();
    return alarm;
  }
  void set_timer() {
    double first = INFINITY;
    for (const Limit* l = innermost; l; l = l->outer) first = std::min(first, l->deadline);
    alarm.set(first - clock_seconds());
  }
  // Returns the outermost limit whose time is over.
  const Limit* over() const {
    const Limit* found = nullptr;
    const double t = clock_seconds();
    for (const Limit* l = innermost; l; l = l->outer) {
      if (l->over(t)) found = l;
    }
    return found;
  }
  static void on_time(int);
  static void raise_in_lua(lua_State* L, lua_Debug*);

  lua_State* L;
  Alarm& alarm;
  lua_Hook hook;
  int mask, count;
  Limit* innermost = nullptr;
  double round_cpu = 0, round_clock = 0;  // when the last round began
  volatile sig_atomic_t rounds = 0, errors_left = 0, is_new_round = 0;
};

thread_local LimitWatch* watch = nullptr;

void LimitWatch::on_time(int) {
  LimitWatch* w = watch;
  const Limit* limit = w ? w->over() : nullptr;
  if (!limit) return;
  const double cpu = clock_seconds(CLOCK_THREAD_CPUTIME_ID), clock = clock_seconds();
  if (w->rounds && cpu - w->round_cpu < kMinCpu && clock - w->round_clock < kLongestRound) return;
  w->round_cpu = cpu, w->round_clock = clock;
  if (!w->rounds && limit->deadline == INFINITY) w->alarm.set(1e-9 * double(kRound));
  w->rounds = w->rounds + 1;
  w->errors_left = w->rounds;
  w->is_new_round = 1;
  stop_reason = limit->message.text;
  lua_sethook(w->L, raise_in_lua, LUA_MASKCOUNT, 1);
  leave_traces(w->L);
}

void on_signal(int number) { LimitWatch::on_time(number); }

void LimitWatch::raise_in_lua(lua_State* L, lua_Debug*) {
  LimitWatch* w = watch;
  const Limit* limit = w ? w->over() : nullptr;
  if (w && w->is_new_round) {
    w->is_new_round = 0;
    if (!stop_reason) w->errors_left = w->errors_left - 1;  // C++ code has raised one error already
    stop_reason = nullptr;
  }
  if (!w || w->errors_left <= 1 || !limit) lua_sethook(L, w ? w->hook : nullptr, w ? w->mask : 0, w ? w->count : 0);
  if (!limit || w->errors_left <= 0) return;
  w->errors_left = w->errors_left - 1;
  raise_in_hook(L, limit->message.text);
}

}  // namespace

// A limit on the code that this thread runs, for a scope.
class LimitScope {
 public:
  LimitScope(lua_State* L, double seconds, const std::atomic<bool>* wish) {
    if (seconds > 0) traces_.emplace(L);
    if (!watch) own_.emplace(L), watch = &*own_;
    limit_ = {watch->innermost, seconds > 0 ? clock_seconds() + seconds : INFINITY, wish,
              seconds > 0 ? time_message(seconds) : Message{"interrupted!"}};
    watch->innermost = &limit_;
    if (seconds > 0) watch->set_timer();
  }
  ~LimitScope() {
    watch->innermost = limit_.outer;
    if (own_) {
      watch = nullptr;
      return;
    }
    if (const Limit* outer = watch->over()) {  // the outer limit's time is over too: its rounds go on
      stop_reason = outer->message.text;
      return;
    }
    watch->rounds = 0;
    watch->errors_left = 0;
    stop_reason = nullptr;
    lua_sethook(watch->L, watch->hook, watch->mask, watch->count);
    watch->set_timer();
  }
  LimitScope(const LimitScope&) = delete;
  bool over() const { return limit_.over(clock_seconds()); }
  double deadline() const { return limit_.deadline; }
  const char* message() const { return limit_.message.text; }

 private:
  std::optional<LeavableTraces> traces_;
  std::optional<LimitWatch> own_;
  Limit limit_;
};

class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : saved_(most_threads) {
    most_threads = saved_ > 0 ? std::min(saved_, threads) : threads;
  }
  ~ThreadsScope() { most_threads = saved_; }
  ThreadsScope(const ThreadsScope&) = delete;

 private:
  int saved_;
};

// They are destroyed in the reverse order.
struct RunLimit::Parts {
  std::optional<LimitScope> wish, time;
  std::optional<LeavableTraces> traces;
  std::optional<HeapScope> heap;
  std::optional<ThreadsScope> threads;
};

namespace {
thread_local RunLimit* innermost = nullptr;
}  // namespace

bool RunLimit::runs() { return innermost; }

RunLimit::RunLimit(lua_State* L, const CallLimits& limits, const std::atomic<bool>* wish)
    : modes_(modes_of(L)), grad_(modes_->grad), autocast_(modes_->autocast.mode), outer_(innermost), parts_(new Parts) {
  Parts& p = *parts_;
  if (wish) p.wish.emplace(L, 0, wish);
  if (limits.seconds > 0) p.time.emplace(L, limits.seconds, nullptr);
  if (limits.bytes > 0) p.traces.emplace(L);
  if (limits.seconds > 0 || limits.bytes > 0) p.heap.emplace(L, limits.bytes, p.time ? p.time->deadline() : INFINITY);
  if (limits.threads > 0) p.threads.emplace(limits.threads);
  innermost = this;
}

// An error that was not caught here counts as ended by the limit if its time is over.
RunLimit::~RunLimit() {
  innermost = outer_;
  if (end_ == kByLimit || (end_ == kUnknown && parts_->time && parts_->time->over())) {
    const ModesScope scope(modes_.get());
    set_grad_enabled(grad_);
    if (!(autocast_mode() == autocast_)) set_autocast_mode(autocast_);
  }
}

std::string RunLimit::message(int status, const char* error) {
  std::string text;
  for (const RunLimit* r = this; r && text.empty(); r = r->outer_) text = r->own_message(status, error);
  end_ = text.empty() ? kOwn : kByLimit;
  return text;
}

std::string RunLimit::own_message(int status, const char* error) const {
  const std::string_view text = error ? error : "";
  const bool no_memory =
      status == LUA_ERRMEM || status == LUA_ERRERR || text.find("not enough memory") != std::string_view::npos;
  const auto& [wish, time, traces, heap, threads] = *parts_;
  for (const auto* scope : {&wish, &time}) {
    if (!*scope) continue;
    const LimitScope& limit = **scope;
    if (limit.over() && text.find(limit.message()) != std::string_view::npos) return std::string(text);
    if (no_memory && (limit.over() || (scope == &time && heap->refused_time()))) return limit.message();
  }
  if (!heap || !heap->refused_bytes()) return "";
  if (text.find(heap->refusal()) != std::string_view::npos) return std::string(text);
  return no_memory ? heap->refusal() : "";
}

namespace {

CallLimits limits_of(lua_State* L) {
  const auto upvalue = [L](int i) { return lua_tonumber(L, lua_upvalueindex(i)); };
  return {upvalue(1), int64_t(upvalue(2)), int(upvalue(3))};
}

// Upvalues: seconds, bytes, threads. With a limit of bytes the error is caught here, to replace "not enough memory",
// and the traceback below it is lost.
int run_limited(lua_State* L) {
  const CallLimits limits = limits_of(L);
  if (lua_gettop(L) == 0 || lua_isnil(L, 1)) fail("limits: a function to run is needed");
  if (!can_be_called(L, 1)) {
    fail("limits: argument 'f' must be a function or a module, got a ", luaL_typename(L, 1));
  }
  int status = 0;
  std::string why;
  {
    RunLimit scope(L, limits, nullptr);
    if (!limits.bytes) {
      lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    } else {
      status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
      if (status) why = scope.message(status, lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : nullptr);
    }
    if (status == 0) scope.returned();
  }
  if (status == 0) return lua_gettop(L);
  if (!why.empty()) {
    lua_pushlstring(L, why.data(), why.size());
    why = std::string();
  }
  return -1;
}
int limited_entry(lua_State* L) {
  const int results = guarded(L, run_limited);
  return results < 0 ? lua_error(L) : results;
}

// Reads a limit from the table at index 1; 0 if it is nil.
double read_limit(lua_State* L, const char* name, bool whole) {
  lua_getfield(L, 1, name);
  if (lua_isnil(L, -1)) return 0;
  const double value = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
  if (!(value > 0) || (whole && (value != std::floor(value) || value > 9e15))) {
    fail("limits: option '", name, "' must be a ", whole ? "whole " : "", "number above 0, got ",
         lua_isnumber(L, -1) ? lua_tostring(L, -1) : luaL_typename(L, -1));
  }
  return value;
}

}  // namespace

pid_t this_thread() {
  static thread_local pid_t id = 0;
  static thread_local int at = 0;
  if (id == 0 || at != forks()) id = gettid(), at = forks();
  return id;
}

void wake(pid_t thread) { syscall(SYS_tgkill, getpid(), thread, signal_number()); }

bool share_line_mode(lua_State* L) {
  const void* expected = nullptr;
  if (!line_mode_owner.compare_exchange_strong(expected, identity_of(L))) return false;
  start_profiler(L);
  return true;
}

void leave_line_mode(lua_State* L) {
  if (line_mode_owner != identity_of(L)) return;
  luaJIT_profile_stop(L);
  line_mode_owner = nullptr;
}

void keep_line_mode(lua_State* L) {
  line_mode_owner = identity_of(L);
  start_profiler(L);
}

int make_limits(lua_State* L) {
  if (!lua_istable(L, 1)) fail("limits: argument 1 must be a table {seconds = n}, got ", luaL_typename(L, 1));
  const KnownNames known{"seconds", "bytes", "threads"};
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (key != "seconds" && key != "bytes" && key != "threads") {
      fail("limits: unknown option '", key, "'", known.known(key));
    }
  }
  const double limits[] = {read_limit(L, "seconds", false), read_limit(L, "bytes", true),
                           std::min(read_limit(L, "threads", true), 4096.0)};
  lua_settop(L, 0);
  if (limits[0] + limits[1] + limits[2] == 0)
    fail("limits: one of the options 'seconds', 'bytes', 'threads' is needed");
  for (double limit : limits) lua_pushnumber(L, limit);
  lua_pushcclosure(L, limited_entry, 3);
  return 1;
}

}  // namespace lutra
