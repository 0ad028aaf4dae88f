// Settings of the runtime, and the instruction sets that follow from them.
#include "jit/runtime/config.h"

#include <algorithm>

#include "jit/codegen/kernel.h"
#include "ops/core/cpu.h"

namespace lutra {

namespace {
constinit thread_local RuntimeConfig* installed = nullptr;
}

RuntimeConfig& runtime_config() {
  static RuntimeConfig config;
  return installed ? *installed : config;
}

ConfigScope::ConfigScope(RuntimeConfig& settings) : saved_(installed) { installed = &settings; }
ConfigScope::~ConfigScope() { installed = saved_; }

std::string current_isa() {
  const std::string& isa = runtime_config().isa;
  return isa.empty() ? best_isa() : isa;
}

// The interpreter judges generated code, not the kernels beside it: they stay as they are.
ExternIsa current_extern_isa() {
  static const ExternIsa best = cpu::has_avx512() ? ExternIsa::kAvx512
                                : cpu::has_avx2() ? ExternIsa::kAvx2
                                                  : ExternIsa::kBase;
  return runtime_config().isa == "avx2" ? std::min(best, ExternIsa::kAvx2) : best;
}

}  // namespace lutra
