// A row in, its category and batching rule out.
#include "ops/defs/category.h"

namespace lutra {
namespace {

// Of rows whose flags say nothing: by their lowering.
struct ByLowering {
  std::string_view lower;
  Category category;
};
constexpr ByLowering kByLowering[] = {
    {"pointwise", Category::kPointwise},     {"reduce", Category::kReduction},
    {"gather", Category::kGather},           {"extern", Category::kLibrary},
    {"join", Category::kMovement},           {"flip", Category::kMovement},
    {"select_scatter", Category::kMovement}, {"as_strided_scatter", Category::kMovement},
};

struct ByFlag {
  OpFlags flag;
  Category category;
};
// The first that a row has decides.
constexpr ByFlag kByFlag[] = {
    {kMutates, Category::kWrite},    {kRandom, Category::kRandom},       {kCreation, Category::kCreation},
    {kView, Category::kView},        {kSpatial, Category::kSpatial},     {kContraction, Category::kContraction},
    {kScatters, Category::kScatter}, {kPointwise, Category::kPointwise},
};

}  // namespace

Category category(OpId id) {
  const OpInfo& op = info(id);
  if (op.is_composite()) return Category::kComposite;
  if (op.dynamic) return Category::kDynamic;
  for (const ByFlag& row : kByFlag) {
    if (op.has(row.flag)) return row.category;
  }
  for (const ByLowering& row : kByLowering) {
    if (op.lower == row.lower) return row.category;
  }
  fail_internal(op.name, ": has no category");
}

Batching batching(OpId id) {
  const Category c = category(id);
  if (c == Category::kPointwise) return Batching::kBroadcast;
  if (c == Category::kComposite && !info(id).has(kMutates)) return Batching::kParts;
  return Batching::kNone;
}

const char* name(Category c) {
  static const char* const names[] = {"pointwise", "reduction", "contraction", "spatial", "view",
                                      "movement",  "gather",    "scatter",     "library", "random",
                                      "creation",  "write",     "composite",   "dynamic"};
  return names[size_t(c)];
}

const char* name(Batching b) {
  static const char* const names[] = {"broadcast", "parts", "none"};
  return names[size_t(b)];
}

}  // namespace lutra
