// Generated kernels of all kinds compile by NVRTC, for which no GPU is needed.
#include <chrono>

#include "jit/codegen/cuda/code.h"
#include "ops/cuda/program.h"
#include "tests/codegen/random_kernel.h"

namespace lutra {

TEST_CASE("random kernels compile to cubins", "[cuda]") {
  if (!cuda::has_nvrtc()) {
    WARN("skipped: " << cuda::nvrtc_problem());
    return;
  }
  setenv("XDG_CACHE_HOME", "/nowhere", 1);
  for (uint64_t seed = 1; seed <= 12 * uint64_t(test_scale()); seed++) {
    const Case c = Generator(seed, true).run();
    const auto source = cuda::generate(c.kernel, c.ints);
    for (int arch : {80, 90}) {
      const std::string cubin = cuda::compile_cubin(source->text, arch);
      CHECK(cubin.substr(0, 4) ==
            "\x7f"
            "ELF");
    }
  }
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace lutra
