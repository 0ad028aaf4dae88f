// How long a kernel takes on a machine: the one model that choices of speed ask. What a kernel does and what a machine
// can do go in, seconds come out. No bit of a result depends on it: what bits depend on is in ops/core/numerics.h.
//
//   seconds = launch + arithmetic + memory                  one thread a processor
//   seconds = launch + max(arithmetic, memory, waiting)     several: while one waits, others go on
//
// A core overlaps its arithmetic and memory a little, but never so well that computing again is free.
#pragma once
#include "jit/device/machine.h"

namespace lutra {

// What a kernel does, by the likely sizes of its loops. Kernels are put together by adding.
struct Work {
  double additions = 0;  // arithmetic, in additions of float32 (loop::cost)
  double bytes = 0;      // that it reads or writes
  double alone = 0;      // seconds that this takes one processor
  double shared = 0;     // and that it takes the memory that all of them share
  double parallel = 1;   // iterations that may run side by side
  double together = 1;   // threads that share one of them, where a processor has several
  double steps = 0;      // loads or stores that a thread does one after the other

  // Of a kernel that does this and the other's.
  void add(const Work& other);
  // Bytes, in all, of a memory of `size` bytes. It is found where memory of that size is: each kernel's is, so that two
  // that become one never move more.
  void move(const Machine& machine, double bytes, double size);
  // Bytes of a memory that loops walk down the columns of, so that each line is met by itself.
  void move_across(const Machine& machine, double bytes, double size);
};

// Processors that are busy.
double busy(const Machine& machine, const Work& work);
// How many of the threads that the machine holds at a time `threads` are.
double occupancy(const Machine& machine, double threads);
double seconds(const Machine& machine, const Work& work);

// Of work that is told in elements (KernelLaunch::work): an element of a sum of two vectors in memory is so many
// additions.
inline constexpr int64_t kAdditionsOfElement = 6;
// Additions below which a share of a loop is not worth a processor of its own.
double least_share(const Machine& machine);
// Of a machine whose processors have several threads: how many of one keep its share of memory busy, to the nearest
// power of two.
int64_t busy_threads(const Machine& machine);
// Bytes that one processor has near: what an iteration meets again comes from there.
double near_bytes(const Machine& machine);

}  // namespace lutra
