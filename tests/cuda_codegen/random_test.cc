// Random kernels as CUDA source, run by the host: the same bits as the exact interpreter's. LUTRA_TEST_SCALE multiplies
// their number; LUTRA_TEST_SEED runs one.
#include "tests/codegen/random_kernel.h"
#include "tests/cuda_codegen/shim_library.h"

namespace lutra {

TEST_CASE("random kernels as CUDA source agree with the interpreter", "[cuda]") {
  const char* only = getenv("LUTRA_TEST_SEED");
  const uint64_t first = only ? strtoull(only, nullptr, 10) : 1;
  const uint64_t count = only ? 1 : 120 * uint64_t(test_scale());
  for (uint64_t begin = first; begin < first + count; begin += 120) {
    ShimLibrary library;
    std::vector<Case> cases;
    for (uint64_t seed = begin; seed < std::min(begin + 120, first + count); seed++) {
      cases.push_back(KernelGenerator(seed, true).run());
      const Case& c = cases.back();
      REQUIRE(verify(c.kernel) == "");
      // The likely arguments are the real ones, or far from them.
      std::vector<int64_t> hints = c.ints;
      if (seed % 3 == 1) hints.assign(hints.size(), int64_t(1) << (seed % 14));
      if (seed % 3 == 2) hints.assign(hints.size(), 40);
      library.add(c.kernel, hints);
    }
    library.build();
    for (size_t i = 0; i < cases.size(); i++) {
      INFO("LUTRA_TEST_SEED=" << begin + i);
      library.check(i, cases[i]);
    }
  }
}

}  // namespace lutra
