// Tests that a program gives the same bits in four ways: eager, its graph node by node, compiled, and compiled for the
// exact interpreter; at one and two threads.
#include <cmath>
#include <functional>

#include <catch2/catch.hpp>

#include "jit/compile.h"
#include "ops/core/settings.h"
#include "tests/eager/values.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;
using Program = std::function<Tensors(const Tensors&, const std::vector<Scalar>&)>;

struct Case {
  const char* name;
  Program program;
  Tensors inputs;
  std::vector<double> scalars;
};

std::unique_ptr<Graph> record(const Case& c, bool dynamic) {
  auto g = std::make_unique<Graph>();
  SymScope symbols(g->env.get());
  GradModeScope no_grad(false);
  GraphRecorder recorder(*g);
  Tensors inputs;
  for (size_t k = 0; k < c.inputs.size(); k++) {
    const Tensor& t = c.inputs[k];
    Sizes sizes = t->sizes, strides = t->strides;
    for (size_t d = 0; dynamic && d < sizes.size(); d++) {
      const auto input = int32_t(k), dim = int32_t(d);
      if (sizes[d].hint > 1) {
        sizes[d] = SymInt::of_expr(*g->env, g->env->leaf(SymOp::kSize, input, dim, sizes[d].hint));
      }
      if (strides[d].hint > 1) {
        strides[d] = SymInt::of_expr(*g->env, g->env->leaf(SymOp::kStride, input, dim, strides[d].hint));
      }
    }
    inputs.push_back(g->add_input(str("x", k), sizes, strides, t->dtype));
  }
  std::vector<Scalar> scalars;
  for (double s : c.scalars) scalars.push_back(g->add_scalar("s", s));
  ModeScope mode(&recorder);
  for (const Tensor& t : c.program(inputs, scalars)) g->outputs.push_back(t);
  return g;
}

// Copies of the inputs with their layouts, so that programs may write to them.
Tensors copies(const Tensors& inputs) {
  Tensors result;
  for (const Tensor& t : inputs) {
    Tensor c = make_tensor(t->sizes, t->strides, t->dtype);
    std::memcpy(c->data(), t->data(), c->storage->nbytes);
    result.push_back(c);
  }
  return result;
}

// The outputs, then the inputs as the program leaves them.
Tensors run_eager(const Case& c) {
  Tensors inputs = copies(c.inputs);
  std::vector<Scalar> scalars(c.scalars.begin(), c.scalars.end());
  default_generator().next_call = 100;
  Tensors result = c.program(inputs, scalars);
  result.insert(result.end(), inputs.begin(), inputs.end());
  return result;
}

Tensors run_graph(const Case& c, bool dynamic, const char* backend, const char* isa) {
  settings().isa = isa;
  CompileOptions options;
  options.backend = backend;
  const Compiled compiled = compile_graph(record(c, dynamic), options);
  Tensors inputs = copies(c.inputs);
  default_generator().next_call = 100;
  Tensors result;
  for (const Value& v : compiled.run(inputs, c.scalars)) result.push_back(v.as<Tensor>());
  result.insert(result.end(), inputs.begin(), inputs.end());
  settings().isa = "";
  return result;
}

void agree(const Case& c) {
  settings().num_threads = 1;
  const Tensors eager = run_eager(c);
  const uint64_t calls = default_generator().next_call;
  for (const int threads : {1, 2}) {
    settings().num_threads = threads;
    for (const bool dynamic : {false, true}) {
      for (const char* backend : {"eager", "aot_eager", "native", "interp"}) {
        const bool interp = std::string(backend) == "interp";
        INFO(c.name << " " << backend << (dynamic ? " dynamic" : " static") << " at " << threads << " threads");
        const Tensors other = run_graph(c, dynamic, interp ? "native" : backend, interp ? "interp" : "");
        REQUIRE(other.size() == eager.size());
        for (size_t i = 0; i < eager.size(); i++) {
          INFO("value " << i);
          CHECK(same_bits(eager[i], other[i]));
        }
        CHECK(default_generator().next_call == calls);
      }
    }
  }
  settings().num_threads = 0;
}

Tensor transposed(const Tensor& t) { return op1(OpId::transpose, {t, integer(0), integer(1)}); }
Tensor f32(const Sizes& sizes, uint32_t seed) { return tensor_of(sizes, DType::kFloat32, seed); }
// Elements with many bits, so that every rounding shows.
Tensor rough(const Sizes& sizes, uint32_t seed) {
  Tensor t = make_tensor(sizes, DType::kFloat32);
  for (int64_t i = 0; i < count(t); i++) {
    seed = seed * 1664525u + 1013904223u;
    t->data_as<float>()[i] = std::ldexp(float(int32_t(seed)), -29);
  }
  return t;
}
Tensor classes(int64_t n, int64_t below) {
  Tensor t = make_tensor({n}, DType::kInt64);
  for (int64_t i = 0; i < n; i++) t->data_as<int64_t>()[i] = i * 7 % below;
  return t;
}

}  // namespace

TEST_CASE("pointwise programs agree", "[eager][agree]") {
  agree({"chain",
         [](const Tensors& x, const std::vector<Scalar>& s) -> Tensors {
           const Tensor a = op1(OpId::tanh, {op1(OpId::mul, {x[0], x[1]})});
           const Tensor b = op1(OpId::add, {op1(OpId::exp, {a}), s[0]});
           return {op1(OpId::div, {op1(OpId::relu, {x[0]}), b}), op1(OpId::sigmoid, {op1(OpId::mul, {b, s[1]})})};
         },
         {rough({37, 53}, 1), rough({53}, 2)},
         {0.1, -3.7}});
  agree(
      {"layouts",
       [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
         return {op1(OpId::add, {x[0], transposed(x[1])}), op1(OpId::where, {op1(OpId::lt, {x[0], x[2]}), x[0], x[2]})};
       },
       {rough({19, 23}, 1), rough({23, 19}, 2), rough({19, 1}, 3)},
       {}});
  agree({"mixed dtypes",
         [](const Tensors& x, const std::vector<Scalar>& s) -> Tensors {
           return {op1(OpId::add, {x[0], x[1]}), op1(OpId::mul, {x[1], s[0]}), op1(OpId::div, {x[1], x[1]}),
                   op1(OpId::to_dtype, {x[0], DType::kInt64}), op1(OpId::ne, {x[0], Scalar(0.0)})};
         },
         {f32({4, 5}, 1), tensor_of({4, 5}, DType::kInt64, 2)},
         {3.0}});
  agree({"composites",
         [](const Tensors& x, const std::vector<Scalar>& s) -> Tensors {
           return {op1(OpId::addcmul, {x[0], x[1], x[2], s[0]}), op1(OpId::lerp, {x[0], x[1], s[0]}),
                   op1(OpId::square, {x[2]})};
         },
         {rough({100}, 1), rough({100}, 2), rough({100}, 3)},
         {0.3}});
}

TEST_CASE("reductions agree", "[eager][agree]") {
  agree({"sums",
         [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
           return {op1(OpId::sum, {x[0]}), op1(OpId::sum, {x[0], Sizes{0}}), op1(OpId::sum, {x[0], Sizes{1}, true}),
                   op1(OpId::mean, {transposed(x[0]), Sizes{1}}), op1(OpId::amax, {x[0], Sizes{1}})};
         },
         {rough({67, 129}, 1)},
         {}});
  agree({"softmax",
         [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
           return {op1(OpId::softmax, {x[0], integer(-1)}), op1(OpId::log_softmax, {x[0], integer(0)}),
                   op1(OpId::argmax, {x[0], integer(1)})};
         },
         {rough({33, 70}, 1)},
         {}});
  agree({"cross entropy",
         [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
           return {op1(OpId::cross_entropy, {x[0], x[1]})};
         },
         {rough({96, 10}, 1), classes(96, 10)},
         {}});
}

TEST_CASE("products and gathers agree", "[eager][agree]") {
  agree({"mlp",
         [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
           const Tensor h = op1(OpId::relu, {op1(OpId::linear, {x[0], x[1], x[2]})});
           return {h, op1(OpId::matmul, {h, x[3]})};
         },
         {rough({64, 100}, 1), rough({80, 100}, 2), rough({80}, 3), rough({80, 10}, 4)},
         {}});
  agree({"gather",
         [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
           const Tensor index = op1(OpId::unsqueeze, {x[1], integer(1)});
           const Tensor g = op1(OpId::gather, {x[0], integer(1), index});
           return {g, op1(OpId::scatter_add, {x[0], integer(1), index, g}),
                   op1(OpId::index_select, {x[0], integer(0), x[1]})};
         },
         {rough({40, 40}, 1), classes(40, 40)},
         {}});
}

TEST_CASE("writes and random numbers agree", "[eager][agree]") {
  agree({"in place",
         [](const Tensors& x, const std::vector<Scalar>& s) -> Tensors {
           call_inplace(OpId::mul, {x[0], s[0]});
           const Tensor row = op1(OpId::select, {x[0], integer(0), integer(1)});
           call_inplace(OpId::add, {row, x[1]});
           return {op1(OpId::exp, {x[0]})};
         },
         {rough({9, 11}, 1), rough({11}, 2)},
         {0.7}});
  agree({"random",
         [](const Tensors& x, const std::vector<Scalar>&) -> Tensors {
           const Tensor a = op1(OpId::rand, {x[0]->sizes});
           op1(OpId::randn, {Sizes{3}});  // dead, but it takes its call index
           return {op1(OpId::add, {x[0], a}), op1(OpId::randn, {Sizes{5, 7}})};
         },
         {rough({30, 31}, 1)},
         {}});
}

}  // namespace lutra
