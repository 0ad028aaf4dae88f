// Random kernels: the exact interpreter and native code must agree bit for bit. LUTRA_TEST_SCALE multiplies their
// number; LUTRA_TEST_SEED runs one.
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
  if (const char* seed = getenv("LUTRA_TEST_SEED")) {
    check_seed(strtoull(seed, nullptr, 10));
    return;
  }
  for (int i = 0; i < 300 * test_scale(); i++) check_seed(uint64_t(i) + 1);
}

}  // namespace lutra
