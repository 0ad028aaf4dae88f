// Finds whether this processor has AMX and the system lets this process use it.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops/core/cpu.h"

namespace lutra::cpu {
namespace {

bool processor_has_amx() {
  constexpr unsigned kTiles = 1u << 24, kBFloat16 = 1u << 22, kInt8 = 1u << 25, kAll = kTiles | kBFloat16 | kInt8;
  constexpr unsigned kAvx512BFloat16 = 1u << 5;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvx512BFloat16) && __builtin_cpu_supports("avx512bw");
}

// Asks the system to keep the state of tiles for this process from now on. It refuses if it does not know tiles, or if
// a thread's signal stack is too small for them.
bool may_use_tiles() {
#ifdef SYS_arch_prctl
  constexpr int kAskForState = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_amx() {
  static const bool has = has_avx512() && processor_has_amx() && may_use_tiles();
  return has;
}

}  // namespace lutra::cpu
