// Settings of the runtime, and the instruction sets that follow from them.
#include "jit/runtime/config.h"

#include <algorithm>

#include "jit/codegen/kernel.h"

namespace lutra {

RuntimeConfig& runtime_config() {
  static RuntimeConfig config;
  return config;
}

std::string current_isa() {
  const std::string& isa = runtime_config().isa;
  return isa.empty() ? best_isa() : isa;
}

// The interpreter judges generated code, not the kernels beside it: they stay as they are.
ExternIsa current_extern_isa() {
  static const ExternIsa best =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
          ? ExternIsa::kAvx512
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? ExternIsa::kAvx2
                                                                        : ExternIsa::kBase;
  return runtime_config().isa == "avx2" ? std::min(best, ExternIsa::kAvx2) : best;
}

}  // namespace lutra
