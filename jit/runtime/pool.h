// The thread pool: numbered chunks in, each run once on the calling thread or a worker. Which thread runs a chunk is
// left to chance; what the chunks are is not.
#pragma once
#include <cstdint>
#include <functional>

#include "ops/core/interrupt.h"

namespace lutra {

// Threads that a parallel loop may use now, the calling one included.
int thread_count();
// How many of them loops of this thread may use at most, whatever the settings say; 0: any number.
extern constinit thread_local int most_threads;

// Runs body(arg, i) for each i in [0, chunks), on up to thread_count() threads; returns when all have ended.
void run_chunks(int chunks, void (*body)(void* arg, int chunk), void* arg);

// In a scope that says so, loops of this thread are stoppable: between two of their chunks, and where a chunk looks.
class StoppableLoops {
 public:
  explicit StoppableLoops(bool yes) : saved_(loops_are_stoppable) { loops_are_stoppable = yes; }
  ~StoppableLoops() { loops_are_stoppable = saved_; }
  StoppableLoops(const StoppableLoops&) = delete;
  void set(bool yes) { loops_are_stoppable = yes; }

 private:
  const bool saved_;
};

// Work of a parallel loop, in elements.
int64_t total_work(int64_t extent, int64_t work);
// Whether loops that run side by side, of so much work in all, pay for a fork and join.
bool is_worth_forking(int64_t total);
// How many chunks a loop of `extent` iterations of `work` elements each is cut into: 1 means inline.
int chunk_count(int64_t extent, int64_t work);
// Where chunk i of n begins in [0, extent): multiples of `align`, so that vectors and cache lines are not torn.
int64_t chunk_begin(int64_t extent, int n, int i, int64_t align);

// Runs body(begin, end) over [0, n) on the thread pool in chunks of at least grain; inline when n <= grain.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace lutra
