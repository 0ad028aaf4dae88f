// Handles of states, the threads that use them, and errors as codes; see state.h.
#include "vm/capi/state.h"

#include <deque>
#include <lua.hpp>
#include <memory>
#include <new>
#include <optional>

#include "vm/capi/advice.h"
#include "vm/host/runtime.h"

namespace lutra::capi {
namespace {

thread_local std::string alone_error;
thread_local const char thread_mark = 0;

constexpr size_t kKept = 256;
constexpr int kLimit = 1000, kNoTimer = 1001;  // in addition to the statuses of lua_pcall

// Never destroyed, because a host may close a state at any time.
struct States {
  std::mutex mutex;
  std::deque<lutra_State> all;
  std::deque<lutra_State*> closed;
};
States& states() {
  static States* s = new States;
  return *s;
}

void assign(std::string& to, const char* text) {
  try {
    to = text;
  } catch (const std::bad_alloc&) {
    to = kNoMemory;
  }
}

// A body that runs under lua_pcall, and its outcome in addition to Lua's error.
struct Task {
  int (*body)(lua_State*, const void*);
  const void* f;
  int code = LUTRA_ERROR_RUN;
  std::string argument_error;
};

int code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kMemory: return LUTRA_ERROR_MEMORY;
    case ErrorKind::kInterrupt: return LUTRA_ERROR_LIMIT;
    default: return LUTRA_ERROR_RUN;
  }
}

int run_body(lua_State* L) {
  Task& task = *static_cast<Task*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
  try {
    return task.body(L, task.f);
  } catch (const ArgumentError& error) {
    task.code = LUTRA_ERROR_ARGUMENT;
    task.argument_error = error.what();
    throw;
  } catch (const Error& error) {
    task.code = code_of(error.kind);
    throw;
  } catch (const std::bad_alloc&) {
    task.code = LUTRA_ERROR_MEMORY;
    throw;
  }
}

int code_of(int status) {
  switch (status) {
    case 0: return LUTRA_OK;
    case LUA_ERRSYNTAX: return LUTRA_ERROR_SYNTAX;
    case LUA_ERRMEM: return LUTRA_ERROR_MEMORY;
    case LUA_ERRFILE: return LUTRA_ERROR_FILE;
    default: return LUTRA_ERROR_RUN;
  }
}

}  // namespace

const char* thread_error() { return alone_error.c_str(); }

int fail_thread(int code, const char* fn, const char* message) {
  assign(alone_error, fn);
  try {
    alone_error.append(": ").append(message);
  } catch (const std::bad_alloc&) {
  }
  return code;
}

int failed_alone(const char* fn) {
  try {
    throw;
  } catch (const ArgumentError& error) {
    return fail_thread(LUTRA_ERROR_ARGUMENT, fn, error.what());
  } catch (const Error& error) {
    return fail_thread(code_of(error.kind), fn, error.what());
  } catch (const std::bad_alloc&) {
    return fail_thread(LUTRA_ERROR_MEMORY, fn, "out of memory");
  } catch (const std::exception& error) {
    return fail_thread(LUTRA_ERROR_RUN, fn, error.what());
  }
}

lutra_State* new_state() {
  States& s = states();
  std::lock_guard lock(s.mutex);
  lutra_State* S = nullptr;
  try {
    if (s.closed.size() > kKept) {
      S = s.closed.front();
      s.closed.pop_front();
    } else {
      S = &s.all.emplace_back();
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  S->generation++;
  return S;
}

void recycle(lutra_State* S) {
  S->open = false;
  S->L = nullptr;
  S->error.clear(), S->error.shrink_to_fit();
  S->callback_error.clear();
  {
    std::lock_guard lock(S->mutex);
    S->dropped.clear();
  }
  S->depth = 0;
  S->limits = {};
  S->user = nullptr;
  States& s = states();
  std::lock_guard lock(s.mutex);
  try {
    s.closed.push_back(S);
  } catch (const std::bad_alloc&) {  // the memory is not reused then
  }
}

bool is_mine(const lutra_State* S) {
  if (!S || !S->open.load(std::memory_order_acquire)) return false;
  const void* user = S->user.load(std::memory_order_acquire);
  return user == nullptr || user == &thread_mark;
}

StateScope::StateScope(lutra_State* S, const char* fn) : S_(S), fn_(fn) {
  const char* problem = nullptr;
  const void* nobody = nullptr;
  if (!S) {
    problem = "the state is NULL";
  } else if (!S->open.load(std::memory_order_acquire)) {
    problem = "the state is closed";
  } else if (S->user.load(std::memory_order_relaxed) != &thread_mark &&
             !S->user.compare_exchange_strong(nobody, &thread_mark, std::memory_order_acquire)) {
    problem = "another thread uses the state";
  } else if (!S->open.load(std::memory_order_acquire)) {  // closed in between
    S->user.store(nullptr, std::memory_order_release);
    problem = "the state is closed";
  }
  if (!problem && S->barred.load(std::memory_order_relaxed)) {
    if (S->depth == 0) S->user.store(nullptr, std::memory_order_release);
    problem = "a rule or kernel of an op must not use the state";
  }
  if (problem) {
    S_ = nullptr;
    code_ = fail_thread(LUTRA_ERROR_STATE, fn, problem);
    return;
  }
  S->depth++;
}

StateScope::~StateScope() {
  if (S_ && --S_->depth == 0) S_->user.store(nullptr, std::memory_order_release);
}

bool StateScope::has(const void* pointer, const char* what) {
  if (!S_ || pointer) return pointer != nullptr && S_ != nullptr;
  code_ = fail(LUTRA_ERROR_ARGUMENT, fn_, ": ", what, " must not be NULL");
  return false;
}

int StateScope::take_error(int status) const {
  const char* text = lua_type(S_->L, -1) == LUA_TSTRING ? lua_tostring(S_->L, -1) : "unknown error";
  assign(S_->error, text);
  lua_pop(S_->L, 1);
  return code_of(status);
}

int StateScope::call(int nargs, int nresults) const {
  lua_State* L = S_->L;
  const int base = lua_gettop(L) - nargs;
  lua_rawgeti(L, LUA_REGISTRYINDEX, S_->traceback);
  lua_insert(L, base);
  const int status = protected_call(nargs, nresults, base);
  lua_remove(L, base);
  if (status == 0) return LUTRA_OK;
  return status == kLimit ? LUTRA_ERROR_LIMIT : status == kNoTimer ? LUTRA_ERROR_RUN : take_error(status);
}

namespace {

// A run of a program in the state. A nested run adds only the limits that the outer one does not have.
class Run {
 public:
  explicit Run(lutra_State* S) : S_(S), nested_(S->runner.load(std::memory_order_relaxed)), limits_(S->running) {
    if (!nested_) S->interrupted.store(false, std::memory_order_relaxed);
  }
  ~Run() {
    S_->running = limits_;
    if (!nested_) S_->runner.store(0);
  }
  Run(const Run&) = delete;
  // Throws if there is no timer or no memory.
  void bound(std::optional<RunLimit>& limit) {
    const bool others = S_->limits.any() && !(nested_ && S_->limits == limits_);
    const bool wish = !nested_ && S_->interruptible;
    if (!others && !wish && !RunLimit::runs()) return;
    limit.emplace(S_->L, others ? S_->limits : CallLimits{}, wish ? &S_->interrupted : nullptr);
  }
  void begin() {
    S_->running = S_->limits;
    if (!nested_ && (S_->interruptible || S_->limits.any())) S_->runner.store(this_thread());
  }

 private:
  lutra_State* S_;
  const bool nested_;
  const CallLimits limits_;
};

}  // namespace

// For kLimit and kNoTimer the message is in the state, not on the stack: pushing it could raise an error that nobody
// catches.
int StateScope::protected_call(int nargs, int nresults, int handler) const {
  lua_State* L = S_->L;
  Run run(S_);
  std::optional<RunLimit> limit;
  try {
    run.bound(limit);
  } catch (const std::exception&) {  // a call without limits runs all the same
    if (S_->limits.any()) {
      lua_settop(L, handler);
      assign(S_->error, "limits: the system gives no timer");
      return kNoTimer;
    }
  }
  run.begin();
  const int status = lua_pcall(L, nargs, nresults, handler);
  if (status == 0 && limit) limit->returned();
  if (status == 0 || !limit) return status;
  const char* error = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : nullptr;
  try {
    const std::string message = limit->message(status, error);
    if (message.empty()) return status;
    assign(S_->error, message.c_str());
  } catch (const std::bad_alloc&) {
    return LUA_ERRMEM;
  }
  lua_pop(L, 1);
  return kLimit;
}

int StateScope::run_task(int (*body)(lua_State*, const void*), const void* f, int keep) {
  lua_State* L = S_->L;
  if (!lua_checkstack(L, 8)) return fail(LUTRA_ERROR_MEMORY, fn_, ": the Lua stack is full");
  Task task{body, f};
  const int base = lua_gettop(L) + 1;
  lua_rawgeti(L, LUA_REGISTRYINDEX, S_->traceback);
  lua_rawgeti(L, LUA_REGISTRYINDEX, S_->task);
  lua_pushlightuserdata(L, &task);
  const int status = protected_call(1, keep < 0 ? LUA_MULTRET : keep, base);
  lua_remove(L, base);
  if (status == 0) return LUTRA_OK;
  if (status == kLimit || status == kNoTimer) return status == kLimit ? LUTRA_ERROR_LIMIT : LUTRA_ERROR_RUN;
  const int code = take_error(status);
  if (task.code == LUTRA_ERROR_ARGUMENT) fail(task.code, fn_, ": ", task.argument_error);
  return status == LUA_ERRRUN ? task.code : code;
}

int task_entry(lua_State* L) { return guarded(L, run_body); }

// Returns whether a Lua function is on the call stack. Without one a traceback shows only addresses of C code.
static bool in_lua(lua_State* L) {
  lua_Debug ar;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    if (lua_getinfo(L, "S", &ar) && *ar.what != 'C') return true;
  }
  return false;
}

// The error handler: appends the traceback to the message. Converts a value other than a string by its __tostring.
int traceback(lua_State* L) {
  lua_settop(L, 1);
  if (!lua_isstring(L, 1)) {
    if (!luaL_callmeta(L, 1, "__tostring") || !lua_isstring(L, -1)) {
      lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    }
    lua_replace(L, 1);
    lua_settop(L, 1);
  }
  advise(L);
  if (in_lua(L)) luaL_traceback(L, L, lua_tostring(L, 1), 1);
  return 1;
}

void prepare(lutra_State* S, lua_State* L) {
  S->module = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushcfunction(L, traceback);
  S->traceback = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_pushcfunction(L, task_entry);
  S->task = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_newtable(L);
  S->strings = luaL_ref(L, LUA_REGISTRYINDEX);
}

void push_expression(lua_State* L, const char* expression) {
  const std::string text = str("return ", expression);
  if (luaL_loadbuffer(L, text.data(), text.size(), "=expression") != 0) refuse(lua_tostring(L, -1));
  lua_call(L, 0, 1);
}

lutra_Tensor* new_handle(const Tensor& t) {
  return new_handle_of([&] { return t; });
}

}  // namespace lutra::capi
