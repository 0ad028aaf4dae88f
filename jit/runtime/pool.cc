// Chunks over oneTBB's workers: one task arena a host thread, limited to thread_count().
#include "jit/runtime/pool.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <memory>

#include "jit/runtime/executable.h"

namespace lutra {
namespace {

// Elements of work below which a chunk costs more to hand over (2 us, 20 to a sleeping thread) than to run.
constexpr int64_t kGrain = 32768;

tbb::task_arena& arena_of_this_thread(int threads) {
  struct Arena {
    std::unique_ptr<tbb::task_arena> arena;
    int threads = 0;
  };
  thread_local Arena mine;
  if (mine.threads != threads) {
    mine.arena = std::make_unique<tbb::task_arena>(threads, 1);
    mine.threads = threads;
  }
  return *mine.arena;
}

int machine_threads() {
  static const int count = std::max(1, tbb::this_task_arena::max_concurrency());
  return count;
}

}  // namespace

int thread_count() {
  const int wanted = runtime_config().num_threads;
  return wanted > 0 ? wanted : machine_threads();
}

void run_chunks(int chunks, void (*body)(void* arg, int chunk), void* arg) {
  const int threads = std::min(thread_count(), machine_threads());
  if (threads <= 1 || chunks <= 1) {
    for (int i = 0; i < chunks; i++) body(arg, i);
    return;
  }
  arena_of_this_thread(threads).execute([&] {
    tbb::parallel_for(
        0, chunks, 1, [&](int i) { body(arg, i); }, tbb::simple_partitioner());
  });
}

int chunk_count(int64_t extent, int64_t work) {
  const int64_t threads = thread_count();
  if (threads <= 1 || extent <= 1) return 1;
  const int64_t total = work > 0 && extent > INT64_MAX / work ? INT64_MAX : extent * std::max<int64_t>(work, 1);
  // Large loops get more chunks than threads: a core that is busy elsewhere then delays one of them only.
  const int64_t most = total >= 32 * kGrain * threads ? threads * 4 : threads;
  return int(std::max<int64_t>(1, std::min({most, extent, total / kGrain})));
}

int64_t chunk_begin(int64_t extent, int n, int i, int64_t align) {
  const int64_t units = (extent + align - 1) / align;
  return std::min(extent, (units / n * i + std::min<int64_t>(units % n, i)) * align);
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  grain = std::max<int64_t>(grain, 1);
  const int chunks = int(std::min<int64_t>(n / grain, int64_t(thread_count()) * 4));
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
