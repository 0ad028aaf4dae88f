// Tests a train step on FakeTensors: the tape records the joint graph, and a symbolic batch size gets no guard.
#include <catch2/catch.hpp>

#include "jit/graph/graph.h"
#include "ops/decompose/emit.h"
#include "ops/grad/tape.h"
#include "tests/golden.h"

namespace lutra {

TEST_CASE("the joint graph of a small network", "[ops]") {
  Graph g;
  SymScope symbols(g.env.get());
  SymInt batch = SymInt::of_expr(*g.env, g.env->leaf(SymOp::kSize, 0, 0, 128));
  auto input = [&](const char* name, const Sizes& sizes, DType type = DType::kFloat32) {
    Tensor t = g.add_input(name, sizes, contiguous_strides(sizes), type);
    t->requires_grad = name[0] == 'w' || name[0] == 'b';
    return t;
  };
  Tensor x = input("x", {batch, 8}), y = input("y", {batch}, DType::kInt64);
  Tensor w1 = input("w1", {6, 8}), b1 = input("b1", {6}), w2 = input("w2", {3, 6}), b2 = input("b2", {3});
  GraphRecorder recorder(g);
  ModeScope mode(&recorder);
  Tensor hidden = op1(OpId::relu, {op1(OpId::linear, {x, w1, b1})});
  Tensor loss = op1(OpId::cross_entropy, {op1(OpId::linear, {hidden, w2, b2}), y});
  backward({loss}, {}, false, false);
  {
    GradModeScope off(false);
    for (const Tensor& p : {w1, b1, w2, b2}) {
      call_inplace(OpId::add, {p, autograd_meta(p).grad, Scalar(-0.1)});
      CHECK(to_string(autograd_meta(p).grad->sizes) == to_string(p->sizes));
    }
  }
  g.outputs = {loss};
  g.renumber();
  CHECK(g.env->guards().empty());
  CHECK(verify(g) == "");
  check_golden("ops/train_step.graph", print(g));
}

}  // namespace lutra
