// Methods that read tensors and manage their memory: item, totable, pin_memory, free.
#include <lua.hpp>

#include "ops/core/foreign.h"
#include "ops/core/interrupt.h"
#include "ops/cuda/copy.h"
#include "ops/defs/element.h"
#include "vm/bind/foreign.h"
#include "vm/bind/format.h"
#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// -- memory

// Returns a copy in pinned memory, or the tensor itself if its memory is already pinned.
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

// -- reading

LuaResults item(Args& a) {
  const Tensor t = a[0].tensor();
  if (t->numel() != 1) fail("item: expects a tensor of one element, got shape ", to_string(t->sizes));
  need_data("item", t);
  return {Elements(t).at(0)};
}

LuaResults is_nonzero(Args& a) {
  const Tensor t = a[0].tensor();
  if (t->numel() != 1) fail("is_nonzero: expects a tensor of one element, got shape ", to_string(t->sizes));
  need_data("is_nonzero", t);
  const Scalar element = Elements(t).at(0);
  return {element.to_double() != 0 || (element.is_complex && element.im != 0)};
}

LuaResults free_tensor(Args& a) {
  const Tensor t = a[0].tensor();
  need_data("free", t);
  check_not_lent("free", *t->storage);
  t->storage->free();
  return_foreign(current_lua());
  return {};
}

LuaResults data_ptr(Args& a) {
  const Tensor t = a[0].tensor();
  need_data("data_ptr", t);
  check_not_sandboxed("data_ptr");
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
    if (i % 4096 == 0) check_stop();
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

const HostFunction kTensorRows[] = {
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
    {"_native.check_values", "Tensor input, str test, str message", 0,
     [](Args& a) -> LuaResults { return {op1(OpId::check_values, a)}; }},
    {"_native.embedding_bag_sum",
     "Tensor weight, Tensor ids, Tensor? offsets, Tensor? per_sample_weights, int padding_idx, bool "
     "scale_grad_by_freq, bool mean, bool include_last_offset",
     0, [](Args& a) -> LuaResults { return {call_op(OpId::embedding_bag_sum, a)[0]}; }},
    {"_native.embedding_bag_max",
     "Tensor weight, Tensor ids, Tensor? offsets, int padding_idx, bool include_last_offset", 0,
     [](Args& a) -> LuaResults { return {op1(OpId::embedding_bag_max, a)}; }},
    {"item", "Tensor input", kMethod | kNeedsData, item},
    {"is_nonzero", "Tensor input", kBoth | kNeedsData, is_nonzero},
    {"free", "Tensor input", kMethod | kHostEffect, free_tensor},
    {"data_ptr", "Tensor input", kMethod | kNeedsData, data_ptr},
};

const Special kTensorSpecials[] = {
    {"totable", kMethod | kNeedsData, nullptr, totable}, {"tolist", kMethod | kNeedsData, nullptr, totable},
    {"__tostring", kNeedsData, nullptr, to_string},      {"__concat", kNeedsData, nullptr, concat},
    {"is_tensor", kFunctionOf, is_tensor, nullptr},
};

}  // namespace

std::span<const HostFunction> tensor_rows() { return kTensorRows; }
std::span<const Special> tensor_specials() { return kTensorSpecials; }

}  // namespace lutra
