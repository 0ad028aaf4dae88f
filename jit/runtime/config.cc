// See config.h.
#include "jit/runtime/config.h"

#include <algorithm>

#include "jit/codegen/kernel.h"
#include "ops/core/cpu.h"
#include "ops/core/settings.h"

namespace lutra {

RuntimeConfig& runtime_config() {
  static RuntimeConfig config;
  return config;
}

std::string current_isa() {
  const std::string& isa = settings().isa;
  return isa.empty() ? best_isa() : isa;
}

// The interpreter judges generated code, not the kernels beside it: they stay as they are. AMX, which only they know,
// is part of no name that code is generated for: where one is asked for, they do without.
ExternIsa current_extern_isa() {
  static const ExternIsa best = cpu::has_amx()      ? ExternIsa::kAmx
                                : cpu::has_avx512() ? ExternIsa::kAvx512
                                : cpu::has_avx2()   ? ExternIsa::kAvx2
                                                    : ExternIsa::kBase;
  const std::string& isa = settings().isa;
  return isa == "avx2" ? std::min(best, ExternIsa::kAvx2) : isa == "avx512" ? std::min(best, ExternIsa::kAvx512) : best;
}

}  // namespace lutra
