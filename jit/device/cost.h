// The cost model: how many seconds a kernel takes on a machine. All choices of speed use it. No bit of a result depends
// on it; ops/core/numerics.h has what bits depend on.
//
//   seconds = launch + arithmetic + memory                  a processor runs one thread
//   seconds = launch + max(arithmetic, memory, waiting)     it runs several: while one waits, others go on
//
// A core overlaps its arithmetic and memory a little, but never so well that computing again is free.
#pragma once
#include "jit/device/machine.h"

namespace lutra {

// The work of a kernel, by the likely sizes of its loops. The work of a fused kernel is a sum.
struct Work {
  double additions = 0;  // arithmetic, in additions of float32 (loop::cost)
  double bytes = 0;      // that it reads or writes
  double alone = 0;      // seconds for its memory accesses on one processor
  double shared = 0;     // seconds for its accesses to the memory that all processors share
  double parallel = 1;   // iterations that may run in parallel
  double together = 1;   // threads that share an iteration, if a processor runs several
  double steps = 0;      // loads or stores that a thread does one after the other

  // Adds the work of another kernel that becomes one with this one.
  void add(const Work& other);
  // Adds `bytes` of traffic with a memory of `size` bytes, in the cache that holds that size. Each kernel's traffic
  // counts by itself, so two kernels that become one never move more.
  void move(const Machine& machine, double bytes, double size);
  // Like move, for loops that go down the columns of a memory, so that they fetch each line separately.
  void move_across(const Machine& machine, double bytes, double size);
  // Adds what it costs that elements accessed one after the other are in different lines of a memory of `size` bytes.
  // The elements are counted as reads; a write counts twice, since its line goes back.
  void jump(const Machine& machine, double elements, double size);
};

inline constexpr double kLine = 64;  // bytes that a cache fetches at a time

// Returns how many processors are busy.
double busy(const Machine& machine, const Work& work);
// Returns `threads` as a share of the threads that the machine holds at a time.
double occupancy(const Machine& machine, double threads);
double seconds(const Machine& machine, const Work& work);

// The cost of an element in KernelLaunch::work, in additions. Such an element is one of a sum of two vectors in memory.
inline constexpr int64_t kAdditionsOfElement = 6;
// Returns the number of additions below which a share of a loop is not worth a processor.
double least_share(const Machine& machine);
// For a machine whose processors run several threads: returns how many threads keep a processor's share of memory busy,
// rounded to a power of two.
int64_t busy_threads(const Machine& machine);
// Returns the bytes of the near memory of one processor. What an iteration accesses again comes from there.
double near_bytes(const Machine& machine);

}  // namespace lutra
