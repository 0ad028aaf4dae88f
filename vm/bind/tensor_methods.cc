// Methods that convert, fill and read tensors: casts, to, fill_, item, totable, free.
#include <lua.hpp>

#include "ops/cuda/copy.h"
#include "vm/bind/composite.h"
#include "vm/bind/element.h"
#include "vm/bind/format.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"

namespace lutra {
namespace {

// -- conversion

Tensor to_device(const Tensor& t, Device device) {
  return t->device() == device ? t : op1(OpId::to_device, {t, device});
}

template <DType kType>
LuaResults cast(Args& a) {
  return {to_dtype(a[0].tensor(), kType)};
}

LuaResults to_device_dtype(Args& a) {
  const Tensor from = a[0].tensor();
  const Device device = a[1].is_none() ? from->device() : a[1].as<Device>();
  // Where fewer bytes move.
  const DType dtype = a[2].is_none() ? from->dtype : a[2].as<DType>();
  const bool first = size_of(dtype) < size_of(from->dtype);
  Tensor t = first ? to_device(to_dtype(from, dtype), device) : to_dtype(to_device(from, device), dtype);
  return {a[4].as<bool>() && t.same(from) ? op1(OpId::clone, {t}) : t};
}

LuaResults to_cuda(Args& a) {
  const Device device = a[1].is_none() ? Device{DeviceType::kCUDA, int8_t(current_cuda_index())} : a[1].as<Device>();
  if (device.type != DeviceType::kCUDA) fail("cuda: device '", to_string(device), "' is not a GPU");
  check_device(device);
  return {to_device(a[0].tensor(), device)};
}

// A copy in pinned memory; the tensor itself where it is in such memory already.
LuaResults pin_memory(Args& a) {
  const Tensor t = a[0].tensor();
  need_data("pin_memory", t);
  if (t->device() != Device{})
    fail("pin_memory: only tensors of the CPU can be pinned, this one is on ", lutra::to_string(t->device()));
  if (cuda::is_pinned(t->storage->data)) return {t};
  GradModeScope off(false);
  Tensor out = make_tensor({0}, t->dtype);
  out->storage = cuda::allocate_pinned(size_t(t->numel().hint) * size_of(t->dtype));
  out->sizes = t->sizes, out->strides = contiguous_strides(t->sizes);
  return {call_inplace(OpId::copy_, {out, t})};
}

LuaResults to_dtype_copy(Args& a) {
  Tensor t = to_dtype(a[0].tensor(), a[1].as<DType>());
  return {a[3].as<bool>() && t.same(a[0].tensor()) ? op1(OpId::clone, {t}) : t};
}

LuaResults to_other(Args& a) {
  const Tensor other = a[1].tensor();
  return {to_dtype(to_device(a[0].tensor(), other->device()), other->dtype)};
}

// -- filling in place

Tensor fill_with(const Tensor& t, const Value& v) {
  Value src = v;
  if (v.is<Scalar>()) src = full_of({}, v.as<Scalar>(), t->dtype, t->device());
  return call_inplace(OpId::copy_, {t, src});
}

LuaResults fill_inplace(Args& a) {
  if (a[1].is<Tensor>() && a[1].tensor()->dim() != 0) {
    fail("fill_: value must be a number or a tensor of no dimensions, got shape ", to_string(a[1].tensor()->sizes));
  }
  return {fill_with(a[0].tensor(), a[1])};
}

LuaResults fill_copy(Args& a) {
  Args copy = {op1(OpId::clone, {a[0]}), a[1]};
  return fill_inplace(copy);
}

Tensor random_like(OpId op, const Tensor& t) {
  GradModeScope off(false);
  const DType dtype = is_float(t->dtype) ? t->dtype : DType::kFloat32;
  return op1(op, {t->sizes, dtype, t->device()});
}

// values * scale + shift
LuaResults fill_random(const Tensor& t, OpId op, const Value& scale, const Value& shift) {
  Tensor scaled = op1(OpId::add, {op1(OpId::mul, {random_like(op, t), scale}), shift});
  return {call_inplace(OpId::copy_, {t, scaled})};
}

LuaResults uniform(Args& a) {
  const double from = pin(a[1].as<Scalar>()).to_double(), to = pin(a[2].as<Scalar>()).to_double();
  if (!(from <= to)) fail("uniform_: the range from ", from, " to ", to, " is empty");
  return fill_random(a[0].tensor(), OpId::rand, vnum(to - from), vnum(from));
}

LuaResults normal(Args& a) {
  const double std = pin(a[2].as<Scalar>()).to_double();
  if (std < 0) fail("normal_: std must not be negative, got ", std);
  return fill_random(a[0].tensor(), OpId::randn, vnum(std), a[1]);
}

// -- reading

LuaResults item(Args& a) {
  const Tensor t = a[0].tensor();
  if (t->numel() != 1) fail("item: expects a tensor of one element, got shape ", to_string(t->sizes));
  need_data("item", t);
  return {Elements(t).at(0)};
}

LuaResults free_tensor(Args& a) {
  const Tensor t = a[0].tensor();
  need_data("free", t);
  t->storage->free();
  return {};
}

LuaResults data_ptr(Args& a) {
  const Tensor t = a[0].tensor();
  need_data("data_ptr", t);
  return {vdim(int64_t(reinterpret_cast<intptr_t>(t->data())))};
}

Tensor self_of(lua_State* L, const char* fn) {
  Tensor* t = to_tensor(L, 1);
  if (!t) fail(fn, ": argument 'input' must be a Tensor, got ", luaL_typename(L, 1));
  return *t;
}

void push_nested(lua_State* L, const Elements& elements, const Tensor& t, size_t dim, int64_t offset) {
  if (dim == t->sizes.size()) return push_value(L, elements.at(offset));
  luaL_checkstack(L, 8, "tensor has too many dimensions");
  const int64_t n = elements.size(dim);
  lua_createtable(L, int(n), 0);
  for (int64_t i = 0; i < n; ++i) {
    push_nested(L, elements, t, dim + 1, offset + i * elements.stride(dim));
    lua_rawseti(L, -2, int(i) + 1);
  }
}

int totable(lua_State* L) {
  const Tensor t = self_of(L, "totable");
  if (t->numel().hint > int64_t(1) << 28) {
    fail("totable: ", t->numel().hint, " elements are more than Lua's tables are for; take a part of the tensor");
  }
  push_nested(L, Elements(t), t, 0, 0);
  return 1;
}

int to_string(lua_State* L) {
  const std::string text = format_tensor(self_of(L, "tostring"));
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

void push_text(lua_State* L, int idx) {
  if (Tensor* t = to_tensor(L, idx)) {
    const std::string text = format_tensor(*t);
    lua_pushlstring(L, text.data(), text.size());
  } else if (lua_isstring(L, idx)) {
    lua_pushvalue(L, idx);
  } else {
    fail("..: cannot concatenate a Tensor and a ", luaL_typename(L, idx));
  }
}

int concat(lua_State* L) {
  push_text(L, 1);
  push_text(L, 2);
  lua_concat(L, 2);
  return 1;
}

LuaResults is_tensor(const Binding&, ArgReader& in) { return {in.count() > 0 && in.kind(0) == LuaKind::kTensor}; }

const Composite kRows[] = {
    {"float", "Tensor input", kMethod, cast<DType::kFloat32>},
    {"double", "Tensor input", kMethod, cast<DType::kFloat64>},
    {"half", "Tensor input", kMethod, cast<DType::kFloat16>},
    {"bfloat16", "Tensor input", kMethod, cast<DType::kBFloat16>},
    {"long", "Tensor input", kMethod, cast<DType::kInt64>},
    {"int", "Tensor input", kMethod, cast<DType::kInt32>},
    {"short", "Tensor input", kMethod, cast<DType::kInt16>},
    {"char", "Tensor input", kMethod, cast<DType::kInt8>},
    {"byte", "Tensor input", kMethod, cast<DType::kUInt8>},
    {"bool", "Tensor input", kMethod, cast<DType::kBool>},
    {"to", "Tensor input, dtype dtype, bool non_blocking=False, bool copy=False", kMethod, to_dtype_copy},
    {"to", "Tensor input, Device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False", kMethod,
     to_device_dtype},
    {"to", "Tensor input, Tensor other, bool non_blocking=False", kMethod, to_other},
    {"type_as", "Tensor input, Tensor other", kMethod, to_other},
    {"cpu", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {to_device(a[0].tensor(), Device{})}; }},
    {"cuda", "Tensor input, Device? device=None, bool non_blocking=False", kMethod, to_cuda},
    {"get_device", "Tensor input", kBoth,
     [](Args& a) -> LuaResults {
       const Device device = a[0].tensor()->device();
       return {vdim(device.type == DeviceType::kCPU ? -1 : device.index)};
     }},
    {"pin_memory", "Tensor input", kMethod | kHostEffect, pin_memory},
    {"is_pinned", "Tensor input", kMethod | kHostEffect,
     [](Args& a) -> LuaResults {
       const Tensor t = a[0].tensor();
       return {t->device() == Device{} && cuda::is_pinned(t->storage->data)};
     }},
    {"fill_", "Tensor input, Operand value", kBoth, fill_inplace},
    {"fill", "Tensor input, Operand value", kBoth, fill_copy},
    {"zero_", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {fill_with(a[0].tensor(), vnum(0))}; }},
    {"uniform_", "Tensor input, Scalar from=0, Scalar to=1", kMethod | kDraws, uniform},
    {"normal_", "Tensor input, Scalar mean=0, Scalar std=1", kMethod | kDraws, normal},
    {"item", "Tensor input", kMethod | kNeedsData, item},
    {"free", "Tensor input", kMethod | kHostEffect, free_tensor},
    {"data_ptr", "Tensor input", kMethod | kNeedsData, data_ptr},
};

const Special kSpecials[] = {
    {"totable", kMethod | kNeedsData, nullptr, totable}, {"tolist", kMethod | kNeedsData, nullptr, totable},
    {"__tostring", kNeedsData, nullptr, to_string},      {"__concat", kNeedsData, nullptr, concat},
    {"is_tensor", kFunctionOf, is_tensor, nullptr},
};

}  // namespace

std::span<const Composite> tensor_rows() { return kRows; }
std::span<const Special> tensor_specials() { return kSpecials; }

}  // namespace lutra
