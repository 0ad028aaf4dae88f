// The one exception type of ops and jit; vm turns it into a Lua error with the Lua line in front.
#pragma once
#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>

namespace lutra {

// kUser: the user's arguments. kData: an index or value met while running (the op ran). kMemory: out of memory.
// kInterrupt: the user wants to stop; nothing is run again. kInternal: our fault; a compiled frame that meets it falls
// back to its original bytecode.
enum class ErrorKind { kUser, kData, kMemory, kInterrupt, kInternal };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
  ErrorKind kind;
  // Where the user's program called the op that failed, when that is not where the error was raised (compiled code).
  const char* file = nullptr;
  int line = 0;
};

// Raised where elements of a FakeTensor would have to be read (x[mask], item, nonzero): under capture a graph break of
// its own kind. Eager calls never meet it.
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

// Set by a host's signal handler: what may take long looks at it now and then, and the first that finds it set clears
// it and raises Error(kInterrupt).
extern std::atomic<bool> interrupt_wanted;
[[noreturn]] void raise_interrupt();
inline void check_interrupt() {
  if (interrupt_wanted.load(std::memory_order_relaxed)) raise_interrupt();
}

// Always on: cheap checks of what the compiler believes.
#define LUTRA_CHECK(cond, ...)                                                                                      \
  do {                                                                                                              \
    if (!(cond)) ::lutra::fail_internal("check failed: " #cond " (", __FILE__, ":", __LINE__, ") ", ##__VA_ARGS__); \
  } while (0)

}  // namespace lutra
