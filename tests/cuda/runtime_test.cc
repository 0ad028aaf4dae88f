// Tests the driver, contexts, allocator, copies, faults and events of ops/cuda on a fake driver.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "ops/cuda/allocator.h"
#include "ops/cuda/copy.h"
#include "ops/cuda/event.h"
#include "ops/cuda/faults.h"
#include "ops/cuda/loaded_module.h"
#include "ops/decompose/emit.h"
#include "ops/defs/call.h"
#include "ops/grad/tape.h"
#include "tests/cuda/fake_driver.h"
#include "tests/message.h"

namespace lutra::cuda {
namespace {

constexpr size_t kMB = size_t(1) << 20;
const Device gpu0 = {DeviceType::kCUDA, 0}, gpu1 = {DeviceType::kCUDA, 1};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<float> numbers(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; i++) v[i] = float(i % 1000);
  return v;
}

// Makes the calls of a program: allocations, copies, a launch, waits, events, frees.
void script() {
  const std::vector<float> there = numbers(3 << 20);  // more than two pieces of staging
  std::vector<float> back(there.size());
  const size_t bytes = there.size() * sizeof(float);
  {
    Ref<Storage> a = lutra::allocate(bytes, gpu0), b = lutra::allocate(bytes, gpu0), c = lutra::allocate(100, gpu0);
    copy_bytes(a->data, gpu0, there.data(), {}, bytes);
    copy_bytes(b->data, gpu0, a->data, gpu0, bytes);
    Context& g = context(gpu0);
    fault_record(g);
    Event start(gpu0, true), end(gpu0, true);
    start.record();
    int value = 7;
    void* params[] = {&value};
    LUTRA_CUDA(launch(nullptr, 1, 1, 1, 32, 1, 1, 0, g.stream, params, nullptr));
    launched(g, "add", "train.lua", 3);
    end.record();
    end.synchronize();
    if (!end.passed()) fail("an event that was waited for has not passed");
    if (!(start.elapsed_ms(end) > 0)) fail("no time between two events");
    copy_bytes(back.data(), {}, b->data, gpu0, bytes);
    synchronize(gpu0);
  }
  if (there != back) fail("the bytes that came back differ");
  empty_cache(gpu0);
}

}  // namespace

TEST_CASE("cuda: a machine without a driver, or with an old one", "[cuda]") {
  {
    FakeGpu g;
    g.version = 11040;
    FakeScope scope(g);
    CHECK_FALSE(is_available());
    CHECK(device_count() == 0);
    CHECK(problem() == "the NVIDIA driver is too old: it supports CUDA 11.4, and 12.0 or newer is needed");
    CHECK(message([] { lutra::allocate(4, gpu0); }) == "device 'cuda:0' is not available: " + problem());
  }
  {
    FakeGpu g;
    g.devices = 0;
    FakeScope scope(g);
    CHECK(problem() == "the NVIDIA driver finds no GPU (no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE))");
  }
  {
    FakeGpu g;
    g.init_result = 999;
    FakeScope scope(g);
    CHECK(problem() == "the NVIDIA driver does not start: unknown error (CUDA_ERROR_UNKNOWN)");
  }
  setenv("LUTRA_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
  set_driver(nullptr);
  CHECK(driver() == nullptr);
  CHECK(contains(driver_problem(), "no NVIDIA driver: /nonexistent/libcuda.so.1"));
  unsetenv("LUTRA_CUDA_DRIVER");
  set_driver(nullptr);
}

TEST_CASE("cuda: devices by index", "[cuda]") {
  FakeGpu g;
  g.devices = 2;
  FakeScope scope(g);
  CHECK(device_count() == 2);
  CHECK(context(gpu1).index == 1);
  CHECK(context(gpu1).arch == 90);
  CHECK(context(gpu1).name == "Fake GPU");
  CHECK(message([] {
          context({DeviceType::kCUDA, 3});
        }) == "device 'cuda:3' is not available: this machine has 2 GPUs");
  fake_gpu().devices = 1;
}

TEST_CASE("cuda: blocks are split, merged and kept", "[cuda]") {
  FakeScope scope;
  Ref<Storage> a = lutra::allocate(1000, gpu0), b = lutra::allocate(513, gpu0), c = lutra::allocate(0, gpu0);
  CHECK(uintptr_t(b->data) - uintptr_t(a->data) == 1024);
  CHECK(uintptr_t(c->data) - uintptr_t(b->data) == 1024);
  MemoryStats s = memory_stats(gpu0);
  CHECK(s.allocated == 1024 + 1024 + 512);
  CHECK(s.reserved == int64_t(2 * kMB));
  CHECK(s.segments == 1);
  CHECK(s.allocations == 3);
  // Freed in the middle: the next of its size takes its place, a larger one does not fit.
  void* middle = b->data;
  b = nullptr;
  Ref<Storage> larger = lutra::allocate(1025, gpu0);
  CHECK(larger->data != middle);
  b = lutra::allocate(1024, gpu0);
  CHECK(b->data == middle);
  // All free: one block again, that goes back whole.
  void* first = a->data;
  a = b = c = larger = nullptr;
  Ref<Storage> whole = lutra::allocate(kMB, gpu0);
  CHECK(whole->data == first);
  whole = nullptr;
  CHECK(memory_stats(gpu0).allocated == 0);
  CHECK(memory_stats(gpu0).max_allocated >= int64_t(kMB));
  empty_cache(gpu0);
  CHECK(memory_stats(gpu0).reserved == 0);
  CHECK(fake_gpu().blocks.empty());
  reset_peak_stats(gpu0);
  CHECK(memory_stats(gpu0).max_allocated == 0);
  CHECK(memory_stats(gpu0).max_reserved == 0);
}

TEST_CASE("cuda: segments by size", "[cuda]") {
  FakeScope scope;
  Ref<Storage> middle = lutra::allocate(5 * kMB, gpu0);
  CHECK(memory_stats(gpu0).reserved == int64_t(20 * kMB));
  Ref<Storage> beside = lutra::allocate(9 * kMB, gpu0);
  CHECK(memory_stats(gpu0).reserved == int64_t(20 * kMB));
  Ref<Storage> large = lutra::allocate(31 * kMB + 1, gpu0);
  CHECK(memory_stats(gpu0).reserved == int64_t(52 * kMB));
  // A small request never takes of a large segment.
  Ref<Storage> small = lutra::allocate(64, gpu0);
  CHECK(memory_stats(gpu0).reserved == int64_t(54 * kMB));
  CHECK(memory_stats(gpu0).segments == 3);
}

TEST_CASE("cuda: blocks are never given out twice", "[cuda]") {
  FakeScope scope;
  uint64_t state = 12345;
  const auto next = [&](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  std::map<uintptr_t, Ref<Storage>> live;
  int64_t expected = 0;
  for (int i = 0; i < 20000; i++) {
    if (live.size() < 40 || next(2)) {
      const size_t n = next(10) ? next(20000) : next(6 * kMB);
      Ref<Storage> s = lutra::allocate(n, gpu0);
      const auto at = uintptr_t(s->data);
      CHECK_FALSE(at % 512);
      auto after = live.lower_bound(at);
      if (after != live.end()) REQUIRE(at + std::max<size_t>(n, 1) <= after->first);
      if (after != live.begin()) {
        --after;
        REQUIRE(after->first + std::max<size_t>(after->second->nbytes, 1) <= at);
      }
      live.emplace(at, std::move(s));
    } else {
      auto it = live.begin();
      std::advance(it, next(live.size()));
      live.erase(it);
    }
    if (live.size() > 60) live.erase(live.begin());
  }
  for (const auto& [at, s] : live) expected += int64_t((std::max<size_t>(s->nbytes, 1) + 511) / 512 * 512);
  // A block that was not split counts as a whole.
  CHECK(memory_stats(gpu0).allocated >= expected);
  live.clear();
  CHECK(memory_stats(gpu0).allocated == 0);
  empty_cache(gpu0);
  CHECK(memory_stats(gpu0).segments == 0);
  CHECK(fake_gpu().used == 0);
}

TEST_CASE("cuda: out of memory", "[cuda]") {
  FakeGpu g;
  g.memory = 64 * kMB;
  FakeScope scope(g);
  static Ref<Storage> garbage;
  garbage = lutra::allocate(30 * kMB, gpu0);
  Ref<Storage> kept = lutra::allocate(20 * kMB, gpu0);
  // Lua's collector frees enough memory.
  set_memory_pressure_hook([](size_t) {
    garbage = nullptr;
    return true;
  });
  Ref<Storage> more = lutra::allocate(40 * kMB, gpu0);
  CHECK_FALSE(garbage);
  CHECK(memory_stats(gpu0).retries == 1);
  const std::string text = message([] { lutra::allocate(50 * kMB, gpu0); });
  CHECK(text ==
        "out of memory on cuda:0: tried to allocate 50.00 MB\n"
        "  in tensors    60.00 MB\n"
        "  held          60.00 MB (in tensors or kept for reuse)\n"
        "  free          4.00 MB of the GPU's 64.00 MB\n"
        "  largest       1 of 40.00 MB, 1 of 20.00 MB");
  CHECK(memory_stats(gpu0).out_of_memory == 1);
  // Freeing lets it go on: cached segments of the wrong size go back first.
  more = nullptr;
  kept = nullptr;
  Ref<Storage> fits = lutra::allocate(50 * kMB, gpu0);
  CHECK(memory_stats(gpu0).reserved == int64_t(50 * kMB));
  CHECK(contains(message([] { lutra::allocate(size_t(1) << 63, gpu0); }), "out of memory on cuda:0"));
  set_memory_pressure_hook(nullptr);
}

TEST_CASE("cuda: storages may die on any thread", "[cuda]") {
  FakeScope scope;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([] {
      std::vector<Ref<Storage>> mine;
      for (int i = 0; i < 500; i++) {
        mine.push_back(lutra::allocate(size_t(i) * 100, gpu0));
        if (i % 3 == 0) std::thread([s = std::move(mine.back())]() mutable { s = nullptr; }).join(), mine.pop_back();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(memory_stats(gpu0).allocated == 0);
}

TEST_CASE("cuda: copies of every size and direction", "[cuda]") {
  FakeGpu g;
  g.devices = 2;
  FakeScope scope(g);
  for (size_t n :
       {size_t(1), size_t(1000), kStagingBytes - 1, kStagingBytes, kStagingBytes + 1, 3 * kStagingBytes + 5}) {
    std::string there(n, 0), back(n, 0);
    for (size_t i = 0; i < n; i++) there[i] = char(i * 31);
    Ref<Storage> a = lutra::allocate(n, gpu0), b = lutra::allocate(n, gpu1), c = lutra::allocate(n, gpu1);
    copy_bytes(a->data, gpu0, there.data(), {}, n);
    copy_bytes(b->data, gpu1, a->data, gpu0, n);
    copy_bytes(c->data, gpu1, b->data, gpu1, n);
    copy_bytes(back.data(), {}, c->data, gpu1, n);
    CHECK(there == back);
  }
  CHECK(fake_gpu().peers.size() == 1);  // asked for once, which is when it is needed
  copy_bytes(nullptr, gpu0, nullptr, {}, 0);
}

TEST_CASE("cuda: every call fails once", "[cuda]") {
  int total = 0;
  {
    FakeScope scope;
    script();
    total = fake_gpu().calls;
    CHECK(fake_gpu().launches == 1);
  }
  CHECK(fake_gpu().clean());
  REQUIRE(total > 40);
  for (const Result code : {1, 2, 719}) {
    int told = 0;
    for (int n = 0; n < total; n++) {
      FakeGpu g;
      g.fail_at = n;
      g.fail_with = code;
      {
        FakeScope scope(g);
        const std::string text = message(script);
        INFO("call " << n << " (" << fake_gpu().failed << ") with " << code << ": " << text);
        if (text != "no error") {
          told++;
          // It says what happened.
          CHECK((contains(text, "CUDA_ERROR") || contains(text, "out of memory")));
          CHECK((contains(text, "cuda:0") || contains(text, "driver")));
        }
        const std::string again = message(script);
        if (fake_gpu().failed == "cuInit" || fake_gpu().failed == "cuDeviceGetCount") {
          CHECK(contains(again, "not available"));
        } else if (code == 719) {
          if (text != "no error" && !contains(text, "not available")) {
            CHECK(contains(text, "the GPU's context is lost, the CPU goes on"));
          }
          CHECK((contains(again, "is lost since: unspecified launch failure") || contains(again, "not available") ||
                 contains(again, "context is lost")));
        } else {
          CHECK(again == "no error");
        }
      }
      INFO("call " << n << " with " << code);
      if (code != 719) CHECK(fake_gpu().clean());
    }
    CHECK(told > total / 2);
  }
}

TEST_CASE("cuda: a module that there is no memory for is loaded when what the allocator keeps was given back",
          "[cuda]") {
  FakeScope scope;
  Context& c = context(gpu0);
  lutra::allocate(size_t(64) << 20, gpu0);
  CHECK(memory_stats(gpu0).reserved > 0);
  fake_gpu().fail_at = fake_gpu().calls + 1;  // after the context is made current
  fake_gpu().fail_with = kOutOfMemory;
  CHECK(LoadedModule::load("no library", c));
  CHECK(fake_gpu().failed == "cuModuleLoadData");
  CHECK(memory_stats(gpu0).reserved == 0);
}

TEST_CASE("cuda: a launch that fails is told with those before it", "[cuda]") {
  FakeScope scope;
  Context& c = context(gpu0);
  Ref<Storage> kept = lutra::allocate(100, gpu0);
  launched(c, "add", "train.lua", 3);
  launched(c, "mm", "train.lua", 4);
  fake_gpu().fail_symbol = "cuStreamSynchronize";
  fake_gpu().fail_with = 719;
  CHECK(message([] { synchronize(gpu0); }) ==
        "cuda:0: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED) in one of the last launches: add (train.lua:3), "
        "then mm (train.lua:4) (LUTRA_CUDA_SYNC=1 tells which); the GPU's context is lost, the CPU goes on");
  CHECK(message([] { lutra::allocate(4, gpu0); }) ==
        "cuda:0: the GPU's context is lost since: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED) after add "
        "(train.lua:3), then mm (train.lua:4); the CPU goes on");
  kept = nullptr;  // no driver, no error
  CHECK(lutra::allocate(4, {})->data != nullptr);
}

TEST_CASE("cuda: a copy between GPUs tells that the context is lost", "[cuda]") {
  for (const char* symbol : {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"}) {
    FakeGpu g;
    g.devices = 2;
    FakeScope scope(g);
    const Ref<Storage> from = lutra::allocate(4, gpu0), to = lutra::allocate(4, gpu1);
    fake_gpu().fail_symbol = symbol;
    fake_gpu().fail_with = 719;
    CHECK(contains(message([&] { copy_bytes(to->data, gpu1, from->data, gpu0, 4); }), "the GPU's context is lost"));
  }
}

TEST_CASE("cuda: faults of kernels", "[cuda]") {
  FakeScope scope;
  Context& c = context(gpu0);
  LaunchFault* record = fault_record(c);
  CHECK(record == fault_record(c));
  CHECK(message([] { synchronize(gpu0); }) == "no error");
  const int64_t site = add_fault_site([](const LaunchFault& f) {
    return Error(ErrorKind::kData, str("gather: index ", f.index, " is out of bounds for size ", f.bound));
  });
  *record = {1, 0, 12, 10, site};
  CHECK(message([] { synchronize(gpu0); }) == "gather: index 12 is out of bounds for size 10");
  CHECK(message([] { synchronize(gpu0); }) == "no error");  // told once, and the context is as before
  *record = {1, 0, 12, 10, site};
  Ref<Storage> a = lutra::allocate(4, gpu0);
  int back = 0;
  CHECK(message([&] { copy_bytes(&back, {}, a->data, gpu0, 4); }) == "gather: index 12 is out of bounds for size 10");
  // Kernels that were launched before the removal may still fail until the host has waited for the device.
  remove_fault_site(site, 0);
  *record = {1, 0, 12, 10, site};
  CHECK(message([] { synchronize(gpu0); }) == "gather: index 12 is out of bounds for size 10");
  CHECK(message([] { synchronize(gpu0); }) == "no error");
  *record = {1, 0, 12, 10, site};
  CHECK(message([] { synchronize(gpu0); }) == "cuda:0: index 12 is out of bounds for a dimension of size 10");
}

TEST_CASE("cuda: events", "[cuda]") {
  FakeScope scope;
  Event a(gpu0, true), b(gpu0, true);
  CHECK(a.passed());
  CHECK_FALSE(a.recorded());
  a.record();
  b.record();
  CHECK(a.elapsed_ms(b) == 1);
  fake_gpu().fail_symbol = "cuEventElapsedTime";
  fake_gpu().fail_with = 600;
  CHECK(contains(message([&] { a.elapsed_ms(b); }), "synchronize() first"));
}

TEST_CASE("cuda: tensors move, and their gradients back", "[cuda]") {
  FakeScope scope;
  Tensor x = make_tensor({2, 3}, DType::kFloat32);
  for (int i = 0; i < 6; i++) x->data_as<float>()[i] = float(i);
  x->requires_grad = true;
  Tensor y = op1(OpId::to_device, {x, gpu0});
  CHECK(y->device() == gpu0);
  CHECK(y->requires_grad);
  Tensor g = make_tensor({2, 3}, DType::kFloat32);
  for (int i = 0; i < 6; i++) g->data_as<float>()[i] = float(10 * i);
  backward({y}, {op1(OpId::to_device, {g, gpu0})}, false, false, {});
  Tensor grad = x->autograd->grad;
  REQUIRE(grad);
  CHECK(grad->device() == Device{});
  CHECK(grad->data_as<float>()[5] == 50);
  // copy_ goes between devices; other ops say which they met.
  Tensor z = make_tensor({2, 3}, DType::kFloat32);
  GradModeScope off(false);
  call_inplace(OpId::copy_, {z, y});
  CHECK(z->data_as<float>()[4] == 4);
  call_inplace(OpId::copy_, {y, g});
  call_inplace(OpId::copy_, {z, y});
  CHECK(z->data_as<float>()[4] == 40);
  CHECK(message([&] {
          op1(OpId::add, {y, z});
        }) == "add: expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!");
  // A transposed matrix keeps its strides.
  Tensor t = op1(OpId::to_device, {op1(OpId::transpose, {z, Scalar::of_int(0), Scalar::of_int(1)}), gpu0});
  CHECK(t->strides[0].hint == 1);
  CHECK(t->strides[1].hint == 3);
}

}  // namespace lutra::cuda
