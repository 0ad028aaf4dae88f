// The queue of jobs and its threads.
#include "jit/background/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lutra {
namespace {

constinit thread_local bool is_background = false;

}  // namespace

// The threads of one pace, and their queue.
struct Background {
  explicit Background(Job::Pace pace) : pace(pace) {}
  const Job::Pace pace;
  std::mutex mutex;
  std::condition_variable changed;  // notified of changes to the queue, a job's state, and closed
  std::deque<std::shared_ptr<Job>> queue;
  std::vector<std::thread> threads;
  size_t idle = 0;
  bool closed = false;
  const pid_t process = getpid();

  void work() {
    is_background = true;
    constexpr int kPolitely = 5;  // a thread of nice value 0 gets three of four parts of a shared processor
    if (pace == Job::kPolite) (void)!setpriority(PRIO_PROCESS, id_t(gettid()), kPolitely);
    std::unique_lock lock(mutex);
    while (true) {
      idle++;
      changed.wait(lock, [&] { return closed || !queue.empty(); });
      idle--;
      if (closed) return;
      const std::shared_ptr<Job> job = std::move(queue.front());
      queue.pop_front();
      run(*job, lock);
    }
  }
  void run(Job& job, std::unique_lock<std::mutex>& lock) {
    job.state_ = Job::kRuns;
    lock.unlock();
    close_at_exit();
    const bool good = job.run();
    close_at_exit();
    lock.lock();
    job.state_.store(good ? Job::kDone : Job::kFailed, std::memory_order_release);
    changed.notify_all();
  }
  // A forked child does not have the threads, so it does not join them.
  void close() {
    std::unique_lock lock(mutex);
    if (std::exchange(closed, true)) return;
    queue.clear();
    changed.notify_all();
    lock.unlock();
    for (std::thread& t : threads) process == getpid() ? t.join() : t.detach();
  }
  static void close_all();
  // Registers close_all for the first jobs only, since the system's list of exit functions only grows. MakesObjects
  // registers it at any time.
  static void close_at_exit() {
    constexpr int kMost = 512;
    static std::atomic<int> times{0};
    if (times.load(std::memory_order_relaxed) < kMost && times++ < kMost) std::atexit(close_all);
  }
};

namespace {

Background& background(Job::Pace pace) {
  static Background* all[] = {new Background(Job::kUsual), new Background(Job::kPolite)};
  return *all[pace];
}

// Eager code on a GPU asks for hundreds of kernels in its first step, and the stand-ins of those that wait are slow.
size_t most_threads(Job::Pace pace) {
  const unsigned processors = std::thread::hardware_concurrency();
  return pace == Job::kPolite ? std::clamp(processors / 4, 1u, 4u) : std::clamp(processors / 2, 1u, 16u);
}

void close_both() { background(Job::kUsual).close(), background(Job::kPolite).close(); }

// Objects that jobs use must not be destroyed while jobs run. NVRTC creates static objects while it compiles. At exit
// these are destroyed before everything that was registered earlier. A thread that calls exit() destroys its
// thread_local objects first, so on the main thread this Closer is early enough. If another thread calls exit(), or the
// main thread has started no job, the functions that each job registers run early enough: it registers them before its
// run, for objects of earlier jobs, and after it. So does each call of NVRTC. One case remains: such an exit during a
// job in which NVRTC makes a static object for the first time.
struct Closer {
  ~Closer() {
    if (gettid() == getpid()) close_both();
  }
  void touch() {}
};
thread_local Closer closer;

}  // namespace

void Background::close_all() { close_both(); }

MakesObjects::MakesObjects() { std::atexit(close_both); }
MakesObjects::~MakesObjects() { std::atexit(close_both); }

std::shared_ptr<Job> Job::start(std::function<void()> work, Pace pace) {
  closer.touch();
  Background& b = background(pace);
  std::shared_ptr<Job> job(new Job(std::move(work), b));
  std::lock_guard lock(b.mutex);
  if (b.closed) return job;
  b.queue.push_back(job);
  b.changed.notify_all();
  if (b.idle >= b.queue.size() || b.threads.size() >= most_threads(pace)) return job;
  try {
    b.threads.emplace_back([&b] { b.work(); });
  } catch (const std::exception&) {  // without a thread or memory, the job runs when it is waited for
  }
  return job;
}

bool Job::run() {
  problem_ = nullptr;
  const SettingsScope scope(&settings_);
  try {
    work_();
  } catch (const std::exception&) {
    problem_ = std::current_exception();
    return false;
  }
  work_ = nullptr;
  return true;
}

bool Job::done() {
  const State state = state_.load(std::memory_order_acquire);
  if (state == kFailed) finish();
  return state == kDone || state == kFailed;
}

void Job::finish() {
  if (state_.load(std::memory_order_acquire) == kDone) return;
  Background& b = home_;
  std::unique_lock lock(b.mutex);
  if (state_ == kQueued || state_ == kFailed) {
    std::erase_if(b.queue, [&](const auto& job) { return job.get() == this; });
    b.run(*this, lock);
  } else {
    b.changed.wait(lock, [&] { return state_ == kDone || state_ == kFailed; });
  }
  const std::exception_ptr problem = problem_;
  lock.unlock();
  if (problem) std::rethrow_exception(problem);
}

bool Job::wait(std::chrono::milliseconds most) {
  Background& b = home_;
  if (b.process != getpid()) return true;
  std::unique_lock lock(b.mutex);
  if (state_ == kQueued && b.threads.empty()) {  // none could be started
    std::erase_if(b.queue, [&](const auto& job) { return job.get() == this; });
    b.run(*this, lock);
  }
  return b.changed.wait_for(lock, most, [&] { return state_ == kDone || state_ == kFailed; });
}

void Job::drop() {
  Background& b = home_;
  if (b.process != getpid()) return;
  std::unique_lock lock(b.mutex);
  std::erase_if(b.queue, [&](const auto& job) { return job.get() == this; });
  b.changed.wait(lock, [&] { return state_ != kRuns; });
}

bool in_background() { return is_background; }

}  // namespace lutra
