// Describes GPUs, from a context's limits or a table of capabilities.
#include "jit/device/cuda/machine.h"

#include "ops/core/error.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {
namespace {

// By capability: the largest GPU sold, and the lanes of a multiprocessor, which cannot be queried.
struct Stated {
  int arch;
  int64_t multiprocessors, threads;
  size_t memory_gb, shared_bytes, cache_mb;
  double lanes, clock, memory_rate;
};
constexpr Stated kStated[] = {
    {70, 80, 2048, 32, 98304, 6, 64, 1.5e9, 0.9e12},        {75, 72, 1024, 24, 65536, 6, 64, 1.7e9, 0.67e12},
    {80, 108, 2048, 80, 166912, 40, 64, 1.4e9, 2.04e12},    {86, 84, 1536, 48, 101376, 6, 128, 1.7e9, 0.77e12},
    {89, 142, 1536, 48, 101376, 96, 128, 2.5e9, 0.96e12},   {90, 132, 2048, 80, 232448, 50, 128, 1.98e9, 3.35e12},
    {100, 148, 2048, 180, 232448, 126, 128, 1.97e9, 8.0e12}};

const Stated& stated(int arch) {
  const Stated* found = &kStated[0];
  for (const Stated& s : kStated) {
    if (s.arch <= arch) found = &s;
  }
  return *found;
}

// Computes the rates. One multiprocessor gets about twice its share of memory bandwidth, and as much from the shared
// cache. A kernel begins 2 us after the one that it waits for.
Machine rated(Machine m, double lanes, double clock, double memory_rate) {
  m.add_rate = lanes * clock;
  m.memory_rate = memory_rate;
  m.processor_rate = m.cache_rate[2] = 2 * memory_rate / double(m.processors);
  m.launch_seconds = 2e-6, m.latency_seconds = 0.62e-6;
  return m;
}

}  // namespace

Machine machine_of(const Context& c) {
  Machine m = stated_machine(c.arch);
  m.isa = str("sm_", c.arch);
  m.processors = c.multiprocessors;
  if (c.threads > 0) m.threads = c.threads;
  if (c.registers > 0) m.registers = size_t(c.registers);
  m.memory_bytes = c.total_bytes;
  m.shared_bytes = size_t(c.shared_bytes);
  if (c.cache_bytes > 0) m.cache_bytes[2] = size_t(c.cache_bytes);
  // Some drivers do not report clocks.
  const Stated& s = stated(c.arch);
  return rated(m, s.lanes, c.clock > 0 ? c.clock : s.clock, c.memory_rate > 0 ? c.memory_rate : s.memory_rate);
}

Machine stated_machine(int arch) {
  const Stated& s = stated(arch);
  Machine m;
  m.isa = str("sm_", arch);
  m.processors = s.multiprocessors;
  m.threads = s.threads;
  m.registers = 65536;
  m.memory_bytes = s.memory_gb << 30;
  m.shared_bytes = s.shared_bytes;
  m.cache_bytes[2] = s.cache_mb << 20;
  return rated(m, s.lanes, s.clock, s.memory_rate);
}

}  // namespace lutra::cuda
