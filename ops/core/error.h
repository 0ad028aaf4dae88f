// The one exception type of ops and jit. vm turns it into a Lua error with the Lua line in front.
#pragma once
#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>

namespace lutra {

// kUser: the user's arguments are wrong. kData: an index or value met at run time is wrong (the op ran). kMemory: out
// of memory. kInterrupt: the user wants to stop; nothing is run again. kInternal: a bug of Lutra; a compiled frame that
// meets it falls back to its original bytecode.
enum class ErrorKind { kUser, kData, kMemory, kInterrupt, kInternal };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
  ErrorKind kind;
  // The place where the user's program called the op that failed, if compiled code raised the error elsewhere.
  const char* file = nullptr;
  int line = 0;
};

// Raised when an op needs to read elements of a FakeTensor (x[mask], item, nonzero). Under capture it becomes a graph
// break of its own kind. Eager calls never raise it.
struct NeedsData : Error {
  explicit NeedsData(const std::string& message) : Error(ErrorKind::kUser, message) {}
};

template <class... T>
std::string str(const T&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// fail("matmul", ": shapes ", a, " ...") raises a user error.
template <class... T>
[[noreturn]] void fail(const T&... parts) {
  throw Error(ErrorKind::kUser, str(parts...));
}
template <class... T>
[[noreturn]] void fail_internal(const T&... parts) {
  throw Error(ErrorKind::kInternal, str(parts...));
}

// Set by a host's signal handler. Code that may take long checks it now and then. The first check that finds it set
// clears it and raises Error(kInterrupt).
extern std::atomic<bool> interrupt_wanted;
[[noreturn]] void raise_interrupt();
inline void check_interrupt() {
  if (interrupt_wanted.load(std::memory_order_relaxed)) raise_interrupt();
}

// Checks an invariant, also in release builds. Keep the condition cheap.
#define LUTRA_CHECK(cond, ...)                                                                                      \
  do {                                                                                                              \
    if (!(cond)) ::lutra::fail_internal("check failed: " #cond " (", __FILE__, ":", __LINE__, ") ", ##__VA_ARGS__); \
  } while (0)

}  // namespace lutra
