// Compiles on a background thread, with the settings and modes of the thread that asked for it. The job begins at once,
// or at begin().
#pragma once
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include "jit/background/background.h"
#include "ops/defs/modes.h"

namespace lutra {

// Invariants:
// 1. Everything that `compile` refers to outlives this object. The destructor drops a job that has not begun; it stops
//    a running job and waits for it.
// 2. `compile` shares only the mutable data named in jit/background/README.md with other threads. It never drops the
//    last reference to a tensor or node of the program.
class CompileLater {
 public:
  enum Begin { kAtOnce, kWhenTold };
  explicit CompileLater(std::function<void()> compile, Begin begin = kAtOnce);
  ~CompileLater();
  CompileLater(const CompileLater&) = delete;

  void begin();
  bool has_begun() const { return job_ != nullptr; }
  bool done() { return job_ && job_->done(); }
  bool wait(std::chrono::milliseconds most) { return begin(), job_->wait(most); }
  // Returns the CPU time of the job once it is done.
  double cpu_ms() const { return cpu_ms_; }
  // Call it once the job is done: rethrows the exception that `compile` threw, if any.
  void check() const;

 private:
  void run();

  std::function<void()> compile_;
  Modes modes_;
  std::atomic<bool> unwanted_{false};
  std::exception_ptr problem_;
  double cpu_ms_ = 0;
  std::shared_ptr<Job> job_;
};

}  // namespace lutra
