// The tape: order, versions, in-place writes, views, hooks, retained and repeated backward passes.
#include <catch2/catch.hpp>

#include "ops/decompose/emit.h"
#include "ops/grad/tape.h"
#include "tests/message.h"
#include "tests/ops/naive_executor.h"

namespace lutra {
namespace {

using List = std::vector<double>;

Tensor leaf(const List& v) {
  Tensor t = tensor_of({int64_t(v.size())}, v);
  t->requires_grad = true;
  return t;
}

List grad_of(const Tensor& t) { return t->autograd && t->autograd->grad ? values(t->autograd->grad) : List{}; }
void back(const Tensor& t, bool retain = false) { backward({t}, {}, retain, false); }
Tensor select(const Tensor& t, int64_t dim, int64_t i) { return op1(OpId::select, {t, int_arg(dim), int_arg(i)}); }
Tensor slice(const Tensor& t, int64_t from, int64_t to) {
  return op1(OpId::slice, {t, int_arg(0), int_arg(from), int_arg(to)});
}
Tensor write(const Tensor& to, Value src) { return call_op(OpId::copy_, {to, std::move(src)})[0]; }

}  // namespace

TEST_CASE("backward accumulates into leaves", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2}), y = leaf({3, 4});
  Tensor loss = sum_all(mul(add(x, y), x));
  CHECK_FALSE(is_leaf(loss));
  CHECK(loss->requires_grad);
  back(loss);
  CHECK(grad_of(x) == List{5, 8});
  CHECK(grad_of(y) == List{1, 2});
  Tensor g = x->autograd->grad;
  CHECK_FALSE(g->requires_grad);
  back(sum_all(mul(x, Scalar(10.0))));
  CHECK(grad_of(x) == List{15, 18});
  CHECK(x->autograd->grad.same(g));
}

TEST_CASE("gradients of two leaves never share memory", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2}), y = leaf({3, 4}), seed = tensor_of({2}, {1, 1});
  backward({add(x, y)}, {seed}, false, false);
  CHECK_FALSE(x->autograd->grad->storage == y->autograd->grad->storage);
  CHECK_FALSE(x->autograd->grad->storage == seed->storage);
  CHECK_FALSE(y->autograd->grad->storage == seed->storage);
  Tensor z = leaf({1, 2});
  back(sum_all(z));
  CHECK(z->autograd->grad->is_contiguous());
}

TEST_CASE("a node is run once, after everything that uses it", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({2});
  Tensor a = mul(x, x);
  int calls = 0;
  register_hook(a, [&](const Tensor& g) {
    calls++;
    CHECK(values(g) == List{1 + 3 + 4 + 4});
    return Tensor();
  });
  back(sum_all(add(add(a, mul(a, Scalar(3.0))), mul(a, select(unsqueeze(a, int_arg(0)), 0, 0)))), true);
  CHECK(calls == 1);
  CHECK(grad_of(x) == List{(1 + 3 + 4 + 4) * 4});
}

TEST_CASE("hooks replace gradients and can be removed", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2});
  auto remove = register_hook(x, [](const Tensor& g) { return mul(g, Scalar(100.0)); });
  Tensor y = mul(x, Scalar(2.0));
  register_hook(y, [](const Tensor& g) { return add(g, Scalar(1.0)); });
  back(sum_all(y), true);
  CHECK(grad_of(x) == List{400, 400});
  remove();
  back(sum_all(y));
  CHECK(grad_of(x) == List{404, 404});
}

TEST_CASE("a graph is run twice only if retained", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({3});
  Tensor loss = sum_all(mul(x, x));
  back(loss, true);
  back(loss);
  CHECK(grad_of(x) == List{12});
  CHECK(message([&] { back(loss); }).find("second time") != std::string::npos);
}

TEST_CASE("what saved nothing can be run again", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2});
  Tensor loss = sum_all(add(x, Scalar(1.0)));
  back(loss);
  back(loss);
  CHECK(grad_of(x) == List{2, 2});
}

TEST_CASE("what backward refuses", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2}), c = tensor_of({2}, {1, 2});
  CHECK(message([&] { back(sum_all(c)); }) == "backward: the tensor does not require grad and does not have a grad_fn");
  CHECK(message([&] { back(mul(x, x)); }) ==
        "backward: grad can be implicitly created only for scalar outputs, got shape {2}");
  CHECK(message([&] {
          backward({mul(x, x)}, {tensor_of({3}, {1, 1, 1})}, false, false);
        }) == "backward: a gradient of shape {3} does not fit an output of shape {2}");
  CHECK(message([&] { grad({sum_all(x)}, {c}, {}, false, false, false); }) == "grad: input 1 does not require grad");
  Tensor other = leaf({1});
  CHECK(message([&] { grad({sum_all(x)}, {other}, {}, false, false, false); }).find("not have been used") !=
        std::string::npos);
  CHECK_FALSE(grad({sum_all(x)}, {other}, {}, false, false, true)[0]);
}

TEST_CASE("no_grad and detach cut the tape", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2});
  {
    GradModeScope off(false);
    CHECK_FALSE(mul(x, x)->requires_grad);
  }
  Tensor d = op1(OpId::detach, {x});
  CHECK_FALSE(d->requires_grad);
  CHECK_FALSE(op1(OpId::argmax, {x})->requires_grad);
  CHECK_FALSE(gt(x, Scalar(1.0))->requires_grad);
  CHECK_FALSE(to_dtype(x, DType::kInt64)->requires_grad);
}

TEST_CASE("writing to what backward reads is an error", "[ops]") {
  NaiveScope naive;
  auto text = [](auto f) { return message(f).find("modified by an inplace operation") != std::string::npos; };
  Tensor x = leaf({1, 2});
  Tensor y = mul(x, Scalar(2.0));
  Tensor loss = sum_all(mul(y, y));
  call_inplace(OpId::add, {y, Scalar(1.0)});
  CHECK(text([&] { back(loss); }));
  // exp reads its result.
  Tensor e = exp(x);
  Tensor loss2 = sum_all(e);
  call_inplace(OpId::mul, {e, Scalar(2.0)});
  CHECK(text([&] { back(loss2); }));
  // A write through a view or a detached alias counts.
  Tensor z = mul(x, Scalar(2.0));
  Tensor loss3 = sum_all(mul(z, z));
  call_inplace(OpId::add, {op1(OpId::detach, {z}), Scalar(1.0)});
  CHECK(text([&] { back(loss3); }));
  // add reads nothing; a factor that is no variable's partner is not read either.
  Tensor c = tensor_of({2}, {5, 6}), w = mul(x, Scalar(1.0));
  Tensor loss4 = sum_all(add(w, c));
  call_inplace(OpId::add, {c, Scalar(1.0)});
  CHECK(message([&] { back(loss4); }) == "no error");
}

TEST_CASE("leaves cannot be written under grad mode", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2});
  CHECK(message([&] {
          call_inplace(OpId::add, {x, Scalar(1.0)});
        }) == "add_: a leaf Variable that requires grad is being used in an in-place operation.");
  CHECK(message([&] {
          call_inplace(OpId::add, {select(x, 0, 0), Scalar(1.0)});
        }) == "add_: a view of a leaf Variable that requires grad is being used in an in-place operation.");
  GradModeScope off(false);
  call_inplace(OpId::add, {x, Scalar(1.0)});
  CHECK(values(x) == List{2, 3});
}

TEST_CASE("in-place ops on the tape", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2}), w = leaf({3, 4});
  Tensor y = mul(x, Scalar(2.0)), y0 = mul(x, Scalar(2.0));
  call_inplace(OpId::mul, {y, w});
  call_inplace(OpId::exp, {y});
  std::vector<Tensor> got = grad({sum_all(y)}, {x, w}, {}, false, false, false);
  std::vector<Tensor> want = grad({sum_all(exp(mul(y0, w)))}, {x, w}, {}, false, false, false);
  CHECK(values(got[0]) == values(want[0]));
  CHECK(values(got[1]) == values(want[1]));
  Tensor a = mul(x, Scalar(2.0));
  call_inplace(OpId::add, {a, w});
  call_inplace(OpId::mul, {a, Scalar(3.0)});
  call_inplace(OpId::relu, {a});
  back(sum_all(a));
  CHECK(grad_of(x) == List{6, 6});
  CHECK(grad_of(w) == List{3, 3});
  // A tensor that required no grad becomes part of the graph.
  Tensor buffer = tensor_of({2}, {0, 0}), v = leaf({5, 6});
  write(buffer, mul(v, v));
  CHECK(buffer->requires_grad);
  back(sum_all(buffer));
  CHECK(grad_of(v) == List{10, 12});
  CHECK(message([&] {
          call_inplace(OpId::floor_divide, {mul(v, v), v});
        }).find("not differentiable") != std::string::npos);
}

TEST_CASE("what an in-place op keeps", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const auto refused = [](const Tensor& t) {
    return message([&] { back(sum_all(t)); }).find("modified by an inplace") != std::string::npos;
  };
  // Its result, where the rule reads that: a later write is noticed.
  Tensor a = mul(x, Scalar(2.0));
  call_inplace(OpId::relu, {a});
  call_inplace(OpId::mul, {a, Scalar(3.0)});
  CHECK(refused(a));
  // Its other argument, though it be the tensor that is written.
  Tensor b = mul(x, Scalar(2.0));
  call_inplace(OpId::mul, {b, b});
  CHECK(refused(b));
}

TEST_CASE("writes through views reach the base and its other views", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2, 3}), w = leaf({10});
  SECTION("base does not require grad") {
    Tensor buffer = tensor_of({3}, {0, 0, 0});
    Tensor other = slice(buffer, 0, 2);
    write(select(buffer, 0, 1), select(w, 0, 0));
    write(slice(buffer, 2, 3), mul(w, w));
    CHECK(values(buffer) == List{0, 10, 100});
    CHECK(buffer->requires_grad);
    back(add(sum_all(mul(buffer, buffer)), sum_all(mul(other, Scalar(7.0)))));
    CHECK(grad_of(w) == List{2 * 10 + 4 * 1000 + 7});
  }
  SECTION("base is on the tape") {
    Tensor y = mul(x, Scalar(2.0));
    Tensor v = slice(y, 0, 2);
    call_inplace(OpId::mul, {v, Scalar(5.0)});
    back(sum_all(y), true);
    CHECK(grad_of(x) == List{10, 10, 2});
    back(sum_all(v));
    CHECK(grad_of(x) == List{20, 20, 2});
  }
  SECTION("chains of views, written twice") {
    Tensor y = op1(OpId::clone, {unsqueeze(x, int_arg(0))});
    Tensor t = transpose(y, int_arg(0), int_arg(1));
    Tensor row = select(t, 0, 1);
    call_inplace(OpId::add, {row, w});
    write(select(select(y, 0, 0), 0, 1), add(mul(select(select(t, 0, 1), 0, 0), Scalar(10.0)), select(w, 0, 0)));
    CHECK(values(y) == List{1, 130, 3});
    back(sum_all(y));
    CHECK(grad_of(x) == List{1, 10, 1});
    CHECK(grad_of(w) == List{10 + 1});
  }
  SECTION("a view read before and after") {
    Tensor y = mul(x, Scalar(1.0)), v = select(y, 0, 0);
    Tensor before = mul(v, Scalar(3.0));
    call_inplace(OpId::mul, {y, Scalar(4.0)});
    Tensor after = mul(v, Scalar(5.0));
    back(add(before, after));
    CHECK(grad_of(x) == List{3 + 20, 0, 0});
  }
  SECTION("a view made in no_grad") {
    Tensor y = mul(x, Scalar(1.0)), v;
    {
      GradModeScope off(false);
      v = select(y, 0, 0);
    }
    CHECK(message([&] { write(v, select(w, 0, 0)); }).find("no_grad") != std::string::npos);
  }
}

TEST_CASE("gradients of gradients", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({2, 3});
  Tensor g = grad({sum_all(mul(mul(x, x), x))}, {x}, {}, true, true, false)[0];
  CHECK(values(g) == List{12, 27});
  back(sum_all(g));
  CHECK(grad_of(x) == List{12, 18});
  // Through a write to a view.
  Tensor y = leaf({2, 3}), buffer = mul(y, y);
  write(select(buffer, 0, 0), pow(select(y, 0, 0), Scalar(3.0)));
  Tensor h = grad({sum_all(buffer)}, {y}, {}, true, true, true)[0];
  CHECK(values(h) == List{12, 6});
  back(sum_all(h));
  CHECK(grad_of(y) == List{12, 2});
}

TEST_CASE("grad of non-leaves, and unused branches are left out", "[ops]") {
  NaiveScope naive;
  Tensor x = leaf({1, 2});
  Tensor y = mul(x, x), z = mul(y, Scalar(3.0));
  int runs = 0;
  register_hook(y, [&](const Tensor&) { return runs++, Tensor(); });
  std::vector<Tensor> g = grad({sum_all(z)}, {z, y}, {}, true, false, false);
  CHECK(values(g[0]) == List{1, 1});
  CHECK(values(g[1]) == List{3, 3});
  CHECK(grad_of(x).empty());
  grad({sum_all(z)}, {z}, {}, true, false, false);
  CHECK(runs == 1);
}

TEST_CASE("long chains are freed without a deep stack, and nothing leaks", "[ops]") {
  NaiveScope naive;
  int64_t before = allocated_bytes();
  {
    Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < 200000; i++) y = neg(y);
    Tensor buffer = tensor_of({1}, {0});
    write(buffer, mul(buffer, x));      // reads what it writes
    call_inplace(OpId::exp, {buffer});  // keeps its result
  }
  CHECK(allocated_bytes() == before);
}

}  // namespace lutra
