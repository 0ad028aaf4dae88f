// Executables from hand-written plans: arguments, arena, faults, random numbers, threads, memory.
#include <cstring>
#include <thread>

#include <catch2/catch.hpp>

#include "jit/runtime/config.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/pool.h"
#include "jit/runtime/profile.h"
#include "ops/core/settings.h"
#include "ops/defs/call.h"
#include "tests/runtime/plans.h"
#include "tests/runtime/threads.h"

namespace lutra {
namespace {

// y[i] = a[index[i]]; n1 bounds the index.
const char* const kGather = R"(kernel @gather(p0: f32 in, p1: i64 in, p2: f32 out; n0, n1;) {
  for i0 in n0 parallel {
    %0 = load.i64 p1[i0]
    check.i64 %0, n1
    %1 = load.f32 p0[%0]
    store.f32 p2[i0], %1
  }
}
)";

const char* const kUniform = R"(kernel @uniform(p0: f32 out; n0;) {
  for i0 in n0 parallel vector {
    %0 = index.i64 i0
    %1 = uniform.f32 %0, 0
    store.f32 p0[i0], %1
  }
}
)";

Tensor indices(const std::vector<int64_t>& v) {
  Tensor t = make_tensor({int64_t(v.size())}, DType::kInt64);
  std::memcpy(t->data(), v.data(), v.size() * 8);
  return t;
}

// Output 0: a gathered by index. Input 2 is overwritten with twice itself afterwards.
HandPlan gather_plan() {
  HandPlan p;
  const ExprId n = size_of_input(p, 1), rows = size_of_input(p, 0), m = size_of_input(p, 2);
  const int32_t a = add_buffer(p, Buffer::kInput, DType::kFloat32, rows, 0);
  const int32_t index = add_buffer(p, Buffer::kInput, DType::kInt64, n, 1);
  const int32_t y = add_buffer(p, Buffer::kOutput, DType::kFloat32, n);
  const int32_t w = add_buffer(p, Buffer::kInput, DType::kFloat32, m, 2);
  KernelLaunch l = launch_of(kGather, {a, index, y}, {n, rows});
  l.extent = n, l.work = p.env->constant(1);
  l.faults = {{1, 0, "index_select", "model.lua", 12}};
  p.launches.emplace_back(std::move(l));
  KernelLaunch twice = launch_of(kScaleAdd, {w, w, w}, {m}, {p.env->number(1.0)});
  twice.extent = m;
  p.launches.emplace_back(std::move(twice));
  p.outputs.push_back(tensor_output(vector_view(p, y, DType::kFloat32, n)));
  p.mutated = {2};
  p.rng_calls = 3;
  return p;
}

}  // namespace

TEST_CASE("an executable serves all sizes, at any number of threads", "[runtime]") {
  auto e = build(scale_add_plan());
  CHECK(e->kernel_count() == 1);
  for (const int threads : {1, 2, 5}) {
    Threads scope(threads);
    for (const int64_t n : {0, 1, 7, 1000, 70001}) {
      Tensor a = vector_of(n, 1, 0.5f), b = vector_of(n, -3, 0.25f);
      const Tensor y = e->run({a, b}, {3.0})[0].as<Tensor>();
      REQUIRE(y->sizes.size() == 1);
      REQUIRE(y->sizes[0].hint == n);
      int64_t wrong = 0;
      for (int64_t i = 0; i < n; i++) {
        wrong += y->data_as<float>()[i] != a->data_as<float>()[i] * 3.0f + b->data_as<float>()[i];
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("run_into writes where it is told", "[runtime]") {
  auto e = build(scale_add_plan());
  Tensor a = vector_of(100, 0, 1), b = vector_of(100, 5, 0), y = vector_of(100, 0, 0);
  e->run_into({a, b}, {2.0}, {y});
  CHECK(y->data_as<float>()[99] == 203.0f);
  // In place: a = a * 2 + a.
  e->run_into({a, a}, {2.0}, {a});
  CHECK(a->data_as<float>()[99] == 297.0f);
}

// Eight times the input, by two temporaries.
HandPlan chain_plan() {
  HandPlan p;
  const ExprId n = size_of_input(p, 0), bytes = p.env->make(SymOp::kMul, n, p.env->constant(4));
  const int32_t a = add_buffer(p, Buffer::kInput, DType::kFloat32, n, 0);
  const int32_t t0 = add_buffer(p, Buffer::kTemp, DType::kFloat32, n, 0);
  const int32_t t1 = add_buffer(p, Buffer::kTemp, DType::kFloat32, n, 1);
  const int32_t y = add_buffer(p, Buffer::kOutput, DType::kFloat32, n);
  p.slots = {{bytes, 0, 1}, {bytes, 1, 2}};
  for (const auto& [in, out] : {std::pair{a, t0}, {t0, t1}, {t1, y}}) {
    KernelLaunch l = launch_of(kScaleAdd, {in, in, out}, {n}, {p.env->number(1.0)});
    l.extent = n;
    p.launches.emplace_back(std::move(l));
  }
  p.outputs = {tensor_output(vector_view(p, y, DType::kFloat32, n)), {}};
  return p;
}

TEST_CASE("temporaries live in an arena that results do not share", "[runtime]") {
  auto e = build(chain_plan());
  CHECK(e->kernel_count() == 3);
  const Tensor small = e->run({vector_of(10, 1, 0)}, {})[0].as<Tensor>();
  const auto results = e->run({vector_of(5000, 2, 0)}, {});
  CHECK(results[1].is_none());
  CHECK(small->data_as<float>()[9] == 8.0f);
  CHECK(results[0].as<Tensor>()->data_as<float>()[4999] == 16.0f);
}

TEST_CASE("a prepared run allocates its results alone", "[runtime]") {
  auto e = build(chain_plan());
  const Tensor x = vector_of(5000, 2, 0);
  e->prepare({x}, {});
  const int64_t before = allocated_bytes();
  const Tensor y = e->run({x}, {})[0].as<Tensor>();
  CHECK(allocated_bytes() - before == int64_t(y->storage->nbytes));
  CHECK(y->data_as<float>()[4999] == 16.0f);
}

TEST_CASE("a bad index is an error; nothing after it has happened", "[runtime]") {
  auto e = build(gather_plan());
  Tensor a = vector_of(10, 0, 1), w = vector_of(4, 1, 0);
  Generator& g = default_generator();
  const uint64_t calls = g.next_call;
  for (const int threads : {1, 2}) {
    Threads scope(threads);
    std::vector<int64_t> index(100000, 3);
    index[70000] = 12, index[90000] = -1;
    const uint32_t version = w->storage->version;
    try {
      e->run({a, indices(index), w}, {});
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.kind == ErrorKind::kData);
      CHECK(std::string(error.what()) == "index_select: index 12 is out of bounds for dimension 0 with size 10");
      CHECK(std::string(error.file) == "model.lua");
      CHECK(error.line == 12);
    }
    CHECK(w->data_as<float>()[0] == 1.0f);
    CHECK(w->storage->version == version);
    CHECK(g.next_call == calls);
  }
  const Tensor y = e->run({a, indices({9, 0, 4}), w}, {})[0].as<Tensor>();
  CHECK(y->data_as<float>()[2] == 4.0f);
  CHECK(w->data_as<float>()[0] == 2.0f);
  CHECK(w->storage->version == 1);
  CHECK(g.next_call == calls + 3);
}

TEST_CASE("random numbers are a function of seed, call and element", "[runtime]") {
  HandPlan p;
  const ExprId n = size_of_input(p, 0);
  add_buffer(p, Buffer::kInput, DType::kFloat32, n, 0);
  const int32_t y = add_buffer(p, Buffer::kOutput, DType::kFloat32, n);
  KernelLaunch l = launch_of(kUniform, {y}, {n});
  l.extent = n;
  p.launches.emplace_back(std::move(l));
  p.outputs = {tensor_output(vector_view(p, y, DType::kFloat32, n))};
  p.rng_calls = 1;
  auto e = build(std::move(p));
  Generator& g = default_generator();
  const Generator saved = g;
  g = {42, 7};
  const auto draw = [&](int64_t size, int threads) {
    Threads scope(threads);
    return e->run({vector_of(size, 0, 0)}, {})[0].as<Tensor>();
  };
  const Tensor first = draw(100000, 1), second = draw(100000, 1);
  CHECK(g.next_call == 9);
  g.next_call = 7;
  const Tensor again = draw(100000, 2), shorter = (g.next_call = 7, draw(5, 1));
  CHECK(std::memcmp(first->data(), again->data(), 400000) == 0);
  CHECK(std::memcmp(first->data(), shorter->data(), 20) == 0);
  CHECK(std::memcmp(first->data(), second->data(), 400000) != 0);
  g = saved;
}

TEST_CASE("outputs may be views of inputs and numbers", "[runtime]") {
  HandPlan p;
  const ExprId n = size_of_input(p, 0), two = p.env->constant(2);
  const int32_t a = add_buffer(p, Buffer::kInput, DType::kFloat32, n, 0);
  BufferView tail{a, DType::kFloat32, {p.env->make(SymOp::kSub, n, two)}, {p.env->constant(1)}, two};
  const ExprId x = p.env->leaf(SymOp::kScalarInput, 0, 0, 0, 1.5);
  PlanOutput number, whole;
  number.kind = whole.kind = PlanOutput::kScalar;
  number.scalar = p.env->make(SymOp::kNMul, x, x);
  whole.scalar = n;
  p.outputs = {tensor_output(tail), number, whole};
  auto e = build(std::move(p));
  Tensor in = vector_of(6, 0, 1);
  const auto out = e->run({in}, {3.0});
  CHECK(out[0].as<Tensor>()->storage == in->storage);
  CHECK(out[0].as<Tensor>()->data_as<float>()[0] == 2.0f);
  CHECK(out[0].as<Tensor>()->sizes[0].hint == 4);
  CHECK(out[1].as<Scalar>().d == 9.0);
  CHECK(out[2].as<Scalar>().to_int() == 6);
}

TEST_CASE("running out of memory is an error before anything is launched", "[runtime]") {
  HandPlan p = gather_plan();
  // An output of 2^60 elements.
  p.buffers[2].elements = p.env->constant(int64_t(1) << 60);
  auto e = build(std::move(p));
  Tensor a = vector_of(10, 0, 1), w = vector_of(4, 1, 0);
  try {
    e->run({a, indices({1}), w}, {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind == ErrorKind::kMemory);
  }
  CHECK(w->data_as<float>()[0] == 1.0f);
  Tensor freed = vector_of(10, 0, 1);
  freed->storage->free();
  CHECK_THROWS_WITH(e->run({freed, indices({1}), w}, {}), Catch::Contains("freed"));
}

TEST_CASE("an executable may run on several threads at once", "[runtime]") {
  auto e = build(scale_add_plan());
  std::atomic<int> wrong{0};
  const auto work = [&](float base) {
    for (int i = 0; i < 300; i++) {
      const Tensor y = e->run({vector_of(2000, base, 0), vector_of(2000, 1, 0)}, {double(i)})[0].as<Tensor>();
      for (int64_t k = 0; k < 2000; k++) wrong += y->data_as<float>()[k] != base * float(i) + 1;
    }
  };
  std::thread other(work, 2.0f);
  work(3.0f);
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE("equal kernels are compiled once", "[runtime]") {
  auto a = build(scale_add_plan()), b = build(scale_add_plan());
  runtime_config().perf = true;
  a->run({vector_of(3, 0, 1), vector_of(3, 0, 1)}, {1.0});
  b->run({vector_of(3, 0, 1), vector_of(3, 0, 1)}, {1.0});
  runtime_config().perf = false;
  const std::string report = perf_report();
  CHECK(report.find("2 launches") != std::string::npos);
  CHECK(report.find("scale_add") == report.rfind("scale_add"));
}

TEST_CASE("chunks cover a loop once", "[runtime]") {
  Threads scope(3);
  for (const int64_t extent : {1, 63, 64, 65, 1000, 123457}) {
    for (const int n : {1, 2, 3, 7}) {
      for (const int64_t align : {1, 64}) {
        int64_t at = 0;
        for (int i = 0; i < n; i++) {
          CHECK(chunk_begin(extent, n, i, align) == at);
          at = chunk_begin(extent, n, i + 1, align);
        }
        CHECK(at == extent);
      }
    }
  }
  CHECK(chunk_count(100, 1) == 1);
  CHECK(chunk_count(1 << 20, 1) == 3);
  CHECK(chunk_count(2, 1 << 20) == 2);
  std::vector<int> seen(10000);
  parallel_for(10000, 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) seen[size_t(i)]++;
  });
  CHECK(seen == std::vector<int>(10000, 1));
}

TEST_CASE("threads that want the same kernels compile each once", "[executable]") {
  std::vector<loop::Kernel> kernels;
  for (int k = 0; k < 16; k++) {
    kernels.push_back(loop::parse_kernel(
        str("kernel @wanted_by_many(p0: f32 out; ;) { %0 = const.f32 ", k, ".5\n store.f32 p0[0], %0 }")));
  }
  const KernelTarget target{{}, best_isa(), {}};
  const int64_t before = compile_cost().kernels;
  std::vector<std::vector<std::shared_ptr<CachedKernel>>> got(8);
  std::vector<std::thread> threads;
  for (auto& mine : got) {
    threads.emplace_back([&] {
      for (const loop::Kernel& k : kernels) mine.push_back(cached_kernel(k, target, false, false));
      for (size_t k = 0; k < kernels.size(); k++) {
        if (!mine[k]) mine[k] = cached_kernel(kernels[k], target, false);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(compile_cost().kernels - before == 16);
  for (const auto& mine : got) CHECK(mine == got[0]);
}

TEST_CASE("a kernel that could not be compiled is tried again by who waits for it", "[executable]") {
  const loop::Kernel k =
      loop::parse_kernel("kernel @refused(p0: f32 out; ;) { %0 = const.f32 1\n store.f32 p0[0], %0 }");
  for (int n = 0; n < 2; n++) CHECK_THROWS_AS(cached_kernel(k, {{}, "no such isa", {}}, false), Error);
}

}  // namespace lutra
