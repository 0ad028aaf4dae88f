// Tests how the recorder records a composite: as one node, or as its parts if its results are not memory of their own.
#include <catch2/catch.hpp>

#include "jit/graph/graph.h"
#include "jit/passes/passes.h"
#include "ops/defs/autocast.h"
#include "ops/defs/category.h"
#include "ops/defs/cost.h"
#include "ops/defs/modes.h"

namespace lutra {
namespace {

struct Recording {
  Graph graph;
  SymScope symbols{graph.env.get()};
  GraphRecorder recorder{graph};

  Tensor input(const Sizes& sizes, DType dtype = DType::kFloat32) {
    return graph.add_input("x", sizes, contiguous_strides(sizes), dtype);
  }
  Results call(OpId op, Args args) {
    ModeScope mode(&recorder);
    return call_op(op, std::move(args));
  }
  // The names of its nodes.
  std::string ops() const {
    std::string text;
    for (const auto& n : graph.nodes) text += (text.empty() ? "" : " ") + std::string(name(n->op));
    return text;
  }
};

}  // namespace

TEST_CASE("a composite is one node until decompose", "[graph]") {
  Recording r;
  const Tensor x = r.input({3, 4}), y = r.input({3, 4});
  const std::vector<Tensor> both = {x, y};
  r.graph.outputs.push_back(r.call(OpId::stack, {both, vdim(1)})[0]);
  r.graph.outputs.push_back(r.call(OpId::cumsum, {x, vdim(0)})[0]);
  r.graph.outputs.push_back(r.call(OpId::einsum, {std::string("ij,kj->ik"), both})[0]);
  r.graph.outputs.push_back(r.call(OpId::zeros_like, {x})[0]);
  const Results slopes = r.call(OpId::gradient, {x});
  CHECK(slopes.size() == 2);
  for (const Tensor& t : slopes) r.graph.outputs.push_back(t);
  CHECK(r.ops() == "stack cumsum einsum zeros_like gradient");
  CHECK(verify(r.graph).empty());
  r.graph.renumber();
  const GraphPtr after = decompose(r.graph);
  CHECK(verify(*after).empty());
  for (const auto& n : after->nodes) CHECK_FALSE(info(n->op).is_composite());
}

TEST_CASE("an op whose result aliases its argument is its parts", "[graph]") {
  Recording r;
  const Tensor x = r.input({3, 4});
  const Tensor turned = r.call(OpId::einsum, {std::string("ij->ji"), std::vector<Tensor>{x}})[0];
  CHECK(turned->storage == x->storage);
  CHECK(r.ops().find("einsum") == std::string::npos);
  const size_t before = r.graph.nodes.size();
  CHECK(r.call(OpId::sum_to_size, {x, Sizes{3, 4}})[0].same(x));
  CHECK(r.graph.nodes.size() == before);
  CHECK(r.call(OpId::sum_to_size, {x, Sizes{1, 4}})[0]->node->op == OpId::sum_to_size);
}

TEST_CASE("an op that writes or draws is its parts, with other arguments a node", "[graph]") {
  const auto norm = [](bool training) {
    Recording r;
    const Tensor x = r.input({2, 3, 4}), mean = r.input({3}), var = r.input({3});
    r.call(OpId::batch_norm, {x, mean, var, Value(), Value(), training});
    CHECK(mean->storage->version == uint32_t(training));
    return r.ops();
  };
  CHECK(norm(false) == "batch_norm");
  CHECK(norm(true).find("batch_norm ") == std::string::npos);
  const auto attention = [](double dropout) {
    Recording r;
    const Tensor q = r.input({1, 2, 3, 4});
    r.call(OpId::scaled_dot_product_attention, {q, q, q, Value(), Scalar(dropout)});
    return r.ops();
  };
  CHECK(attention(0) == "scaled_dot_product_attention");
  CHECK(attention(0.5).find("scaled") == std::string::npos);
  CHECK(attention(0.5).find("rand") != std::string::npos);
}

TEST_CASE("under autocast an op without a policy is its parts", "[graph]") {
  AutocastMode on;
  on.enabled = {true, true};
  const AutocastMode before = autocast_mode();
  Recording r;
  const Tensor x = r.input({3, 4});
  set_autocast_mode(on);
  const DType cov = r.call(OpId::cov, {x})[0]->dtype,
              sum = r.call(OpId::addmm, {r.input({3, 3}), x, r.input({4, 3})})[0]->dtype;
  set_autocast_mode(before);
  CHECK(cov == DType::kBFloat16);
  CHECK(sum == DType::kBFloat16);
  CHECK(r.ops().find("cov") == std::string::npos);
  CHECK(r.ops().find("addmm") != std::string::npos);
}

TEST_CASE("a composite of symbolic sizes asks the same when it is decomposed", "[graph]") {
  Recording r;
  const SymInt n = SymInt::of_expr(*r.graph.env, r.graph.env->leaf(SymOp::kSize, 0, 0, 6));
  const Tensor x = r.input({n, 4});
  r.graph.outputs.push_back(r.call(OpId::stack, {std::vector<Tensor>{x, x}})[0]);
  r.graph.outputs.push_back(r.call(OpId::cumsum, {x, vdim(0)})[0]);
  r.graph.renumber();
  const size_t guards = r.graph.env->guards().size();
  const GraphPtr after = decompose(r.graph);
  CHECK(r.graph.env->guards().size() == guards);
  CHECK(after->outputs[0].tensor()->sizes[1].expr == n.expr);
}

TEST_CASE("a decomposition may bring constants of its own", "[graph]") {
  Recording r;
  r.graph.outputs.push_back(r.call(OpId::combinations, {r.input({4})})[0]);
  CHECK(r.ops() == "combinations");
  CHECK(r.graph.inputs.size() == 1);
  r.graph.renumber();
  const GraphPtr after = decompose(r.graph);
  CHECK(after->inputs.size() > 1);
  CHECK(after->inputs.back().constant);
  CHECK(verify(*after).empty());
  CHECK(verify_sharing(r.graph, *after).empty());
}

TEST_CASE("every op has a category and a batching rule", "[graph]") {
  for (size_t i = 0; i < size_t(OpId::input); i++) {
    const OpId op = OpId(i);
    INFO(name(op));
    CHECK_NOTHROW(category(op));
    const bool composite = category(op) == Category::kComposite;
    CHECK(composite == info(op).is_composite());
    if (info(op).has(kContraction))
      CHECK((category(op) == Category::kContraction || category(op) == Category::kSpatial));
    if (info(op).takes_as_parts()) CHECK(composite);
  }
  CHECK(category(OpId::add) == Category::kPointwise);
  CHECK(category(OpId::sum) == Category::kReduction);
  CHECK(category(OpId::mm) == Category::kContraction);
  CHECK(category(OpId::convolution) == Category::kSpatial);
  CHECK(category(OpId::index_add) == Category::kScatter);
  CHECK(category(OpId::sort) == Category::kLibrary);
  CHECK(batching(OpId::add) == Batching::kBroadcast);
  CHECK(batching(OpId::stack) == Batching::kParts);
  CHECK(batching(OpId::sum) == Batching::kDims);
  CHECK(batching(OpId::mm) == Batching::kNone);
}

TEST_CASE("each contraction tells its flops", "[graph]") {
  CHECK(flops(OpId::mm, {{2, 3}, {3, 5}}, {{2, 5}}) == 2 * 2 * 5 * 3);
  CHECK(flops(OpId::convolution, {{1, 4, 8, 8}, {6, 4, 3, 3}, {}}, {{1, 6, 6, 6}}) == 2.0 * 6 * 36 * 4 * 9);
  CHECK(flops(OpId::flash_attention, {{1, 2, 8, 4}, {1, 2, 16, 4}, {1, 2, 16, 4}}, {{1, 2, 8, 4}}) == 4.0 * 64 * 16);
  CHECK(flops(OpId::add, {{2}, {2}}, {{2}}) == 0);
  const SizeLists operands(7, std::vector<int64_t>{1, 2, 3, 4});
  for (size_t i = 0; i < size_t(OpId::input); i++) {
    INFO(name(OpId(i)));
    CHECK((flops(OpId(i), operands, operands) > 0) == info(OpId(i)).has(kContraction));
  }
}

}  // namespace lutra
