// Work that nobody waits for yet, on threads of its own: compiling kernels.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>

namespace lutra::cuda {

// Invariants:
// 1. A job runs once unless it throws, on a thread of the background or on one that waits for it.
// 2. When the process exits, jobs that have not begun are dropped and those that run are waited for.
// 3. A job that threw (a std::exception) is run again by whoever asks for it next, which has what it throws then: what
//    there was no memory for may find some later.
class Job {
 public:
  // Queued for up to a quarter as many threads as the machine has, four at most.
  static std::shared_ptr<Job> start(std::function<void()> work);
  // Whether it has run.
  bool done();
  // Runs it here if nobody does yet, else waits.
  void finish();

 private:
  friend struct Background;
  enum State { kQueued, kRuns, kDone, kFailed };
  explicit Job(std::function<void()> work) : work_(std::move(work)) {}
  bool run();

  std::function<void()> work_;
  std::exception_ptr problem_;  // of kFailed
  std::atomic<State> state_{kQueued};
};

}  // namespace lutra::cuda
