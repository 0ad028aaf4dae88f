// The thread pool. It runs each of the numbered chunks of a job once, on the calling thread or a worker. Chance decides
// which thread runs a chunk, but not what the chunks are.
#pragma once
#include <cstdint>
#include <functional>

#include "ops/core/interrupt.h"

namespace lutra {

// Returns the number of threads that a parallel loop may use now, including the calling one.
int thread_count();
// The most threads that loops of this thread may use, whatever the settings say; 0: no limit.
extern constinit thread_local int most_threads;

// Runs body(arg, i) for each i in [0, chunks), on up to thread_count() threads. Returns when all calls have ended.
void run_chunks(int chunks, void (*body)(void* arg, int chunk), void* arg);

// In this object's scope loops of this thread are stoppable, if `yes`: between two chunks, and where a chunk looks.
class StoppableLoops {
 public:
  explicit StoppableLoops(bool yes) : saved_(loops_are_stoppable) { loops_are_stoppable = yes; }
  ~StoppableLoops() { loops_are_stoppable = saved_; }
  StoppableLoops(const StoppableLoops&) = delete;
  void set(bool yes) { loops_are_stoppable = yes; }

 private:
  const bool saved_;
};

// Returns the work of a parallel loop, in elements.
int64_t total_work(int64_t extent, int64_t work);
// Returns true if parallel loops with this total work are worth a fork and join.
bool is_worth_forking(int64_t total);
// Returns the number of chunks for a loop of `extent` iterations of `work` elements each. 1: it runs inline.
int chunk_count(int64_t extent, int64_t work);
// Returns where chunk i of n begins in [0, extent): a multiple of `align`, so that no vector or cache line is split.
int64_t chunk_begin(int64_t extent, int n, int i, int64_t align);

// Runs body(begin, end) over [0, n) on the thread pool, in chunks of at least grain; inline if n <= grain.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace lutra
