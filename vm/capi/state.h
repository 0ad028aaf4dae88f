// The base of the functions of lutra.h: the state behind a handle, the check which thread may use it, and protected
// calls of code that may raise, which turn an error into a code and a message.
//
// Invariants:
// 1. The memory of a lutra_State is never freed. It is reused only after many other states were closed, so a handle of
//    a closed state is recognised.
// 2. One thread at a time uses a state. It may enter the state again from a callback.
// 3. Code that can raise runs in StateScope::run, which allocates nothing before the protected call.
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
  lua_State* L = nullptr;  // within a callback, the coroutine that called it
  bool owned = true;
  std::string error;
  std::string callback_error;  // of lutra_fail
  std::atomic<bool> open{false};
  std::atomic<const void*> user{nullptr};  // the thread that uses the state
  int depth = 0;
  std::atomic<uint64_t> generation{0};  // how often this memory has been a state
  // References in the registry: the error handler, task_entry, the module, the strings of outputs.
  int traceback = 0, task = 0, module = 0, strings = 0;
  std::atomic<bool> interruptible{true};  // lutra_interrupt may read it even while this memory becomes another state
  lutra::CallLimits limits;               // set by lutra_set_limits
  lutra::CallLimits running;              // of the program that runs
  std::atomic<bool> interrupted{false};
  std::atomic<pid_t> runner{0};  // the thread that runs a program
  std::mutex mutex;
  std::vector<int> dropped;         // guarded by mutex: registry references of functions that the host freed
  std::atomic<bool> barred{false};  // true while a rule of a host's op runs
};

// A counted handle of a tensor, with storage for the arrays that the C API returns.
struct lutra_Tensor : lutra::RefCounted {
  explicit lutra_Tensor(lutra::Tensor t) : tensor(std::move(t)) {}
  lutra::Tensor tensor;
  int64_t sizes[LUTRA_MAX_DIMS] = {}, strides[LUTRA_MAX_DIMS] = {};
};

namespace lutra::capi {

// An error that the caller made; it becomes LUTRA_ERROR_ARGUMENT.
struct ArgumentError : Error {
  explicit ArgumentError(const std::string& message) : Error(ErrorKind::kUser, message) {}
};
template <class... T>
[[noreturn]] void refuse(const T&... parts) {
  throw ArgumentError(str(parts...));
}

// The message when there is no memory for another one. It fits into a std::string without an allocation.
inline constexpr const char* kNoMemory = "out of memory";

// The last error of this thread that has no state to store it in.
const char* thread_error();
int fail_thread(int code, const char* fn, const char* message);

// Runs body without a state. Turns an exception into a code and stores it as the thread's error.
template <class F>
int run_alone(const char* fn, F&& body);
int failed_alone(const char* fn);  // call it within a catch block

lutra_State* new_state();  // returns null if out of memory
void recycle(lutra_State* S);
bool is_mine(const lutra_State* S);  // true if S is open and no other thread uses it

// The use of a state by this thread, for a scope.
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
  // Returns whether pointer is set; if it is null, sets the error "FN: what must not be NULL".
  bool has(const void* pointer, const char* what);
  // Calls body(L), which pushes as many values as it returns. With keep < 0 all of them stay on the stack, otherwise
  // `keep` of them.
  template <class F>
  int run(const F& body, int keep = 0) {
    return run_task([](lua_State* L, const void* f) -> int { return (*static_cast<const F*>(f))(L); }, &body, keep);
  }
  int take_error(int status) const;  // stores and pops the message at the top of the stack
  // Calls the function below nargs arguments at the top of the stack.
  int call(int nargs, int nresults) const;

 private:
  int protected_call(int nargs, int nresults, int handler) const;  // lua_pcall under the state's limits
  int run_task(int (*body)(lua_State*, const void*), const void* f, int keep);
  lutra_State* S_;
  const char* fn_;
  int code_ = LUTRA_OK;
};

int task_entry(lua_State* L);  // the function that lutra_State::task refers to
int traceback(lua_State* L);
void prepare(lutra_State* S, lua_State* L);  // pops the module from the top of the stack; fills the registry references

// Pushes the value of an expression.
void push_expression(lua_State* L, const char* expression);
lutra_Tensor* new_handle(const Tensor& t);  // throws std::bad_alloc
// Makes a handle of the tensor that make() returns. It allocates first, so nothing can fail after make() has taken
// ownership of memory.
template <class F>
lutra_Tensor* new_handle_of(F&& make) {
  auto handle = std::make_unique<lutra_Tensor>(Tensor());
  handle->tensor = make();
  handle->refs = 1;
  return handle.release();
}

// Copies a caller's options struct, which may be older or newer than this library. Members that it does not have stay
// as they are in `known`. Returns false if its size ends before the last member of the first ABI: the caller did not
// set size.
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
