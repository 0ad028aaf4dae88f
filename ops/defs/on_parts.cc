// Runs ops on complex tensors as the same ops on view_as_real of them.
#include "ops/defs/on_parts.h"

#include "ops/defs/call.h"

namespace lutra {
namespace {

Tensor parts(const Tensor& t) { return op1(OpId::view_as_real, {t}); }

// Returns a mask of pairs for a mask of elements.
Tensor of_pairs(const Tensor& mask) { return op1(OpId::unsqueeze, {mask, Scalar::of_int(-1)}); }

}  // namespace

bool has_cells(const Tensor& t) { return is_packed(t->dtype) || is_complex(t->dtype); }
Tensor view_as_dtype(const Tensor& t, DType dtype) { return op1(OpId::view_dtype, {t, dtype}); }

Tensor as_cells(const Tensor& t) {
  if (is_packed(t->dtype)) return op1(OpId::view_as_bytes, {t});
  return is_complex(t->dtype) ? parts(t) : t;
}

Tensor of_cells(const Tensor& cells, DType dtype) {
  if (is_packed(dtype)) return op1(OpId::view_as_packed, {cells, dtype});
  return is_complex(dtype) ? op1(OpId::view_as_complex, {cells}) : cells;
}

ResultSpec layout_of_cells(const Tensor& t) {
  if (!is_packed(t->dtype) && !is_complex(t->dtype)) return {t->sizes, t->strides, t->dtype, true, t->offset};
  const OpId view = is_packed(t->dtype) ? OpId::view_as_bytes : OpId::view_as_real;
  return info(view).meta(view, {t})[0];
}

bool takes_parts(const OpInfo& op, const Args& args) {
  switch (op.id) {
    case OpId::index_put:
    case OpId::masked_scatter:
    case OpId::masked_assign:
    case OpId::masked_gather:
    case OpId::masked_select: return is_complex(args[0].as<Tensor>()->dtype);
    default: return false;
  }
}

Tensor call_on_parts(const OpInfo& op, const Args& args, bool inplace) {
  const Tensor& self = args[0].as<Tensor>();
  if (op.id != OpId::masked_select) op.meta(op.id, args);  // raises on bad arguments, with the caller's sizes
  Args own = args;
  own[0] = parts(self);
  if (op.id == OpId::index_put) {
    own[3] = parts(args[3].as<Tensor>());
  } else {
    own[1] = of_pairs(args[1].as<Tensor>());
  }
  if (op.id == OpId::masked_scatter || op.id == OpId::masked_assign) own[2] = parts(args[2].as<Tensor>());
  if (op.id == OpId::masked_gather) own[2] = Sizes{args[2].as<Sizes>()[0] * 2};
  if (inplace) return call_inplace(op.id, own), self;
  Tensor out = op1(op.id, own);
  const bool flat = op.id == OpId::masked_gather || op.id == OpId::masked_select;
  if (flat) out = op1(OpId::view, {out, Sizes{SymInt(-1), SymInt(2)}});
  return op1(OpId::view_as_complex, {out});
}

}  // namespace lutra
