// Tests which unused kernels a process keeps.
#include <catch2/catch.hpp>

#include "jit/loop/loop.h"
#include "jit/runtime/kernel_cache.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

std::shared_ptr<CachedKernel> kernel(int number) {
  return cached_kernel(
      loop::parse_kernel(str("kernel @idle(p0: f32 out; ;) { %0 = const.f32 ", number, ".25\n store.f32 p0[0], %0 }")),
      {{}, "interp", {}}, false);
}

}  // namespace

TEST_CASE("of kernels that nobody uses those go that were not asked for lately", "[runtime]") {
  const auto used = kernel(0);
  const std::weak_ptr<CachedKernel> idle = kernel(1), asked_for = kernel(2);
  CHECK(kernel(1) == idle.lock());
  std::weak_ptr<CachedKernel> newest;
  for (int i = 3; i < 6000; i++) {
    newest = kernel(i);
    if (i % 100 == 0) kernel(2);
  }
  CHECK(idle.expired());
  CHECK_FALSE(asked_for.expired());
  CHECK_FALSE(newest.expired());
  CHECK(kernel(0) == used);
  CHECK(kernel(1));
}

}  // namespace lutra
