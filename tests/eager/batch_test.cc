// Tests each row's batching: an op on a batch gives the same as on each element. Arguments come from the row's schema.
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <catch2/catch.hpp>

#include "ops/defs/batch.h"
#include "ops/defs/category.h"
#include "tests/eager/values.h"

namespace lutra {
namespace {

constexpr int64_t kBatch = 3;

Tensor random_batch(const Sizes& element, DType type, uint32_t seed) {
  Sizes sizes = element;
  sizes.insert(0, kBatch);
  const Tensor t = make_tensor(sizes, type);
  for (int64_t i = 0; i < count(t); i++) {
    seed = seed * 1664525u + 1013904223u;
    const double unit = 0.15 + 0.7 * double(seed >> 8) / double(1 << 24);
    put(t, i, is_float(type) ? unit : is_bool(type) ? double(seed >> 30 & 1) : double(1 + (seed >> 28)));
  }
  return t;
}

// The shapes of a sample's tensors: one size for all, or fewer dimensions from the second on.
struct Shape {
  Sizes first, rest;
  DType type;
};
const Shape kShapes[] = {{{4, 5}, {4, 5}, DType::kFloat64},       {{4, 5}, {5}, DType::kFloat64},
                         {{4, 4}, {4, 4}, DType::kFloat64},       {{6}, {6}, DType::kFloat64},
                         {{4, 5}, {4, 5}, DType::kInt64},         {{4, 5}, {4, 5}, DType::kBool},
                         {{2, 6, 6}, {2, 6, 6}, DType::kFloat64}, {{3}, {3}, DType::kFloat32}};

// A sample of an op: its arguments for the batch, each tensor with the batch in front. None where the schema asks for
// something that cannot be made up.
std::optional<Args> sample(const OpInfo& op, const Shape& shape) {
  Args args;
  uint32_t seed = 7;
  bool first = true;
  const auto tensor = [&] {
    const Tensor t = random_batch(first ? shape.first : shape.rest, shape.type, seed++);
    first = false;
    return t;
  };
  for (const ArgInfo& arg : op.args) {
    switch (arg.type) {
      case ArgType::kTensor: args.push_back(arg.optional ? Value() : Value(tensor())); break;
      case ArgType::kOperand: args.push_back(first ? Value(tensor()) : Value(Scalar(2.0))); break;
      case ArgType::kTensorList: args.push_back(std::vector<Tensor>{tensor(), tensor()}); break;
      default:
        if (names_dims(arg) && (!arg.has_default || arg.def.is_none())) {
          // The last dimension; a list that orders a view's names all.
          const int64_t last = int64_t(shape.first.size()) - 1;
          Sizes order;
          for (int64_t d = last; op.has(kView) && !arg.has_default && d > 0; d--) order.push_back(d);
          order.push_back(order.empty() ? last : 0);
          args.push_back(arg.type == ArgType::kInt ? Value(vdim(last)) : Value(order));
        } else if (arg.has_default) {
          args.push_back(arg.def);
        } else if (arg.type == ArgType::kInt) {
          args.push_back(vdim(1));
        } else if (arg.type == ArgType::kScalar || arg.type == ArgType::kFloat) {
          args.push_back(vnum(0.5));
        } else if (arg.type == ArgType::kBool) {
          args.push_back(false);
        } else if (arg.type == ArgType::kDType) {
          args.push_back(DType::kFloat32);
        } else if (arg.type == ArgType::kStr) {
          args.push_back(std::string("positive"));  // check_values
        } else {
          return std::nullopt;
        }
    }
  }
  return args;
}

Args with_tensors(const Args& args, const std::function<Tensor(const Tensor&)>& f) {
  Args out = args;
  for (Value& v : out) {
    if (v.is<Tensor>()) v = f(v.tensor());
    if (!v.is<std::vector<Tensor>>()) continue;
    std::vector<Tensor> list;
    for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(f(t));
    v = list;
  }
  return out;
}

bool close(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-5 * std::fmax(1, std::fabs(b));
}

enum class Outcome { kNoSample, kNoRule, kSame };

// One sample of an op, by itself and by the batch.
Outcome try_sample(OpId id, const Args& args) {
  std::vector<Results> each;
  try {
    for (int64_t i = 0; i < kBatch; i++) {
      const auto part = [&](const Tensor& t) { return op1(OpId::select, {t, vdim(0), vdim(i)}); };
      each.push_back(call_op(id, with_tensors(args, part)));
    }
  } catch (const Error&) {
    return Outcome::kNoSample;
  }
  Batch batch(kBatch);
  Results all;
  try {
    ModeScope mode(&batch);
    const Args elements = with_tensors(args, [&](const Tensor& t) { return batch.enter(t); });
    all = call_op(id, elements);
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(std::string_view(error.what()).find("has no rule for a batch") != std::string_view::npos);
    return Outcome::kNoRule;
  }
  for (size_t r = 0; r < all.size(); r++) {
    const Tensor whole = batch.leave(all[r]);
    for (int64_t i = 0; i < kBatch; i++) {
      const Tensor got = op1(OpId::select, {whole, vdim(0), vdim(i)}), want = each[size_t(i)][r];
      CHECK(to_string(got->sizes) == to_string(want->sizes));
      CHECK(got->dtype == want->dtype);
      CHECK(to_string(all[r]->sizes) == to_string(want->sizes));
      const std::vector<double> a = values(got), b = values(want);
      for (size_t k = 0; k < a.size(); k++) CHECK(close(a[k], b[k]));
    }
  }
  return Outcome::kSame;
}

}  // namespace

TEST_CASE("every op does on a batch what its row's batching says", "[eager]") {
  GradModeScope off(false);
  std::map<Batching, int> same;
  for (size_t i = 0; i < size_t(OpId::input); i++) {
    const OpId id = OpId(i);
    const OpInfo& op = info(id);
    const Batching rule = batching(id);
    // Draws differ, uninitialised elements too; what has no tensor has no batch.
    const bool compared = !op.has(kRandom) && !op.has(kCreation) && !op.has(kMutates) && !op.dynamic;
    if (!compared || op.takes_as_parts()) continue;
    if (std::string_view(op.name).starts_with("view_as_")) continue;  // stored dtypes
    if (id == OpId::pointwise_vjp) continue;                          // no number is a rule
    INFO(op.name << ", batching " << name(rule));
    bool found = false, ruled = false;
    for (const Shape& shape : kShapes) {
      const std::optional<Args> args = sample(op, shape);
      if (!args) continue;
      Args complete = *args;
      const Outcome outcome = try_sample(id, complete);
      if (outcome == Outcome::kSame) ruled = true, same[rule]++;
      found |= outcome != Outcome::kNoSample;
    }
    if (rule == Batching::kBroadcast || rule == Batching::kDims) {
      CHECK(found);
      CHECK(ruled);
    }
    if (rule == Batching::kNone) CHECK_FALSE(ruled);
  }
  UNSCOPED_INFO("samples: " << same[Batching::kBroadcast] << " broadcast, " << same[Batching::kDims] << " by dims, "
                            << same[Batching::kParts] << " by parts");
  CHECK(same[Batching::kBroadcast] > 300);
  CHECK(same[Batching::kDims] > 60);
  CHECK(same[Batching::kParts] > 300);
}

}  // namespace lutra
