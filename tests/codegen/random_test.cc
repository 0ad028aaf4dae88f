// Random kernels: the exact interpreter and native code must agree bit for bit.
#include "tests/codegen/random_kernel.h"

namespace lutra {
namespace {

using namespace loop;

void check_seed(uint64_t seed) {
  INFO("LUTRA_TEST_SEED=" << seed);
  Case c = KernelGenerator(seed).run();
  const std::string text = print(c.kernel);
  INFO(text);
  REQUIRE(verify(c.kernel) == "");
  REQUIRE(print(parse_kernel(text)) == text);
  check_exact(c);
}

}  // namespace

TEST_CASE("random kernels agree with the interpreter", "[codegen]") {
  const auto [first, last] = seeds(300);
  for (uint64_t seed = first; seed <= last; seed++) check_seed(seed);
}

}  // namespace lutra
