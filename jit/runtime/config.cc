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

// If the interpreter is chosen, it replaces generated code only; the extern kernels stay as they are. AMX is used by
// extern kernels only, and no isa name for generated code includes it. If such a name is set, extern kernels do not use
// AMX.
ExternIsa current_extern_isa() {
  static const ExternIsa best = cpu::has_amx()      ? ExternIsa::kAmx
                                : cpu::has_avx512() ? ExternIsa::kAvx512
                                : cpu::has_avx2()   ? ExternIsa::kAvx2
                                                    : ExternIsa::kBase;
  const std::string& isa = settings().isa;
  return isa == "avx2" ? std::min(best, ExternIsa::kAvx2) : isa == "avx512" ? std::min(best, ExternIsa::kAvx512) : best;
}

}  // namespace lutra
