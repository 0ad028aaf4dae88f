// Turns calls on elements into calls on the batch. See batch.h.
#include "ops/defs/batch.h"

#include <algorithm>

#include "ops/defs/category.h"
#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {

// Increments the dimensions that count from the start. None becomes all dimensions of an element. Returns false if a
// list of dimensions cannot express that.
bool shift_dims(const OpInfo& op, Args& args, size_t rank) {
  for (size_t i = 0; i < args.size(); i++) {
    if (!names_dims(op.args[i])) continue;
    if (op.args[i].type == ArgType::kInt) {
      if (args[i].is_none()) return false;
      const int64_t dim = args[i].sym_int().guard();
      if (dim >= 0) args[i] = vdim(dim + 1);
      if (rank == 0) args[i] = vdim(1);
      continue;
    }
    Sizes dims;
    if (args[i].is_none() || args[i].as<Sizes>().empty()) {
      for (size_t d = 0; d < rank; d++) dims.push_back(int64_t(d) + 1);
      if (dims.empty()) return false;
    } else {
      // A view's list orders all dimensions, so the batch stays first.
      if (op.has(kView) && !op.args[i].optional) dims.push_back(0);
      for (SymInt d : args[i].as<Sizes>()) dims.push_back(d >= 0 ? d + 1 : d);
    }
    args[i] = dims;
  }
  return true;
}

size_t most_dims(const Args& args) {
  size_t rank = 0;
  each_argument_tensor(args, [&](size_t, const Tensor& t) { rank = std::max(rank, t->sizes.size()); });
  return rank;
}

[[noreturn]] void fail_batched(const OpInfo& op) { fail(op.name, ": has no rule for a batch"); }

}  // namespace

Tensor Batch::enter(const Tensor& t) {
  Sizes sizes = t->sizes, strides = t->strides;
  sizes.erase(size_t(0)), strides.erase(size_t(0));
  const Tensor element = make_fake(sizes, strides, t->dtype, t->device());
  whole_.emplace(element.get(), Whole{element, t});
  return element;
}

Tensor Batch::leave(const Tensor& t) {
  const auto known = whole_.find(t.get());
  if (known != whole_.end()) return known->second.batch;
  Sizes sizes = t->sizes;
  sizes.insert(0, size_);
  return op1(OpId::expand, {op1(OpId::unsqueeze, {t, vdim(0)}), sizes});
}

Args Batch::with_batch(const Args& args, size_t rank) {
  const auto whole = [&](const Tensor& t) {
    Tensor batch = leave(t);
    while (batch->sizes.size() <= rank) batch = op1(OpId::unsqueeze, {batch, vdim(1)});
    return batch;
  };
  Args out = args;
  for (Value& v : out) {
    if (v.is<Tensor>()) {
      v = whole(v.tensor());
    } else if (v.is<std::vector<Tensor>>()) {
      std::vector<Tensor> list;
      for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(whole(t));
      v = list;
    }
  }
  return out;
}

Results Batch::call_whole(OpId id, const Args& args) {
  const OpInfo& op = info(id);
  if (batching(id) == Batching::kBroadcast) return call_op(id, with_batch(args, most_dims(args)));
  Args all = with_batch(args, 0);
  if (batching(id) != Batching::kDims || !shift_dims(op, all, most_dims(args))) fail_batched(op);
  return call_op(id, all);
}

Results Batch::call(OpId id, Args& args) {
  bool any = false;
  each_argument_tensor(args, [&](size_t, const Tensor& t) { any |= is_batched(t); });
  if (!any) return call_op(id, args);
  const OpInfo& op = info(id);
  if (batching(id) == Batching::kParts) {
    ModeScope again(this);
    return decompose(op, args);
  }
  if (op.has(kRandom) || op.has(kMutates)) fail_batched(op);
  const Results batches = call_whole(id, args);
  Results elements;
  for (const Tensor& batch : batches) elements.push_back(enter(batch));
  return elements;
}

Tensor Batch::call_inplace(OpId id, Args&) { fail_batched(info(id)); }

}  // namespace lutra
