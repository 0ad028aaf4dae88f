// The offsets of members come from the compiler. Those within containers, which hide their members, are found by
// inspecting objects.
#include "vm/guard/tensor_layout.h"

#include <cstddef>
#include <cstring>
#include <optional>

#include "ops/core/tensor.h"

namespace lutra {
namespace {

template <class Word, class T>
Word word_of(const T& object, size_t at) {
  Word word;
  std::memcpy(&word, static_cast<const char*>(static_cast<const void*>(&object)) + at, sizeof word);
  return word;
}

// Returns the offset of an address in the object; nothing unless it is there exactly once.
template <class T>
std::optional<int32_t> place_of_address(const T& object, const void* address) {
  std::optional<int32_t> place;
  for (size_t at = 0; at + sizeof address <= sizeof object; at += sizeof address) {
    if (word_of<const void*>(object, at) != address) continue;
    if (place) return std::nullopt;
    place = int32_t(at);
  }
  return place;
}

// Returns the offset of the elements' address in a list of sizes. Their number must follow it.
std::optional<int32_t> place_of_elements() {
  std::optional<int32_t> place;
  for (size_t rank : {size_t(3), kMaxDims}) {  // the first fits in the object itself; the second is allocated elsewhere
    const Sizes sizes(rank, SymInt(7));
    const auto found = place_of_address(sizes, sizes.begin());
    if (!found || size_t(*found) + 12 > sizeof sizes || (place && *place != *found)) return std::nullopt;
    if (word_of<uint32_t>(sizes, size_t(*found) + 8) != rank) return std::nullopt;
    place = found;
  }
  return place;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
std::optional<TensorLayout> look() {
  const auto elements = place_of_elements();
  std::vector<GradHook> hooks;
  hooks.reserve(2);
  hooks.emplace_back();
  const auto first = place_of_address(hooks, hooks.data()), last = place_of_address(hooks, hooks.data() + 1);
  if (!elements || !first || !last) return std::nullopt;
  static_assert(sizeof(DType) == 1 && sizeof(DeviceType) == 1 && sizeof(Device::index) == 1 && sizeof(bool) == 1);
  static_assert(sizeof(Ref<Storage>) == 8 && sizeof(Tensor) == 8);
  TensorLayout t;
  t.storage = offsetof(TensorImpl, storage), t.dtype = offsetof(TensorImpl, dtype);
  t.requires_grad = offsetof(TensorImpl, requires_grad) + WatchedFlag::offset(), t.view = offsetof(TensorImpl, view);
  t.autograd = offsetof(TensorImpl, autograd);
  t.sizes = int32_t(offsetof(TensorImpl, sizes)) + *elements;
  t.strides = int32_t(offsetof(TensorImpl, strides)) + *elements;
  t.element_bytes = sizeof(SymInt), t.hint = offsetof(SymInt, hint);
  t.device_type = offsetof(Storage, device) + offsetof(Device, type);
  t.device_index = offsetof(Storage, device) + offsetof(Device, index);
  t.freed = offsetof(Storage, freed), t.grad_fn = offsetof(AutogradMeta, grad_fn);
  t.first_hook = int32_t(offsetof(AutogradMeta, hooks)) + *first;
  t.last_hook = int32_t(offsetof(AutogradMeta, hooks)) + *last;
  return t;
}
#pragma GCC diagnostic pop

}  // namespace

const TensorLayout* tensor_layout() {
  static const std::optional<TensorLayout> layout = look();
  return layout ? &*layout : nullptr;
}

}  // namespace lutra
