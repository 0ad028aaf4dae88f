// Tests descriptions of machines, and the code that reads them: the mapping of GPU kernels depends on them, results do
// not.
#include "jit/device/cuda/machine.h"
#include "jit/codegen/cuda/code.h"
#include "jit/device/backend.h"
#include "tests/codegen/support.h"

namespace lutra {
namespace {

const char* const kAdd = R"(kernel @add(p0: f32 in, p1: f32 out; n0;) {
  for i0 in n0 parallel vector {
    %0 = load.f32 p0[i0]
    %1 = add.f32 %0, %0
    store.f32 p1[i0], %1
  }
}
)";

}  // namespace

TEST_CASE("a CPU describes itself", "[device][cuda]") {
  const Machine m = backend_of(Device{}).machine({});
  CHECK(m.processors >= 1);
  CHECK(m.memory_bytes > size_t(64) << 20);
  CHECK(!m.isa.empty());
}

TEST_CASE("GPUs that are not there have a description by capability", "[device][cuda]") {
  CHECK(cuda::stated_machine().processors == 132);
  CHECK(cuda::stated_machine(80).processors == 108);
  CHECK(cuda::stated_machine(87).processors == 84);
  CHECK(cuda::stated_machine(90).isa == "sm_90");
}

TEST_CASE("the mapping of a kernel follows the machine's multiprocessors", "[device][cuda]") {
  const loop::Kernel k = loop::parse_kernel(kAdd);
  const int64_t hints[] = {1 << 16};
  Machine small = cuda::stated_machine();
  small.processors = 4;
  const std::string on_large = cuda::mapping_class(k, hints, cuda::stated_machine());
  CHECK(on_large != cuda::mapping_class(k, hints, small));
  CHECK(cuda::generate(k, hints, small)->text != cuda::generate(k, hints, cuda::stated_machine())->text);
}

}  // namespace lutra
