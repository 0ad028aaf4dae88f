// What the functions of lutra.h share: the state behind a handle, who may use it, and code that may raise, run so that
// an error becomes a code and a message.
//
// Invariants:
// 1. The memory of a lutra_State is never given back, and used again only after many others were closed: a handle of a
//    closed state can be told.
// 2. One thread at a time is within a state; it may come in again from a callback.
// 3. What can raise runs in State::run, which needs no memory before it is protected.
#pragma once
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "ops/core/error.h"
#include "ops/core/tensor.h"
#include "vm/capi/lutra.h"
#include "vm/host/limits.h"

struct lua_State;

struct lutra_State {
  lua_State* L = nullptr;  // within a callback the coroutine that called it
  bool owned = true;
  std::string error;
  std::string callback_error;  // of lutra_fail
  std::atomic<bool> open{false};
  std::atomic<const void*> user{nullptr};  // the thread that is within
  int depth = 0;
  std::atomic<uint64_t> generation{0};  // how often this memory has been a state
  // Places in the registry: the handler of errors, what runs tasks, the module, strings of outputs.
  int traceback = 0, task = 0, module = 0, strings = 0;
  std::atomic<bool> interruptible{true};  // read by whoever interrupts, even while its memory becomes another state
  lutra::CallLimits limits;               // of lutra_set_limits
  lutra::CallLimits running;              // of the program that runs
  std::atomic<bool> interrupted{false};
  std::atomic<pid_t> runner{0};  // the thread that runs a program
  std::mutex mutex;
  std::vector<int> dropped;         // under mutex: places of functions that were freed elsewhere
  std::atomic<bool> barred{false};  // a rule of a host's op runs
};

// A counted handle of a tensor, with room for the arrays that C is given.
struct lutra_Tensor : lutra::RefCounted {
  explicit lutra_Tensor(lutra::Tensor t) : tensor(std::move(t)) {}
  lutra::Tensor tensor;
  int64_t sizes[LUTRA_MOST_DIMS] = {}, strides[LUTRA_MOST_DIMS] = {};
};

namespace lutra::capi {

// An error of the caller's: LUTRA_ERROR_ARGUMENT.
struct ArgumentError : Error {
  explicit ArgumentError(const std::string& message) : Error(ErrorKind::kUser, message) {}
};
template <class... T>
[[noreturn]] void refuse(const T&... parts) {
  throw ArgumentError(str(parts...));
}

// The text of an error that there is no memory for: a string holds it in itself.
inline constexpr const char* kNoMemory = "out of memory";

// Of this thread, where no state can tell it.
const char* thread_error();
int fail_thread(int code, const char* fn, const char* message);

// Runs body where there is no state; an exception becomes a code, and the thread's error.
template <class F>
int run_alone(const char* fn, F&& body);
int failed_alone(const char* fn);  // within a handler of an exception

lutra_State* new_state();  // null where there is no memory
void recycle(lutra_State* S);
bool is_mine(const lutra_State* S);  // open, and not in use by another thread

// A thread within a state, for a scope.
class StateScope {
 public:
  StateScope(lutra_State* S, const char* fn);
  ~StateScope();
  StateScope(const StateScope&) = delete;
  explicit operator bool() const { return S_ != nullptr; }
  int code() const { return code_; }
  const char* fn() const { return fn_; }

  template <class... T>
  int fail(int code, const T&... parts) const {
    try {
      S_->error = str(parts...);
    } catch (const std::bad_alloc&) {
      S_->error = kNoMemory;
    }
    return code;
  }
  // "FN: what must not be NULL" where it is.
  bool has(const void* pointer, const char* what);
  // Calls body(L), which pushes as many values as it returns: they stay. With keep < 0 all do, otherwise so many.
  template <class F>
  int run(const F& body, int keep = 0) {
    return run_task([](lua_State* L, const void* f) -> int { return (*static_cast<const F*>(f))(L); }, &body, keep);
  }
  int take_error(int status) const;  // the message at the top of the stack
  // The function below nargs arguments at the top of the stack.
  int call(int nargs, int nresults) const;

 private:
  int protected_call(int nargs, int nresults, int handler) const;  // lua_pcall under the state's limits
  int run_task(int (*body)(lua_State*, const void*), const void* f, int keep);
  lutra_State* S_;
  const char* fn_;
  int code_ = LUTRA_OK;
};

int task_entry(lua_State* L);  // what lutra_State::task is
int traceback(lua_State* L);
void prepare(lutra_State* S, lua_State* L);  // the module is at the top of the stack: fills the places in the registry

// Pushes the value of an expression.
void push_expression(lua_State* L, const char* expression);
lutra_Tensor* new_handle(const Tensor& t);  // throws std::bad_alloc
// Of what make() gives. Nothing fails after that: what it has taken over is not given back with an error.
template <class F>
lutra_Tensor* new_handle_of(F&& make) {
  auto handle = std::make_unique<lutra_Tensor>(Tensor());
  handle->tensor = make();
  handle->refs = 1;
  return handle.release();
}

// Copies what a caller gives, whose struct may be older or newer: members that it does not know stay as they are in
// `known`. False where its size ends before the last member of the first ABI: it was not set.
template <class T>
bool read_struct(const T* given, size_t last, T& known) {
  if (given->size <= last) return false;
  std::memcpy(&known, given, std::min(given->size, sizeof known));
  return true;
}

template <class F>
int run_alone(const char* fn, F&& body) {
  try {
    body();
    return LUTRA_OK;
  } catch (const std::exception&) {
    return failed_alone(fn);
  }
}

}  // namespace lutra::capi
