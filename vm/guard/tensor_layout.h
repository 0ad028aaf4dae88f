// Where tensors have what guards ask for, in bytes, for machine code.
#pragma once
#include <cstdint>

namespace lutra {

struct TensorLayout {
  // Of a TensorImpl.
  int32_t storage, dtype, requires_grad, view, autograd;
  int32_t sizes, strides;  // where their elements' address is; behind it their number, of 4 bytes
  // Of an element, a Storage, an AutogradMeta.
  int32_t element_bytes, hint;
  int32_t device_type, device_index, freed;
  int32_t grad_fn, first_hook, last_hook;
};

// Null where containers are not laid out as machine code has to know: nothing but a look at one tells.
const TensorLayout* tensor_layout();

}  // namespace lutra
