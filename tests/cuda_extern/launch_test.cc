// Tests extern calls through the driver: launches and temporary memory on a fake driver, where each call fails once;
// the CPU's candidate on copies; calls that are only prepared; memory of recordings.
#include <catch2/catch.hpp>
#include <cstring>

#include "jit/runtime/pool.h"
#include "ops/core/half.h"
#include "ops/cuda/allocator.h"
#include "ops/cuda/loaded_module.h"
#include "ops/extern/cuda/kernels.h"
#include "tests/cuda/fake_driver.h"
#include "tests/cuda_extern/calls.h"

namespace lutra::cuda {
namespace {

const Device gpu = {DeviceType::kCUDA, 0};

// A sum of rows into a vector by an index, on the (fake) GPU.
struct GpuCall {
  std::vector<Ref<Storage>> memory;
  std::vector<ExternView> in, out;
  std::vector<int64_t> ints = {0};
  std::vector<double> scalars = {1};
  ExternCall call;

  ExternView view(DType t, std::vector<int64_t> sizes, const void* data) {
    Operand o = make_operand(t, std::move(sizes));
    const size_t bytes = size_t(o.view.numel()) * size_of(t);
    memory.push_back(lutra::allocate(bytes, gpu));
    if (data) copy_bytes(memory.back()->data, gpu, data, {}, bytes);
    o.view.data = memory.back()->data;
    return o.view;
  }
  GpuCall() {
    const float x[] = {1, 2, 3}, s[] = {10, 20, 30, 40};
    const int64_t i[] = {2, 0, 2, 1};
    in = {view(DType::kFloat32, {3}, x), view(DType::kInt64, {4}, i), view(DType::kFloat32, {4}, s)};
    out = {view(DType::kFloat32, {3}, nullptr)};
    call.op = OpId::index_add, call.in = in, call.out = out, call.ints = ints, call.scalars = scalars;
    call.device = gpu;
  }
  std::vector<float> result() const {
    std::vector<float> v(3);
    copy_bytes(v.data(), {}, out[0].data, gpu, 12);
    return v;
  }
};

const std::vector<float> kSum = {21, 42, 43};

}  // namespace

TEST_CASE("cuda extern: the CPU's candidate on copies") {
  const FakeScope fake;
  GpuCall c;
  run_on_host(c.call);
  CHECK(c.result() == kSum);
  c.out[0].data = c.in[0].data;  // in place
  run_on_host(c.call);
  CHECK(c.result() == kSum);
}

TEST_CASE("cuda extern: a call within another one leaves the other's memory alone") {
  HostMachine m;
  ScratchPool pool;
  const ScratchScope scope(&pool);
  ExternCall call;
  const void* first;
  {
    Launcher outer(call);
    first = outer.scratch_bytes(1 << 24);
    Launcher inner(call);
    CHECK(inner.scratch_bytes(1 << 24) != first);
  }
  Launcher next(call);
  CHECK(next.scratch_bytes(1 << 24) == first);
}

TEST_CASE("cuda extern: half types that the CPU's candidate lacks are float32 there") {
  const FakeScope fake;
  REQUIRE_FALSE(extern_supports(OpId::flash_attention, DType::kBFloat16, DeviceType::kCPU));
  // One query over two keys alike: the mean of the values.
  const uint16_t one[] = {float_to_bfloat16(1), float_to_bfloat16(1)};
  const uint16_t values[] = {float_to_bfloat16(3), float_to_bfloat16(4)};
  GpuCall c;
  c.in = {c.view(DType::kBFloat16, {1, 1, 1, 1}, one), c.view(DType::kBFloat16, {1, 1, 2, 1}, one),
          c.view(DType::kBFloat16, {1, 1, 2, 1}, values), ExternView()};
  c.out = {c.view(DType::kBFloat16, {1, 1, 1, 1}, nullptr), c.view(DType::kFloat32, {1, 1, 1}, nullptr)};
  c.call.op = OpId::flash_attention, c.call.in = c.in, c.call.out = c.out, c.call.parallel = parallel_for;
  run_on_host(c.call);
  uint16_t bits;
  copy_bytes(&bits, {}, c.out[0].data, gpu, 2);
  CHECK(bfloat16_to_float(bits) == 3.5f);
}

TEST_CASE("cuda extern: on the CPU's candidate every call fails once") {
  int calls = 0;
  {
    const FakeScope fake;
    const GpuCall c;
    const int before = fake_gpu().calls;
    run_on_host(c.call);
    calls = fake_gpu().calls - before;
  }
  REQUIRE(calls > 0);
  for (int i = 0; i < calls; i++) {
    const FakeScope fake;
    GpuCall c;
    fake_gpu().fail_at = fake_gpu().calls + i;
    // Some failures the runtime gets over; the others are errors, and the next call works.
    try {
      run_on_host(c.call);
    } catch (const Error&) {
      run_on_host(c.call);
    }
    CHECK_FALSE(fake_gpu().failed.empty());
    CHECK(c.result() == kSum);
  }
}

TEST_CASE("cuda extern: launches, their memory, and calls that are only prepared") {
  const FakeScope fake;
  GpuCall c;
  if (!has_nvrtc()) {
    std::string message;
    try {
      run_index_add(c.call);
    } catch (const Error& e) {
      message = e.what();
    }
    CHECK(message.find(nvrtc_problem()) != std::string::npos);
    return;
  }
  const int64_t allocated = memory_stats(gpu).allocated;
  prepare(c.call);
  CHECK(fake_gpu().launches == 0);
  run_index_add(c.call);
  CHECK(fake_gpu().launches > 0);
  CHECK(memory_stats(gpu).allocated == allocated);
}

TEST_CASE("cuda extern: a recording's calls share its temporary memory") {
  const FakeScope fake;
  ScratchPool pool;
  void* first = pool.take(1000, gpu);
  CHECK(pool.take(1000, gpu) != first);
  pool.begin_call();
  CHECK(pool.take(900, gpu) != nullptr);
  CHECK(pool.take(900, gpu) != nullptr);
  const int64_t allocated = memory_stats(gpu).allocated;
  pool.begin_call();
  pool.take(1000, gpu), pool.take(500, gpu);
  CHECK(memory_stats(gpu).allocated == allocated);
}

TEST_CASE("cuda extern: large temporary memory is taken from what is lent; too little gives way unless it is held") {
  const FakeScope fake;
  constexpr size_t kMB = size_t(1) << 20;
  ScratchPool pool;
  std::vector<char> lent(12 * kMB + 512);
  pool.lend(lent.data(), lent.size());
  pool.begin_call();
  const auto inside = [&](void* p, size_t nbytes) {
    const char* c = static_cast<char*>(p);
    return c >= lent.data() && c + nbytes <= lent.data() + lent.size();
  };
  void *a = pool.take(6 * kMB, gpu), *b = pool.take(6 * kMB, gpu);
  CHECK((inside(a, 6 * kMB) && inside(b, 6 * kMB) &&
         static_cast<char*>(b) - static_cast<char*>(a) >= ptrdiff_t(6 * kMB)));
  CHECK((!inside(pool.take(5 * kMB, gpu), 1) && !inside(pool.take(1000, gpu), 1)));  // no room; too little
  pool.lend(nullptr, 0);
  pool.begin_call();
  std::vector<Ref<Storage>> held;
  pool.hold_in(&held);
  pool.take(8 * kMB, gpu);  // in place of the one of 5 MB
  CHECK(memory_stats(gpu).allocated < int64_t(9 * kMB));
  CHECK((held.size() == 1 && held[0]->nbytes == 8 * kMB));
  pool.begin_call();
  pool.take(9 * kMB, gpu);  // beside the one that is held
  CHECK(memory_stats(gpu).allocated >= int64_t(17 * kMB));
}

}  // namespace lutra::cuda
