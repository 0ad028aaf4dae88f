// The tensor functions of lutra.h: tensors over memory of the host, DLPack, copies.
#include <array>
#include <lua.hpp>

#include "ops/core/dlpack.h"
#include "ops/core/foreign.h"
#include "ops/core/intern.h"
#include "ops/defs/to_device.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capi/state.h"

namespace lutra::capi {
namespace {

// The dtype names, indexed by LUTRA_BOOL and so on.
constexpr const char* kDTypes[] = {nullptr,       "bool",   "uint8",     "int8",      "int16",
                                   "int32",       "int64",  "float16",   "bfloat16",  "float32",
                                   "float64",     "uint16", "uint32",    "uint64",    "float8_e4m3fn",
                                   "float8_e5m2", "int4",   "complex64", "complex128"};
constexpr int kMaxDType = int(sizeof kDTypes / sizeof *kDTypes) - 1;
static_assert(kMaxDType == int(DType::kNone), "a dtype has no number in lutra.h");

DType dtype_of(int dtype) {
  if (dtype < 1 || dtype > kMaxDType) refuse("dtype ", dtype, " is none of LUTRA_BOOL to LUTRA_COMPLEX128");
  return dtype_from_name(kDTypes[dtype]);
}

Sizes read_sizes(int ndim, const int64_t* from, const char* what) {
  if (ndim < 0 || ndim > LUTRA_MAX_DIMS) {
    refuse("tensors have 0 to ", LUTRA_MAX_DIMS, " dimensions, got ", ndim);
  }
  if (ndim > 0 && !from) refuse(what, " must not be NULL");
  Sizes out;
  for (int d = 0; d < ndim; d++) {
    if (from[d] < 0) refuse(what, " must not be negative, got ", from[d]);
    out.push_back(from[d]);
  }
  return out;
}

// Calls make(). Turns its user errors into ArgumentError, since the caller passed the wrong arguments.
template <class F>
Tensor made(F&& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind != ErrorKind::kUser) throw;
    throw ArgumentError(error.what());
  }
}

// Returns the handle's tensor. Refuses NULL and a tensor whose memory was freed.
Tensor live(const lutra_Tensor* handle) {
  if (!handle) refuse("the tensor is NULL");
  if (handle->tensor->storage->freed) refuse("the tensor's memory was freed (x:free())");
  return handle->tensor;
}

Tensor host_side(const Tensor& t, void* host, size_t bytes) {
  const int64_t expected = bytes_of(t->dtype, t->numel().hint);
  if (int64_t(bytes) != expected || int64_t(bytes) < 0) {
    refuse("elements of ", describe(t), " take ", expected, " bytes, got room for ", bytes);
  }
  if (bytes > 0 && !host) refuse("memory of the host must not be NULL");
  if (!host) return make_tensor(t->sizes, t->dtype);
  return made([&] { return tensor_over(host, t->sizes, nullptr, t->dtype, Device{}, {}); });
}

template <class Managed>
int from_dlpack(lutra_State* S, Managed* managed, lutra_Tensor** out, const char* fn) {
  if (out) *out = nullptr;
  StateScope scope(S, fn);
  if (!scope.has(managed, "the struct") || !scope.has(out, "tensor")) return scope.code();
  return scope.run([&](lua_State*) {
    *out = new_handle_of([&] { return made([&] { return lutra::from_dlpack(managed); }); });
    return 0;
  });
}

template <class Managed>
int to_dlpack(const lutra_Tensor* tensor, Managed** out, Managed* (*lend)(const Tensor&), const char* fn) {
  if (out) *out = nullptr;
  return run_alone(fn, [&] {
    if (!out) refuse("the place of the result must not be NULL");
    const Tensor t = live(tensor);
    made([&] { return *out = lend(t), Tensor(); });
  });
}

}  // namespace
}  // namespace lutra::capi

using namespace lutra;
using namespace lutra::capi;

extern "C" const char* lutra_dtype_name(int dtype) {
  return dtype >= 1 && dtype <= kMaxDType ? kDTypes[dtype] : nullptr;
}

extern "C" int lutra_tensor_from_memory(lutra_State* S, void* data, int dtype, int ndim, const int64_t* sizes,
                                        const int64_t* strides, const char* device, lutra_Deleter deleter, void* arg,
                                        lutra_Tensor** tensor) {
  if (tensor) *tensor = nullptr;
  StateScope scope(S, "lutra_tensor_from_memory");
  if (!scope.has(tensor, "tensor")) return scope.code();
  return scope.run([&](lua_State*) {
    const Sizes size_list = read_sizes(ndim, sizes, "sizes");
    const Sizes stride_list = strides ? read_sizes(ndim, strides, "strides") : Sizes();
    const DType type = dtype_of(dtype);
    std::function<void(void*)> call_deleter;
    if (deleter) call_deleter = [deleter, arg](void* p) { deleter(p, arg); };
    *tensor = new_handle_of([&] {
      return made([&] {
        const Device at = device ? parse_device(device) : Device{};
        return tensor_over(data, size_list, strides ? &stride_list : nullptr, type, at, std::move(call_deleter));
      });
    });
    return 0;
  });
}

extern "C" int lutra_tensor_empty(lutra_State* S, int dtype, int ndim, const int64_t* sizes, const char* device,
                                  lutra_Tensor** tensor) {
  if (tensor) *tensor = nullptr;
  StateScope scope(S, "lutra_tensor_empty");
  if (!scope.has(tensor, "tensor")) return scope.code();
  return scope.run([&](lua_State*) {
    const Sizes size_list = read_sizes(ndim, sizes, "sizes");
    const DType type = dtype_of(dtype);
    *tensor = new_handle(made([&] {
      const Device at = device ? parse_device(device) : Device{};
      check_device(at);
      return make_tensor(size_list, type, at);
    }));
    return 0;
  });
}

extern "C" lutra_Tensor* lutra_tensor_retain(lutra_Tensor* tensor) {
  if (tensor) tensor->refs.fetch_add(1, std::memory_order_relaxed);
  return tensor;
}

extern "C" void lutra_tensor_free(lutra_Tensor* tensor) {
  if (tensor && tensor->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete tensor;
}

extern "C" int lutra_tensor_ndim(const lutra_Tensor* tensor) { return tensor ? int(tensor->tensor->dim()) : -1; }

namespace {

// Copies sizes or strides into the handle's array. It writes only elements that differ, since several threads may read
// the same handle.
const int64_t* shown(int64_t* to, const Sizes& from) {
  for (size_t d = 0; d < from.size() && d < LUTRA_MAX_DIMS; d++) {
    if (to[d] != from[d].hint) to[d] = from[d].hint;
  }
  return to;
}

}  // namespace

extern "C" const int64_t* lutra_tensor_sizes(lutra_Tensor* tensor) {
  return tensor ? shown(tensor->sizes, tensor->tensor->sizes) : nullptr;
}

extern "C" const int64_t* lutra_tensor_strides(lutra_Tensor* tensor) {
  return tensor ? shown(tensor->strides, tensor->tensor->strides) : nullptr;
}

extern "C" int64_t lutra_tensor_numel(const lutra_Tensor* tensor) { return tensor ? tensor->tensor->numel().hint : -1; }

extern "C" int lutra_tensor_dtype(const lutra_Tensor* tensor) {
  static const auto numbers = [] {
    std::array<int, size_t(DType::kNone)> out = {};
    for (int i = 1; i <= kMaxDType; i++) out[size_t(dtype_of(i))] = i;
    return out;
  }();
  return tensor ? numbers[size_t(tensor->tensor->dtype)] : -1;
}

extern "C" const char* lutra_tensor_device(lutra_Tensor* tensor) {
  if (!tensor) return nullptr;
  try {
    return intern(to_string(tensor->tensor->device()));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

extern "C" void* lutra_tensor_data(const lutra_Tensor* tensor) {
  void* data = nullptr;
  run_alone("lutra_tensor_data", [&] { data = live(tensor)->data(); });
  return data;
}

extern "C" int lutra_tensor_copy_to(lutra_Tensor* tensor, void* host, size_t bytes) {
  return run_alone("lutra_tensor_copy_to", [&] {
    const Tensor t = live(tensor);
    copy_without_history(host_side(t, host, bytes), on_host(t));
  });
}

extern "C" int lutra_tensor_copy_from(lutra_Tensor* tensor, const void* host, size_t bytes) {
  return run_alone("lutra_tensor_copy_from", [&] {
    const Tensor t = live(tensor);
    copy_without_history(t, host_side(t, const_cast<void*>(host), bytes));
  });
}

extern "C" int lutra_tensor_from_dlpack(lutra_State* S, DLManagedTensorVersioned* managed, lutra_Tensor** tensor) {
  return capi::from_dlpack(S, managed, tensor, "lutra_tensor_from_dlpack");
}

extern "C" int lutra_tensor_from_dlpack_unversioned(lutra_State* S, DLManagedTensor* managed, lutra_Tensor** tensor) {
  return capi::from_dlpack(S, managed, tensor, "lutra_tensor_from_dlpack_unversioned");
}

extern "C" int lutra_tensor_to_dlpack(lutra_Tensor* tensor, DLManagedTensorVersioned** managed) {
  return capi::to_dlpack(tensor, managed, lutra::to_dlpack, "lutra_tensor_to_dlpack");
}

extern "C" int lutra_tensor_to_dlpack_unversioned(lutra_Tensor* tensor, DLManagedTensor** managed) {
  return capi::to_dlpack(tensor, managed, to_dlpack_unversioned, "lutra_tensor_to_dlpack_unversioned");
}

extern "C" int lutra_push_tensor(lutra_State* S, lutra_Tensor* tensor) {
  StateScope scope(S, "lutra_push_tensor");
  if (!scope) return scope.code();
  return scope.run([&](lua_State* L) { return push_tensor(L, tensor ? tensor->tensor : Tensor()), 1; }, 1);
}

extern "C" int lutra_to_tensor(lutra_State* S, int index, lutra_Tensor** tensor) {
  if (tensor) *tensor = nullptr;
  StateScope scope(S, "lutra_to_tensor");
  if (!scope.has(tensor, "tensor")) return scope.code();
  lua_State* L = S->L;
  const int top = lua_gettop(L);
  const bool there = index > LUA_REGISTRYINDEX ? index != 0 && (index > 0 ? index : -index) <= top : false;
  const Tensor* t = there ? lutra::to_tensor(L, index) : nullptr;
  if (!t) {
    const char* got = there ? luaL_typename(L, index) : "no value";
    return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_to_tensor: no tensor is at index ", index, " but ", got);
  }
  return scope.run([&](lua_State*) { return *tensor = new_handle(*t), 0; });
}
