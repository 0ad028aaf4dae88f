// Runs work that nobody waits for yet on background threads: compiling kernels and segments.
#pragma once
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include "ops/core/settings.h"

namespace lutra {

struct Background;

// Invariants:
// 1. A job runs once unless it throws, on a background thread or on a thread that waits for it.
// 2. When the process exits, jobs that have not begun are dropped, and running ones are waited for.
// 3. A job that threw (a std::exception) is run again by the next thread that waits for it, which gets what it throws
//    then. For example, there may be enough memory by then.
class Job {
 public:
  // kPolite leaves the processors to other threads as far as the system supports that: the program waits for those.
  enum Pace { kUsual, kPolite };
  // Queues a job. Usual jobs have up to half as many threads as the machine has processors, 16 at most; polite ones a
  // quarter, four at most.
  static std::shared_ptr<Job> start(std::function<void()> work, Pace pace = kUsual);
  // Returns true if it has run.
  bool done();
  // Runs the job here if no thread does yet, otherwise waits for it.
  void finish();
  // Waits at most this long. Returns false if it is not finished. Returns true if it has run, or never will: a forked
  // child has no background threads.
  bool wait(std::chrono::milliseconds most);
  // Removes the job if it has not begun, otherwise waits for its end. Afterwards its data may be destroyed.
  void drop();

 private:
  friend struct Background;
  enum State { kQueued, kRuns, kDone, kFailed };
  Job(std::function<void()> work, Background& home) : home_(home), work_(std::move(work)), settings_(settings()) {}
  bool run();

  Background& home_;
  std::function<void()> work_;
  Settings settings_;           // of the thread that started it
  std::exception_ptr problem_;  // set in state kFailed
  std::atomic<State> state_{kQueued};
};

// Encloses code that makes objects with destructors at exit, as NVRTC does while it compiles. Running jobs are waited
// for before these destructors.
class MakesObjects {
 public:
  MakesObjects();
  ~MakesObjects();
  MakesObjects(const MakesObjects&) = delete;
};

// Returns true on a background thread.
bool in_background();

}  // namespace lutra
