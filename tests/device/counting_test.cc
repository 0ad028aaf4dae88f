// Tests compiled programs and eager ops on a kind of device that neither ops nor jit know.
#include <catch2/catch.hpp>
#include <cstring>

#include "jit/compile.h"
#include "jit/runtime/config.h"
#include "jit/schedule/schedule.h"
#include "ops/core/resize.h"
#include "tests/device/counting_device.h"
#include "tests/eager/values.h"
#include "tests/schedule/graphs.h"

namespace lutra {
namespace {

// The bytes that its strides span, elsewhere.
Tensor moved(const Tensor& t, Device to) {
  const Tensor out = make_tensor(t->sizes, t->strides, t->dtype, to);
  copy_bytes(out->data(), to, t->data(), t->device(), std::min(out->storage->nbytes, t->storage->nbytes));
  return out;
}

// sum(relu(x * y), last dimension), rows of x by index, x in order.
std::unique_ptr<Graph> small_graph(Device device) {
  auto g = std::make_unique<Graph>();
  SymScope symbols(g->env.get());
  GradModeScope no_grad(false);
  GraphRecorder recorder(*g);
  const SymInt rows = SymInt::of_expr(*g->env, g->env->leaf(SymOp::kSize, 0, 0, 6));
  const Tensor x = g->add_input("x", {rows, 50}, {50, 1}, DType::kFloat32, device);
  const Tensor y = g->add_input("y", {50}, {1}, DType::kFloat32, device);
  const Tensor at = g->add_input("at", {3}, {1}, DType::kInt64, device);
  ModeScope mode(&recorder);
  const Tensor r = op1(OpId::relu, {op1(OpId::mul, {x, y})});
  g->outputs = {op1(OpId::sum, {r, Sizes{1}, false, Value()}), op1(OpId::index_select, {x, int64_t(0), at}),
                op1(OpId::sort, {x})};
  return g;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a->numel().hint == b->numel().hint &&
         std::memcmp(a->data(), b->data(), size_t(a->numel().hint) * size_of(a->dtype)) == 0;
}

Tensor rows_at(std::initializer_list<int64_t> rows) {
  Tensor t = make_tensor({int64_t(rows.size())}, DType::kInt64);
  std::copy(rows.begin(), rows.end(), t->data_as<int64_t>());
  return t;
}

}  // namespace

TEST_CASE("a compiled program runs on a third kind of device", "[device]") {
  const Tensor x = tensor_of({9, 50}, DType::kFloat32, 1), y = tensor_of({50}, DType::kFloat32, 2);
  const Compiled here = compile_graph(small_graph({})), there = compile_graph(small_graph(kCounting));
  CHECK(counts().compiled > 0);
  const auto want = here.run({x, y, rows_at({2, 8, 0})}, {});
  const int64_t kernels = counts().kernels, libraries = counts().libraries, allocations = counts().allocations;
  const std::vector<Tensor> inputs = {moved(x, kCounting), moved(y, kCounting), moved(rows_at({2, 8, 0}), kCounting)};
  const auto got = there.run(inputs, {});
  CHECK(counts().kernels == kernels + int64_t(there.kernels));
  CHECK(counts().libraries == libraries + 1);
  CHECK(counts().allocations > allocations);
  for (size_t i = 0; i < want.size(); i++) {
    CHECK(got[i].as<Tensor>()->device() == kCounting);
    CHECK(same_bytes(got[i].as<Tensor>(), want[i].as<Tensor>()));
  }
  CHECK_THROWS_WITH(there.run({inputs[0], inputs[1], moved(rows_at({2, 9, 0}), kCounting)}, {}),
                    Catch::Contains("index 9 is out of bounds for dimension 0 with size 9"));
}

TEST_CASE("random graphs give a CPU's bits on a third kind of device", "[device]") {
  int compared = 0;
  for (uint32_t seed = 1; seed <= 60; seed++) {
    CAPTURE(seed);
    std::unique_ptr<Graph> here, there;
    try {
      here = lowered_graph(*random_graph(seed)), there = lowered_graph(*random_graph(seed));
    } catch (const Error&) {  // an argument that only the decomposition refuses
      continue;
    }
    move_to(*there, kCounting);
    const auto run = [&](const Graph& g, Device device) {
      std::vector<Tensor> inputs = real_inputs(*here, seed);
      for (Tensor& t : inputs) t = moved(t, device);
      const auto e = Executable::build(schedule(g));
      for (const Launch& l : e->plan().launches) {
        if (std::holds_alternative<ExternLaunch>(l)) return std::vector<Value>();  // a library has bits of its own
      }
      default_generator().next_call = 0;
      return e->run(inputs, real_scalars(*here));
    };
    std::vector<Value> want;
    try {
      want = run(*here, {});
    } catch (const Error&) {
      continue;
    }
    if (want.empty()) continue;
    const std::vector<Value> got = run(*there, kCounting);
    for (size_t i = 0; i < want.size(); i++) {
      if (!want[i].is<Tensor>() || !want[i].as<Tensor>()->is_contiguous()) continue;
      CHECK(same_bytes(got[i].as<Tensor>(), want[i].as<Tensor>()));
      compared++;
    }
  }
  CHECK(compared > 20);
}

TEST_CASE("an eager op runs on a third kind of device", "[device]") {
  const Tensor a = tensor_of({4, 3}, DType::kFloat32, 1), b = tensor_of({4, 3}, DType::kFloat32, 2);
  const int64_t before = counts().kernels;
  const Tensor there = op1(OpId::add, {moved(a, kCounting), moved(b, kCounting)});
  CHECK(counts().kernels == before + 1);
  CHECK(there->device() == kCounting);
  CHECK(same_bytes(there, op1(OpId::add, {a, b})));
}

}  // namespace lutra
