// A compilation that nobody waits for: it runs on a thread of the background, with the settings and modes of the moment
// when it was asked for.
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
// 1. What `compile` refers to stays until this object is gone: its destructor drops what has not begun, and stops and
//    awaits what has.
// 2. `compile` shares nothing that changes with other threads but what jit/background/README.md names. What it drops is
//    never the last reference to a tensor or node of the program.
class CompileLater {
 public:
  explicit CompileLater(std::function<void()> compile);
  ~CompileLater();
  CompileLater(const CompileLater&) = delete;

  bool done() { return job_->done(); }
  bool wait(std::chrono::milliseconds most) { return job_->wait(most); }
  // Once it is done: throws what it threw.
  void check() const;

 private:
  void run();

  std::function<void()> compile_;
  Modes modes_;
  std::atomic<bool> unwanted_{false};
  std::exception_ptr problem_;
  std::shared_ptr<Job> job_;
};

}  // namespace lutra
