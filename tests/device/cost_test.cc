// Tests the cost model: properties that hold for every kernel, and its estimates for known machines.
#include <catch2/catch.hpp>

#include "jit/device/backend.h"
#include "jit/device/cost.h"
#include "jit/device/cuda/machine.h"

namespace lutra {
namespace {

Work work(const Machine& m, double additions, double bytes, double parallel) {
  Work w;
  w.additions = additions;
  w.parallel = parallel;
  w.move(m, bytes, bytes);
  return w;
}

}  // namespace

TEST_CASE("two kernels that become one save a launch and move no more", "[device]") {
  for (const Machine& m : {backend_of(DeviceType::kCPU).stated, cuda::stated_machine()}) {
    for (double n : {1e2, 1e5, 1e8}) {
      const Work a = work(m, n, 8 * n, n), b = work(m, 2 * n, 12 * n, n);
      Work both = a;
      both.add(b);
      CHECK(both.bytes == a.bytes + b.bytes);
      CHECK(seconds(m, both) <= seconds(m, a) + seconds(m, b));
    }
  }
}

TEST_CASE("a loop is shared among processors only where that pays", "[device]") {
  const Machine m = backend_of(DeviceType::kCPU).stated;
  const double few = least_share(m) / 2, many = 100 * least_share(m);
  CHECK(seconds(m, work(m, few, 0, 1024)) == seconds(m, work(m, few, 0, 1)));
  CHECK(seconds(m, work(m, many, 0, 1024)) < seconds(m, work(m, many, 0, 1)) / 2);
}

TEST_CASE("columns of memory beyond the caches are slow to store", "[device]") {
  const Machine m = backend_of(DeviceType::kCPU).stated;
  for (double bytes : {1e5, 1e8}) {
    Work along = work(m, 0, bytes, 1), across;
    across.move_across(m, bytes, bytes);
    CHECK((seconds(m, across) > seconds(m, along)) == (bytes > double(m.cache_bytes[1])));
  }
}

TEST_CASE("few threads leave a GPU's memory idle", "[device]") {
  const Machine m = cuda::stated_machine();
  CHECK(busy_threads(m) == 128);
  CHECK(busy_threads(cuda::stated_machine(80)) == 128);
  CHECK(busy_threads(cuda::stated_machine(100)) == 256);
  CHECK(occupancy(m, 132 * 2048) == 1);
  CHECK(seconds(m, work(m, 0, 1e9, 1024)) > 4 * seconds(m, work(m, 0, 1e9, 1e6)));
  Work row = work(m, 0, 1e9, 1024);
  row.together = 1024;  // threads share each row
  CHECK(seconds(m, row) < 1.1 * seconds(m, work(m, 0, 1e9, 1e6)));
}

}  // namespace lutra
