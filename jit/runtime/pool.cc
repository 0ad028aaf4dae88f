// The calling thread and this library's workers claim chunks. Workers look for work for a while before they sleep. Each
// thread begins with its own share, the same part of each loop, since its core's cache still holds that part of an
// earlier loop's data. Then it helps the others.
//
// Invariants:
// 1. A job is a word (epoch, threads) and a share for each thread (epoch, next chunk, end). A thread claims a chunk by
//    a compare-and-swap of a share's whole word, and only in the epoch that it has read. So it never claims a chunk of
//    a finished job.
// 2. Only a thread that has claimed a chunk reads body and arg. The caller returns when all chunks are done.
// 3. Workers are never joined: the library stays loaded (-z nodelete). The child of a fork has no workers, and runs all
//    chunks itself.
// 4. If a worker cannot be started, the job runs without it: chunks are not bound to threads.
#include "jit/runtime/pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "jit/device/backend.h"
#include "jit/device/cost.h"
#include "ops/core/cpu.h"
#include "ops/core/interrupt.h"
#include "ops/core/settings.h"
#include "ops/defs/modes.h"

namespace lutra {
namespace {

constexpr int kMaxChunks = 0xffff, kMaxThreads = 255;
// How long a worker looks for the next job: as long as the interpreter takes to issue one.
constexpr auto kLookFor = std::chrono::microseconds(60);

// The work of a chunk in a long loop. Between two chunks a thread looks whether it shall stop.
constexpr int64_t kLongChunk = 1 << 19;
// The same for a loop whose work is not known, in chunks.
constexpr int64_t kLooks = 256;

thread_local bool in_chunk = false;

// Returns the work below which handing over a chunk costs more than running it. It is that of a usual CPU, so that each
// loop need not query this one.
int64_t grain() {
  static const auto elements = int64_t(least_share(backend_of(Device{}).stated)) / kAdditionsOfElement;
  return elements;
}

int machine_threads() {
  static const int count = std::clamp(int(std::thread::hardware_concurrency()), 1, kMaxThreads);
  return count;
}

class Pool {
 public:
  using Body = void (*)(void* arg, int chunk);

  void run(int chunks, int threads, Body body, void* arg) {
    if (in_chunk) return run_here(chunks, body, arg);
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) return run_here(chunks, body, arg);
    threads = std::min(threads, chunks);  // a thread without a share would take another's before its owner comes to it
    while (workers_ < std::min(threads - 1, most_workers_)) start();
    body_ = body, arg_ = arg, settings_ = installed_settings;
    done_.store(0, std::memory_order_relaxed);
    failed_.store(false, std::memory_order_relaxed);
    epoch_++;
    for (int t = 0; t < threads; t++) {
      const auto begin = uint64_t(chunks) * uint64_t(t) / uint64_t(threads);
      const auto end = uint64_t(chunks) * uint64_t(t + 1) / uint64_t(threads);
      shares_[t].word.store(uint64_t(epoch_) << 32 | end << 16 | begin, std::memory_order_release);
    }
    word_.store(uint64_t(epoch_) << 32 | uint64_t(threads));
    if (sleeping_.load() > 0) {
      signal_.fetch_add(1);
      signal_.notify_all();
    }
    const uint64_t job = word_.load(std::memory_order_relaxed);
    do heed();
    while (claim(job, 0));
    for (int turns = 0; done_.load(std::memory_order_acquire) != chunks; turns++) {
      cpu::pause();
      const bool waits_long = turns > 1 << 14;
      if (waits_long || turns % 4096 == 4095) heed();
      if (waits_long) std::this_thread::yield();
    }
    if (failed_.load(std::memory_order_relaxed)) {
      std::exception_ptr error = std::move(error_);
      error_ = nullptr;
      std::rethrow_exception(error);
    }
  }

  static void run_here(int chunks, Body body, void* arg) {
    for (int i = 0; i < chunks; i++) {
      if (loops_are_stoppable && !in_chunk) check_stop();
      body(arg, i);
    }
  }

 private:
  // If the caller shall stop, the remaining chunks are claimed but not run.
  void heed() {
    if (!loops_are_stoppable || failed_.load(std::memory_order_relaxed)) return;
    try {
      check_stop();
    } catch (const std::exception&) {
      fail_job();
    }
  }
  // Call it in an exception handler.
  void fail_job() {
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
  static uint32_t epoch_of(uint64_t w) { return uint32_t(w >> 32); }
  static int threads_of(uint64_t job) { return int(job & 0xffff); }
  static int end_of(uint64_t share) { return int(share >> 16 & 0xffff); }
  static int next_of(uint64_t share) { return int(share & 0xffff); }

  // Runs a chunk of the job on thread `index`, from the thread's own share first. Returns false if no chunk is left.
  bool claim(uint64_t job, int index) {
    const int threads = threads_of(job);
    for (int k = 0; k < threads; k++) {
      std::atomic<uint64_t>& share = shares_[(index + k) % threads].word;
      uint64_t w = share.load(std::memory_order_acquire);
      while (epoch_of(w) == epoch_of(job) && next_of(w) < end_of(w)) {
        if (!share.compare_exchange_weak(w, w + 1, std::memory_order_acq_rel)) continue;
        chunk(next_of(w), index > 0);
        return true;
      }
    }
    return false;
  }

  void chunk(int i, bool on_worker) {
    in_chunk = true;
    if (on_worker) loop_is_over = &failed_, installed_settings = settings_;
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        body_(arg_, i);
      } catch (const std::exception&) {
        fail_job();
      }
    }
    in_chunk = false;
    done_.fetch_add(1, std::memory_order_release);
  }

  void start() {
    // Workers block all signals; the host's threads handle them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([this, index = workers_ + 1] { work(index); }).detach();
      workers_++;
    } catch (const std::system_error&) {
      most_workers_ = workers_;  // The machine allows no more threads. Trying again for each job would cost more than
                                 // it gains.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void work(int index) {
    uint64_t over = 0;  // the job in which no chunk is left
    while (true) {
      auto until = std::chrono::steady_clock::now() + kLookFor;
      for (int turns = 0; turns % 64 || std::chrono::steady_clock::now() < until; turns++) {
        const uint64_t job = word_.load(std::memory_order_acquire);
        if (job == over) {
          cpu::pause();
          continue;
        }
        over = job;
        if (index >= threads_of(job)) continue;
        while (claim(job, index)) continue;
        until = std::chrono::steady_clock::now() + kLookFor;
      }
      const uint32_t seen = signal_.load();
      sleeping_.fetch_add(1);
      if (word_.load() == over) signal_.wait(seen);
      sleeping_.fetch_sub(1);
    }
  }

  struct alignas(64) Share {
    std::atomic<uint64_t> word{0};
  };
  Share shares_[kMaxThreads];
  alignas(64) std::atomic<uint64_t> word_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> signal_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> failed_{false};
  Body body_ = nullptr;
  void* arg_ = nullptr;
  Settings* settings_ = nullptr;  // of the thread that waits for the job
  std::exception_ptr error_;
  std::mutex error_mutex_;
  std::mutex mutex_;  // one job at a time; a second host thread runs its own chunks meanwhile
  int workers_ = 0, most_workers_ = kMaxThreads;
  uint32_t epoch_ = 0;
};

Pool& pool() {
  static Pool* p = new Pool;
  return *p;
}

}  // namespace

constinit thread_local int most_threads = 0;

namespace {

// A job on the host's threads. Its first error is thrown when all chunks have returned.
struct HostJob {
  void (*body)(void* arg, int chunk);
  void* arg;
  Settings* settings;  // of the thread that waits for the job
  std::mutex mutex{};
  std::atomic<bool> failed{false};
  std::exception_ptr error{};

  void fail() {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) error = std::current_exception();
  }
  void chunk(int i) {
    if (failed.load(std::memory_order_relaxed)) return;
    const SettingsScope scope(settings);
    const bool within = std::exchange(in_chunk, true);
    const auto* outer = loop_is_over;
    if (!loops_are_stoppable) loop_is_over = &failed;  // the calling thread looks by itself
    try {
      if (!within) look_in_loop();
      body(arg, i);
    } catch (const std::exception&) {
      fail();
    }
    in_chunk = within, loop_is_over = outer;
  }
};

void run_on_host(const HostThreads& threads, int chunks, void (*body)(void* arg, int chunk), void* arg) {
  HostJob job{body, arg, installed_settings};
  threads.run(
      threads.arg, chunks, [](void* job, int i) { static_cast<HostJob*>(job)->chunk(i); }, &job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace

int thread_count() {
  const int wanted = settings().num_threads, own = modes().threads.count;
  const int most = own > 0 ? own : wanted > 0 ? wanted : machine_threads();
  const int count = own > 0 && wanted > 0 ? std::min(wanted, own) : most;
  return most_threads > 0 ? std::min(count, most_threads) : count;
}

void run_chunks(int chunks, void (*body)(void* arg, int chunk), void* arg) {
  const HostThreads& host = modes().threads;
  const int threads = host.run ? thread_count() : std::min(thread_count(), machine_threads());
  if (host.run && threads > 1 && chunks > 1 && !in_chunk) return run_on_host(host, chunks, body, arg);
  if (threads <= 1 || chunks <= 1 || chunks > kMaxChunks) return Pool::run_here(chunks, body, arg);
  pool().run(chunks, threads, body, arg);
}

int chunk_count(int64_t extent, int64_t work) {
  const int64_t total = total_work(extent, work);
  if (extent <= 1 || total < std::min(grain(), kLongChunk)) return 1;
  const int64_t threads = thread_count();
  if (threads <= 1) return int(std::clamp<int64_t>(total / kLongChunk, 1, std::min<int64_t>(extent, kMaxChunks)));
  // Large loops get more chunks than threads. If a core is busy with something else, it then delays one chunk only.
  const int64_t least = grain();
  const int64_t most = total >= 32 * least * threads ? std::max(threads * 4, total / kLongChunk) : threads;
  return int(std::max<int64_t>(1, std::min({most, extent, total / least, int64_t(kMaxChunks)})));
}

int64_t total_work(int64_t extent, int64_t work) {
  work = std::max<int64_t>(work, 1);
  return extent > INT64_MAX / 256 / work ? INT64_MAX / 256 : extent * work;
}

bool is_worth_forking(int64_t total) { return total >= (thread_count() > 1 ? 2 * grain() : 2 * kLongChunk); }

int64_t chunk_begin(int64_t extent, int n, int i, int64_t align) {
  const int64_t units = (extent + align - 1) / align;
  return std::min(extent, (units / n * i + std::min<int64_t>(units % n, i)) * align);
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  grain = std::max<int64_t>(grain, 1);
  const int64_t threads = thread_count();
  const int chunks =
      int(std::min<int64_t>(n / grain, loops_are_stoppable ? std::max(kLooks, threads * 4) : threads * 4));
  if (n <= 0) return;
  if (n <= grain || chunks <= 1) return body(0, n);
  struct Job {
    const std::function<void(int64_t, int64_t)>& body;
    int64_t n;
    int chunks;
  } job{body, n, chunks};
  run_chunks(
      chunks,
      [](void* arg, int i) {
        const Job& j = *static_cast<Job*>(arg);
        j.body(chunk_begin(j.n, j.chunks, i, 1), chunk_begin(j.n, j.chunks, i + 1, 1));
      },
      &job);
}

}  // namespace lutra
