// Derives an op's category and batching rule from its row.
#include "ops/defs/category.h"

namespace lutra {
namespace {

// The category by lowering, for rows whose flags don't decide it.
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
// The first flag that a row has decides.
constexpr ByFlag kByFlag[] = {
    {kMutates, Category::kWrite},    {kRandom, Category::kRandom},       {kCreation, Category::kCreation},
    {kView, Category::kView},        {kSpatial, Category::kSpatial},     {kContraction, Category::kContraction},
    {kScatters, Category::kScatter}, {kPointwise, Category::kPointwise},
};

}  // namespace

bool only_sets(OpId op, const Args& args) {
  switch (op) {
    case OpId::as_strided_scatter:
    case OpId::index_copy:
    case OpId::index_fill: return true;
    case OpId::index_put: return !args[4].as<bool>();
    case OpId::scatter: return args[4].is_none();
    default: return false;
  }
}

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

bool names_dims(const ArgInfo& arg) {
  return (arg.type == ArgType::kInt || arg.type == ArgType::kIntList) && arg.name.starts_with("dim");
}

namespace {
// Returns whether the op's arguments describe places in tensors by dimensions only.
bool goes_by_dims(const OpInfo& op, Category c) {
  if (c != Category::kReduction && c != Category::kView && c != Category::kMovement && c != Category::kLibrary) {
    return false;
  }
  bool dims = c == Category::kView;
  for (size_t i = 0; i < op.args.size(); i++) {
    const ArgInfo& arg = op.args[i];
    const bool tensor = arg.type == ArgType::kTensor || arg.type == ArgType::kOperand;
    if (tensor && i > 0) return false;
    if (arg.type == ArgType::kIntList && !names_dims(arg)) return false;
    dims |= names_dims(arg);
  }
  return dims;
}
}  // namespace

Batching batching(OpId id) {
  if (info(id).has(kControl)) return Batching::kNone;
  const Category c = category(id);
  if (c == Category::kPointwise) return Batching::kBroadcast;
  if (c == Category::kComposite) return info(id).has(kMutates) ? Batching::kNone : Batching::kParts;
  return goes_by_dims(info(id), c) ? Batching::kDims : Batching::kNone;
}

const char* name(Category c) {
  static const char* const names[] = {"pointwise", "reduction", "contraction", "spatial", "view",
                                      "movement",  "gather",    "scatter",     "library", "random",
                                      "creation",  "write",     "composite",   "dynamic"};
  return names[size_t(c)];
}

const char* name(Batching b) {
  static const char* const names[] = {"broadcast", "dims", "parts", "none"};
  return names[size_t(b)];
}

}  // namespace lutra
