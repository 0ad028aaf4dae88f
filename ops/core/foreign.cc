// Tensors over foreign memory. See foreign.h.
#include "ops/core/foreign.h"

#include <mutex>
#include <unordered_map>

#include "ops/core/error.h"
#include "ops/core/extent.h"

namespace lutra {
namespace {

// The deleter of a storage over foreign memory. Its type marks the storage as foreign.
struct Foreign {
  std::function<void(void*)> deleter;
  void operator()(void* data) const {
    if (deleter) deleter(data);
  }
};

// How often each storage is lent. Never destroyed: borrowers may come back after the static destructors.
struct Loans {
  std::mutex mutex;
  std::unordered_map<const Storage*, int> counts;
};
Loans& loans() {
  static Loans* l = new Loans;
  return *l;
}

}  // namespace

Tensor tensor_over(void* data, const Sizes& sizes, const Sizes* strides, DType dtype, Device device,
                   std::function<void(void*)> deleter) {
  if (sizes.size() > kMaxDims) fail_dims(sizes.size());
  if (!strides) check_product(sizes);
  const Sizes steps = strides ? *strides : contiguous_strides(sizes);
  if (steps.size() != sizes.size()) {
    fail("sizes ", to_string(sizes), " and strides ", to_string(steps), " differ in length");
  }
  for (SymInt s : steps) {
    if (s.hint < 0) fail("a tensor cannot have negative stride ", s.hint, " (strides ", to_string(steps), ")");
  }
  if (!whole_bytes(dtype, sizes, steps, 0)) fail_packed("tensor", dtype, sizes);
  check_product(sizes);
  const size_t bytes = spanned_bytes(sizes, steps, dtype);
  const auto address = reinterpret_cast<uintptr_t>(data);
  const size_t alignment = is_complex(dtype) ? size_of(dtype) / 2 : size_of(dtype);
  if (!data && bytes > 0) fail("memory of ", bytes, " bytes is needed, got a null pointer");
  if (address % alignment != 0) fail("memory of ", name(dtype), " must be aligned to ", alignment, " bytes");
  if (address + bytes < address) fail("sizes ", to_string(sizes), " overflow the address space");
  check_device(device);
  Ref<TensorImpl> t = make_ref<TensorImpl>();
  t->sizes = sizes, t->strides = steps, t->dtype = dtype;
  Ref<Storage> s = make_ref<Storage>();
  s->deleter = Foreign{std::move(deleter)};  // the last step that may fail; without data it calls no deleter
  s->data = data, s->nbytes = bytes, s->device = device;
  count_storage(*s);
  t->storage = std::move(s);
  return Tensor(std::move(t));
}

bool is_foreign(const Storage& storage) { return storage.deleter.target<Foreign>() != nullptr; }

void lend(const Storage& storage) {
  std::lock_guard lock(loans().mutex);
  loans().counts[&storage]++;
}

void give_back(const Storage& storage) {
  std::lock_guard lock(loans().mutex);
  const auto found = loans().counts.find(&storage);
  if (--found->second == 0) loans().counts.erase(found);
}

void check_not_lent(const char* fn, const Storage& storage) {
  std::lock_guard lock(loans().mutex);
  if (!loans().counts.count(&storage)) return;
  fail(fn, ": the memory is shared (to_dlpack): it must stay as long as somebody holds it");
}

}  // namespace lutra
