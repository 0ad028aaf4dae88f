// Tests every vjp rule against central differences, and gradients of gradients.
#include <cmath>
#include <random>

#include <catch2/catch.hpp>

#include "ops/decompose/emit.h"
#include "ops/grad/tape.h"
#include "tests/ops/naive_executor.h"

namespace lutra {
namespace {

struct Case {
  std::string name;
  std::vector<Sizes> inputs;  // float64 tensors, all differentiated
  std::function<Tensor(const std::vector<Tensor>&)> f;
  double low = 0.3, high = 1.7;  // elements are drawn from here
  bool twice = true;
};

Tensor random_tensor(const Sizes& sizes, double low, double high, std::mt19937& rng) {
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> v(size_t(numel(sizes).hint));
  for (double& x : v) x = draw(rng);
  return tensor_of(sizes, v);
}

// A weighted sum, so that no element of the result counts like another.
Tensor weighted(const Tensor& r) {
  std::vector<double> w(size_t(numel(r->sizes).hint));
  for (size_t i = 0; i < w.size(); i++) w[i] = 0.5 + 0.37 * double(i % 5) - 0.11 * double(i % 3);
  return sum_all(mul(r, tensor_of(r->sizes, w)));
}

using Loss = std::function<Tensor(const std::vector<Tensor>&)>;

void check_gradients(const std::string& what, const Loss& f, const std::vector<Tensor>& inputs,
                     const std::vector<Tensor>& grads) {
  constexpr double kStep = 1e-6;
  for (size_t k = 0; k < inputs.size(); k++) {
    each_index(inputs[k]->sizes, [&](const Index& at) {
      double x = get(inputs[k], at);
      GradModeScope off(false);
      set(inputs[k], at, x + kStep);
      double up = values(f(inputs))[0];
      set(inputs[k], at, x - kStep);
      double down = values(f(inputs))[0];
      set(inputs[k], at, x);
      double expected = (up - down) / (2 * kStep), got = grads[k] ? get(grads[k], at) : 0;
      INFO(what << ", input " << k << ", element " << (at.empty() ? 0 : at[0]));
      CHECK(got == Approx(expected).epsilon(2e-5).margin(1e-6));
    });
  }
}

void gradcheck(const Case& c) {
  INFO(c.name);
  std::mt19937 rng(7);
  std::vector<Tensor> inputs;
  for (const Sizes& s : c.inputs) {
    inputs.push_back(random_tensor(s, c.low, c.high, rng));
    inputs.back()->requires_grad = true;
  }
  Loss loss = [&](const std::vector<Tensor>& in) { return weighted(c.f(in)); };
  check_gradients(c.name, loss, inputs, grad({loss(inputs)}, inputs, {}, false, false, true));
  if (!c.twice) return;
  // The loss of gradients is a function too; in_grad keeps the tape on for the inner gradient.
  Loss second = [&](const std::vector<Tensor>& in) {
    GradModeScope on(true);
    std::vector<Tensor> g = grad({loss(in)}, in, {}, true, true, true);
    Tensor total = sum_all(mul(in[0], Scalar(0.0)));
    for (const Tensor& t : g) total = t ? add(total, weighted(mul(t, t))) : total;
    return total;
  };
  check_gradients(c.name + " twice", second, inputs, grad({second(inputs)}, inputs, {}, false, false, true));
}

Case unary(OpId op, double low = 0.3, double high = 1.7) {
  return {name(op), {{2, 3}}, [op](auto& in) { return op1(op, {in[0]}); }, low, high};
}

Case binary(OpId op, const Sizes& a, const Sizes& b) {
  return {str(name(op), " ", to_string(a), " ", to_string(b)), {a, b}, [op](auto& in) {
            return op1(op, {in[0], in[1]});
          }};
}

const Tensor& index_tensor() {
  static const Tensor t = tensor_of({2, 2}, {0, 2, 1, 1}, DType::kInt64);
  return t;
}
const Tensor& index_vector() {
  static const Tensor t = tensor_of({3}, {2, 0, 2}, DType::kInt64);
  return t;
}

std::vector<Case> pointwise_cases() {
  std::vector<Case> cases;
  for (OpId op : {OpId::add, OpId::sub, OpId::mul, OpId::div, OpId::pow, OpId::minimum, OpId::maximum}) {
    cases.push_back(binary(op, {2, 3}, {2, 3}));
    cases.push_back(binary(op, {2, 1}, {3}));
    cases.push_back(binary(op, {}, {2, 2}));
  }
  for (OpId op : {OpId::neg, OpId::abs, OpId::exp, OpId::tanh, OpId::sigmoid, OpId::relu, OpId::square, OpId::floor,
                  OpId::ceil, OpId::sign, OpId::reciprocal}) {
    cases.push_back(unary(op));
    cases.push_back(unary(op, -1.8, -0.4));
  }
  for (OpId op : {OpId::log, OpId::sqrt, OpId::rsqrt}) cases.push_back(unary(op));
  cases.push_back({"add alpha", {{3}, {3}}, [](auto& in) { return op1(OpId::add, {in[0], in[1], Scalar(2.5)}); }});
  cases.push_back({"sub alpha", {{3}, {3}}, [](auto& in) { return op1(OpId::sub, {in[0], in[1], Scalar(2.5)}); }});
  cases.push_back({"rsub", {{3}}, [](auto& in) { return sub(Scalar(2.0), in[0]); }});
  cases.push_back({"div by", {{3}}, [](auto& in) { return div(Scalar(2.0), in[0]); }});
  cases.push_back({"pow 3", {{3}}, [](auto& in) { return pow(in[0], Scalar(3.0)); }});
  cases.push_back({"pow 0", {{3}}, [](auto& in) { return pow(in[0], Scalar(0.0)); }});
  cases.push_back({"pow of 2", {{3}}, [](auto& in) { return pow(Scalar(2.0), in[0]); }});
  cases.push_back({"remainder", {{4}, {4}}, [](auto& in) {
                     return op1(OpId::remainder, {mul(in[0], Scalar(3.1)), in[1]});
                   }});
  cases.push_back({"clamp", {{6}}, [](auto& in) { return op1(OpId::clamp, {in[0], Scalar(0.6), Scalar(1.2)}); }});
  cases.push_back({"clamp min", {{6}}, [](auto& in) { return op1(OpId::clamp, {in[0], Scalar(0.6)}); }});
  cases.push_back({"addcmul", {{2, 2}, {2, 2}, {2}}, [](auto& in) {
                     return op1(OpId::addcmul, {in[0], in[1], in[2], Scalar(0.5)});
                   }});
  cases.push_back({"addcdiv", {{2, 2}, {2, 2}, {2}}, [](auto& in) {
                     return op1(OpId::addcdiv, {in[0], in[1], in[2], Scalar(0.5)});
                   }});
  for (double w : {0.3, 0.8}) {
    cases.push_back({"lerp", {{3}, {3}}, [w](auto& in) { return op1(OpId::lerp, {in[0], in[1], Scalar(w)}); }});
  }
  cases.push_back({"lerp tensor", {{3}, {3}, {3}}, [](auto& in) { return op1(OpId::lerp, {in[0], in[1], in[2]}); }});
  cases.push_back({"where", {{2, 3}, {3}}, [](auto& in) { return where(gt(in[0], Scalar(1.0)), in[0], in[1]); }});
  cases.push_back({"masked_fill", {{2, 3}, {}}, [](auto& in) {
                     return op1(OpId::masked_fill, {in[0], gt(in[0], Scalar(1.0)), in[1]});
                   }});
  cases.push_back({"to_dtype", {{3}}, [](auto& in) {
                     return op1(OpId::to_dtype, {op1(OpId::clone, {in[0]}), DType::kFloat64});
                   }});
  return cases;
}

std::vector<Case> reduction_cases() {
  std::vector<Case> cases;
  for (OpId op : {OpId::sum, OpId::mean, OpId::amax, OpId::amin}) {
    cases.push_back({str(name(op), " all"), {{2, 3}}, [op](auto& in) { return op1(op, {in[0]}); }});
    cases.push_back({str(name(op), " 0-dim"), {{}}, [op](auto& in) { return op1(op, {in[0]}); }});
    for (bool keepdim : {false, true}) {
      Case c{str(name(op), " dims"), {{2, 3, 2}}, {}};
      c.f = [op, keepdim](auto& in) { return op1(op, {in[0], Sizes{-1, 0}, keepdim}); };
      cases.push_back(c);
    }
  }
  for (bool keepdim : {false, true}) {
    for (OpId op : {OpId::max_dim, OpId::min_dim}) {
      cases.push_back({name(op), {{2, 3, 2}}, [=](auto& in) { return op1(op, {in[0], int_arg(1), keepdim}); }});
    }
  }
  for (OpId op : {OpId::softmax, OpId::log_softmax}) {
    cases.push_back({name(op), {{2, 3}}, [op](auto& in) { return op1(op, {in[0], int_arg(-1)}); }});
    cases.push_back({name(op), {{2, 3, 2}}, [op](auto& in) { return op1(op, {in[0], int_arg(1)}); }});
  }
  for (std::string reduction : {"none", "mean", "sum"}) {
    Tensor target = tensor_of({3}, {1, -100, 0}, DType::kInt64), weight = tensor_of({2}, {0.5, 2});
    for (OpId op : {OpId::cross_entropy, OpId::nll_loss}) {
      cases.push_back({name(op), {{3, 2}}, [=](auto& in) {
                         return op1(op, {in[0], target, weight, int_arg(-100), reduction});
                       }});
    }
    cases.push_back({"mse_loss", {{2, 3}, {2, 3}}, [=](auto& in) {
                       return op1(OpId::mse_loss, {in[0], in[1], reduction});
                     }});
  }
  cases.push_back({"cross_entropy soft", {{3, 2}, {3, 2}}, [](auto& in) {
                     return op1(OpId::cross_entropy, {in[0], in[1]});
                   }});
  return cases;
}

std::vector<Case> view_cases() {
  auto op = [](OpId id, auto... rest) {
    return [=](const std::vector<Tensor>& in) { return op1(id, {in[0], rest...}); };
  };
  return {
      {"view", {{2, 6}}, op(OpId::view, Sizes{3, -1})},
      {"reshape of transpose",
       {{2, 3}},
       [](auto& in) { return reshape(transpose(in[0], int_arg(0), int_arg(1)), Sizes{6}); }},
      {"transpose", {{2, 3}}, op(OpId::transpose, int_arg(0), int_arg(-1))},
      {"permute", {{2, 3, 4}}, op(OpId::permute, Sizes{2, 0, -2})},
      {"expand", {{2, 1}}, op(OpId::expand, Sizes{3, -1, 4})},
      {"select", {{2, 3}}, op(OpId::select, int_arg(1), int_arg(-1))},
      {"slice", {{5, 2}}, op(OpId::slice, int_arg(0), int_arg(1), int_arg(5), int_arg(2))},
      {"unsqueeze", {{2, 3}}, op(OpId::unsqueeze, int_arg(-1))},
      {"squeeze", {{2, 1, 3, 1}}, op(OpId::squeeze)},
      {"flatten", {{2, 3, 2}}, op(OpId::flatten, int_arg(1))},
      {"contiguous", {{2, 3}}, [](auto& in) { return contiguous(transpose(in[0], int_arg(0), int_arg(1))); }},
      {"select_scatter",
       {{2, 3}, {2}},
       [](auto& in) {
         return op1(OpId::select_scatter, {in[0], in[1], int_arg(1), int_arg(2)});
       }},
      {"slice_scatter",
       {{4, 3}, {2, 3}},
       [](auto& in) {
         return op1(OpId::slice_scatter, {in[0], in[1], int_arg(0), int_arg(0), Value(), int_arg(2)});
       }},
      {"select_scatter of a transpose",
       {{3, 2}, {2}},
       [](auto& in) {
         Tensor t = transpose(in[0], int_arg(0), int_arg(1));
         return op1(OpId::select_scatter, {t, in[1], int_arg(1), int_arg(2)});
       }},
      {"select_scatter of an expanded",
       {{1, 3}, {2}},
       [](auto& in) {
         return op1(OpId::select_scatter, {expand(in[0], Sizes{2, 3}), in[1], int_arg(1), int_arg(2)});
       }},
      {"gather", {{2, 3}}, op(OpId::gather, int_arg(1), index_tensor())},
      {"gather 0-dim", {{}}, op(OpId::gather, int_arg(0), tensor_of({}, {0}, DType::kInt64))},
      {"gather a vector from 0-dim", {{}}, op(OpId::gather, int_arg(0), tensor_of({2}, {0, 0}, DType::kInt64))},
      {"index_select 0-dim", {{}}, op(OpId::index_select, int_arg(0), tensor_of({1}, {0}, DType::kInt64))},
      {"index_select by 0-dim", {{2, 3}}, op(OpId::index_select, int_arg(1), tensor_of({}, {2}, DType::kInt64))},
      {"scatter_add", {{2, 3}, {2, 2}}, [](auto& in) { return scatter_add(in[0], int_arg(1), index_tensor(), in[1]); }},
      {"index_select", {{2, 3}}, op(OpId::index_select, int_arg(1), index_vector())},
      {"index_add", {{2, 3}, {2, 3}}, [](auto& in) { return index_add(in[0], int_arg(1), index_vector(), in[1]); }},
  };
}

std::vector<Case> matrix_cases() {
  std::vector<Case> cases = {binary(OpId::mm, {2, 3}, {3, 2}), binary(OpId::bmm, {2, 2, 3}, {2, 3, 2})};
  std::vector<std::pair<Sizes, Sizes>> shapes = {
      {{3}, {3}},          {{2, 3}, {3}},       {{3}, {3, 2}},    {{2, 3}, {3, 2}},
      {{2, 2, 3}, {3, 2}}, {{2, 3}, {2, 3, 2}}, {{2, 2, 3}, {3}}, {{2, 1, 2, 3}, {3, 3, 2}}};
  for (auto& [a, b] : shapes) cases.push_back(binary(OpId::matmul, a, b));
  for (const Sizes& x : {Sizes{3}, Sizes{2, 3}, Sizes{2, 2, 3}}) {
    cases.push_back({"linear " + to_string(x), {x, {2, 3}, {2}}, [](auto& in) {
                       return op1(OpId::linear, {in[0], in[1], in[2]});
                     }});
  }
  cases.push_back({"linear without bias", {{2, 3}, {2, 3}}, [](auto& in) {
                     return op1(OpId::linear, {in[0], in[1]});
                   }});
  return cases;
}

// A random program of writes through views of one buffer, whose views are read before, between and after.
struct ViewProgram {
  unsigned seed;
  std::mt19937 rng{};
  std::vector<Tensor> views{};

  int64_t pick(int64_t n) { return int64_t(rng() % uint64_t(n)); }

  Tensor view_of(const Tensor& t) {
    int64_t n = t->dim(), d = n ? pick(n) : 0, size = n ? t->sizes[size_t(d)].hint : 1;
    if (n == 0) return unsqueeze(t, int_arg(0));
    switch (pick(6)) {
      case 0: return op1(OpId::select, {t, int_arg(d), int_arg(pick(size))});
      case 1: return op1(OpId::slice, {t, int_arg(d), int_arg(pick(size)), Value(), int_arg(1 + pick(2))});
      case 2: return transpose(t, int_arg(d), int_arg(n - 1));
      case 3: return unsqueeze(t, int_arg(pick(n + 1)));
      case 4: return op1(OpId::squeeze, {t});
      default: return op1(OpId::alias, {t});
    }
  }

  // A value made of a view's elements; what is read is cloned, so that later writes do not matter.
  Tensor value_of(const Tensor& t, const Tensor& w) {
    Tensor c = op1(OpId::clone, {t});
    switch (pick(4)) {
      case 0: return op1(OpId::tanh, {c});
      case 1: return mul(c, w);
      case 2: return add(mul(c, c), w);
      default: return mul(c, Scalar(0.5));
    }
  }

  void step(const Tensor& w) {
    Tensor from = views[size_t(pick(int64_t(views.size())))], to = views[size_t(pick(int64_t(views.size())))];
    Tensor v = value_of(from, w);
    bool same = to_string(v->sizes) == to_string(to->sizes);
    if (!same) v = op1(OpId::mean, {v});
    switch (pick(3)) {
      case 0: call_op(OpId::copy_, {to, v}); break;
      case 1: call_inplace(OpId::add, {to, v, Scalar(0.7)}); break;
      default: call_inplace(OpId::mul, {to, Scalar(0.9)}); break;
    }
  }

  Tensor run(const std::vector<Tensor>& in) {
    rng.seed(seed);
    bool fresh = pick(2);  // a buffer that requires no grad at first
    Tensor buffer = fresh ? full({2, 3, 2}, 0.25, DType::kFloat64, {}) : mul(in[0], Scalar(1.5));
    views = {buffer};
    if (fresh) call_op(OpId::copy_, {op1(OpId::select, {buffer, int_arg(1), int_arg(1)}), in[1]});
    for (int i = 0; i < 12; i++) {
      if (pick(2)) views.push_back(view_of(views[size_t(pick(int64_t(views.size())))]));
      if (pick(2)) step(in[1]);
    }
    Tensor total = sum_all(op1(OpId::clone, {buffer}));
    for (const Tensor& v : views) total = add(total, weighted(op1(OpId::tanh, {op1(OpId::clone, {v})})));
    return total;
  }
};

}  // namespace

TEST_CASE("random writes through views", "[ops]") {
  NaiveScope naive;
  for (unsigned seed = 0; seed < 150; seed++) {
    ViewProgram program{seed};
    Loss f = [&](const std::vector<Tensor>& in) {
      // Differences are taken without the tape; views must be what they are with it.
      return program.run(in);
    };
    gradcheck({str("program ", seed), {{2, 3, 2}, {1}}, f, 0.3, 1.7, seed % 10 == 0});
  }
}

TEST_CASE("gradcheck", "[ops]") {
  NaiveScope naive;
  for (auto& family : {pointwise_cases(), reduction_cases(), view_cases(), matrix_cases()}) {
    for (const Case& c : family) gradcheck(c);
  }
}

TEST_CASE("gradcheck on generated code", "[ops][eager]") {
  for (auto& family : {pointwise_cases(), reduction_cases(), view_cases(), matrix_cases()}) {
    for (const Case& c : family) gradcheck(c);
  }
}

}  // namespace lutra
