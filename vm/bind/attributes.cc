// Attributes of tensors: x.shape, x.grad = t.
#include "ops/grad/tape.h"
#include "vm/bind/format.h"
#include "vm/bind/functions.h"

namespace lutra {

void set_requires_grad(const Tensor& t, bool on, const char* fn) {
  if (t->autograd && t->autograd->grad_fn) {
    if (on) return;
    fail(fn, ": you can only change it on leaves; use :detach() for a tensor that does not require grad");
  }
  if (on && !is_float(t->dtype)) {
    fail(fn, ": only tensors of floating point dtype can require gradients, got ", name(t->dtype));
  }
  t->requires_grad = on;
}

void set_data(const Tensor& t, const Tensor& from) {
  if (t->is_view() || !is_leaf(t)) fail("data: the tensor is a view or the result of an op");
  if (t->requires_grad && !is_float(from->dtype))
    fail("data: a tensor that requires grad cannot be ", name(from->dtype));
  t->storage = from->storage;
  t->sizes = from->sizes, t->strides = from->strides, t->offset = from->offset;
  t->dtype = from->dtype;
  note_new_layout(t);
}

Tensor get_grad(const Tensor& t) { return t->autograd ? t->autograd->grad : Tensor(); }

namespace {

LuaResults shape(const Tensor& t) { return {t->sizes}; }

LuaResults transposed(const Tensor& t) {
  if (t->dim() < 2) return {t};
  Sizes order;
  for (int64_t d = t->dim() - 1; d >= 0; --d) order.push_back(d);
  return {op1(OpId::permute, {t, order})};
}

LuaResults matrix_transposed(const Tensor& t) {
  if (t->dim() < 2) fail("mT: expects a tensor of at least 2 dimensions, got ", t->dim());
  return {op1(OpId::transpose, {t, vdim(-2), vdim(-1)})};
}

LuaResults matrix_conjugate_transposed(const Tensor& t) {
  if (t->dim() < 2) fail("mH: expects a tensor of at least 2 dimensions, got ", t->dim());
  return {op1(OpId::adjoint, {t})};
}

LuaResults conjugate_transposed(const Tensor& t) {
  if (t->dim() != 2 && t->dim() != 0) fail("H: expects a matrix, got shape ", to_string(t->sizes));
  return {op1(OpId::adjoint, {t})};
}

// Updates the history of a view whose base was written.
const Tensor& up_to_date(const Tensor& t) {
  refresh_view(t);
  return t;
}

LuaResults grad_fn(const Tensor& t) {
  const std::string fn = grad_fn_name(up_to_date(t));
  if (fn.empty()) return {Value()};
  return {"<" + fn + ">"};
}

bool same_shape(const Tensor& a, const Tensor& b) {
  if (a->dim() != b->dim()) return false;
  for (int64_t d = 0; d < a->dim(); ++d) {
    if (a->sizes[d] != b->sizes[d]) return false;
  }
  return true;
}

void set_grad(const Tensor& t, ArgReader& in, ArgReader::H value) {
  if (in.kind(value) == LuaKind::kNil) {
    if (t->autograd) t->autograd->grad = Tensor();
    return;
  }
  if (in.kind(value) != LuaKind::kTensor) fail("grad: must be a Tensor or nil, got ", in.describe(value));
  const Tensor g = in.tensor(value);
  if (!same_shape(t, g)) {
    fail("grad: has shape ", to_string(g->sizes), ", the tensor ", to_string(t->sizes));
  }
  if (g->dtype != t->dtype) fail("grad: has dtype ", name(g->dtype), ", the tensor ", name(t->dtype));
  if (g->device() != t->device()) {
    fail("grad: is on ", to_string(g->device()), ", the tensor on ", to_string(t->device()));
  }
  if (g.same(t)) fail("grad: a tensor cannot be its own gradient");
  autograd_meta(t).grad = g;
}

LuaResults data(const Tensor& t) {
  const GradModeScope off(false);
  return {op1(OpId::detach, {t})};
}

void set_data_to(const Tensor& t, ArgReader& in, ArgReader::H value) {
  if (in.kind(value) != LuaKind::kTensor) fail("data: must be a Tensor, got ", in.describe(value));
  if (t->is_fake()) throw NeedsData("a tensor takes the memory of another one");
  set_data(t, in.tensor(value));
}

void set_requires(const Tensor& t, ArgReader& in, ArgReader::H value) {
  if (in.kind(value) != LuaKind::kBoolean) fail("requires_grad: must be a boolean, got ", in.describe(value));
  set_requires_grad(t, in.boolean(value));
}

const Attribute kAttributes[] = {
    {"shape", shape, nullptr},
    {"dtype", [](const Tensor& t) -> LuaResults { return {t->dtype}; }, nullptr},
    {"device", [](const Tensor& t) -> LuaResults { return {t->device()}; }, nullptr},
    {"ndim", [](const Tensor& t) -> LuaResults { return {vdim(t->dim())}; }, nullptr},
    {"data", data, set_data_to},
    {"grad", [](const Tensor& t) -> LuaResults { return {get_grad(t)}; }, set_grad},
    {"requires_grad", [](const Tensor& t) -> LuaResults { return {bool(up_to_date(t)->requires_grad)}; }, set_requires},
    {"is_leaf", [](const Tensor& t) -> LuaResults { return {is_leaf(up_to_date(t))}; }, nullptr},
    {"grad_fn", grad_fn, nullptr},
    {"is_cuda", [](const Tensor& t) -> LuaResults { return {t->device().type == DeviceType::kCUDA}; }, nullptr},
    {"nbytes",
     [](const Tensor& t) -> LuaResults {
       const SymInt unit = int64_t(size_of(t->dtype));
       return {vint(is_packed(t->dtype) ? floor_div(t->numel(), 2) : t->numel() * unit)};
     },
     nullptr},
    {"itemsize", [](const Tensor& t) -> LuaResults { return {vdim(int64_t(size_of(t->dtype)))}; }, nullptr},
    {"_version", [](const Tensor& t) -> LuaResults { return {vdim(t->storage->version)}; }, nullptr},
    {"T", transposed, nullptr},
    {"mT", matrix_transposed, nullptr},
    {"H", conjugate_transposed, nullptr},
    {"mH", matrix_conjugate_transposed, nullptr},
    {"real", [](const Tensor& t) -> LuaResults { return {op1(OpId::real, {t})}; }, nullptr},
    {"imag", [](const Tensor& t) -> LuaResults { return {op1(OpId::imag, {t})}; }, nullptr},
};

}  // namespace

std::span<const Attribute> attributes() { return kAttributes; }

const Attribute* find_attribute(std::string_view name) {
  for (const Attribute& row : kAttributes) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

}  // namespace lutra
