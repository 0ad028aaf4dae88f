// Work that nobody waits for yet, on threads of its own: compiling kernels and segments.
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
// 1. A job runs once unless it throws, on a thread of the background or on one that waits for it.
// 2. When the process exits, jobs that have not begun are dropped and those that run are waited for.
// 3. A job that threw (a std::exception) is run again by whoever asks for it next, which has what it throws then: what
//    there was no memory for may find some later.
class Job {
 public:
  // kPolite leaves the processors to threads that want them, as far as the system does that: what runs meanwhile is
  // what the program waits for.
  enum Pace { kUsual, kPolite };
  // Queued for up to a quarter as many threads of that pace as the machine has, four at most.
  static std::shared_ptr<Job> start(std::function<void()> work, Pace pace = kUsual);
  // Whether it has run.
  bool done();
  // Runs it here if nobody does yet, else waits.
  void finish();
  // Waits for so long at most. False: it may be waited for again; true: it has run, or never will, as this is a forked
  // child, which has none of the threads.
  bool wait(std::chrono::milliseconds most);
  // Where it has not begun it never will, else this waits for its end: what it refers to may go then.
  void drop();

 private:
  friend struct Background;
  enum State { kQueued, kRuns, kDone, kFailed };
  Job(std::function<void()> work, Background& home) : home_(home), work_(std::move(work)), settings_(settings()) {}
  bool run();

  Background& home_;
  std::function<void()> work_;
  Settings settings_;           // of who asked for it
  std::exception_ptr problem_;  // of kFailed
  std::atomic<State> state_{kQueued};
};

// Around what makes objects that go at exit, as NVRTC does while it compiles: jobs that run are waited for before that.
class MakesObjects {
 public:
  MakesObjects();
  ~MakesObjects();
  MakesObjects(const MakesObjects&) = delete;
};

// Whether this thread is one of the background's.
bool in_background();

}  // namespace lutra
