// Random kernels as CUDA source, run by the host: the same bits as the exact interpreter's.
#include "tests/codegen/random_kernel.h"
#include "tests/cuda_codegen/shim_library.h"

namespace lutra {

TEST_CASE("random kernels as CUDA source agree with the interpreter", "[cuda]") {
  const auto [first, last] = seeds(120);
  for (uint64_t begin = first; begin <= last; begin += 120) {
    ShimLibrary library;
    std::vector<Case> cases;
    for (uint64_t seed = begin; seed <= std::min(begin + 119, last); seed++) {
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
