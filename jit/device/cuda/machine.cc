// A context's limits, or a table of capabilities.
#include "jit/device/cuda/machine.h"

#include "ops/core/error.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {
namespace {

struct Stated {
  int arch;
  int64_t multiprocessors;
  size_t memory_gb, shared_bytes;
};
constexpr Stated kStated[] = {{70, 80, 32, 98304},    {75, 72, 24, 65536},   {80, 108, 80, 166912},
                              {86, 84, 48, 101376},   {89, 142, 48, 101376}, {90, 132, 80, 232448},
                              {100, 148, 180, 232448}};

Machine described(int arch, int64_t multiprocessors, size_t memory_bytes, size_t shared_bytes) {
  Machine m;
  m.isa = str("sm_", arch);
  m.processors = multiprocessors;
  m.memory_bytes = memory_bytes;
  m.shared_bytes = shared_bytes;
  return m;
}

}  // namespace

Machine machine_of(const Context& c) {
  return described(c.arch, c.multiprocessors, c.total_bytes, size_t(c.shared_bytes));
}

Machine stated_machine(int arch) {
  const Stated* found = &kStated[0];
  for (const Stated& s : kStated) {
    if (s.arch <= arch) found = &s;
  }
  return described(arch, found->multiprocessors, found->memory_gb << 30, found->shared_bytes);
}

}  // namespace lutra::cuda
