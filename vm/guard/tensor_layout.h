// The offsets in bytes, for machine code, of the members of tensors that guards read.
#pragma once
#include <cstdint>

namespace lutra {

struct TensorLayout {
  // Of a TensorImpl.
  int32_t storage, dtype, requires_grad, view, autograd;
  int32_t sizes, strides;  // where the address of their elements is; the 4-byte count follows
  // Of an element, a Storage, an AutogradMeta.
  int32_t element_bytes, hint;
  int32_t device_type, device_index, freed;
  int32_t grad_fn, first_hook, last_hook;
};

// Returns the layout; null if containers are not laid out as the machine code requires. This is found by inspecting
// one.
const TensorLayout* tensor_layout();

}  // namespace lutra
