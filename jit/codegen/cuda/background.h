// Work that nobody waits for yet, on threads of its own: compiling kernels.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>

namespace lutra::cuda {

// Invariants:
// 1. A job runs once, on a thread of the background or on one that waits for it.
// 2. When the process exits, jobs that have not begun are dropped and those that run are waited for.
// 3. What a job throws (a std::exception) is thrown by whoever asks for it, each time.
class Job {
 public:
  // Queued for up to a quarter as many threads as the machine has, four at most.
  static std::shared_ptr<Job> start(std::function<void()> work);
  // Whether it has run. Throws what it threw.
  bool done() const;
  // Runs it here if nobody does yet, else waits. Throws what it threw.
  void finish();

 private:
  friend struct Background;
  enum State { kQueued, kRuns, kDone };
  explicit Job(std::function<void()> work) : work_(std::move(work)) {}
  void run();

  std::function<void()> work_;
  std::exception_ptr problem_;
  std::atomic<State> state_{kQueued};
};

}  // namespace lutra::cuda
