// Makes tensors over foreign memory, and records which of our storages others hold the address of.
#pragma once
#include <functional>

#include "ops/core/tensor.h"

namespace lutra {

// Makes a tensor over foreign memory. The deleter (may be empty) is called when no tensor needs the memory any more, on
// any thread. If `strides` is null, the tensor is contiguous. Throws Error(kUser) if sizes or strides are negative or
// overflow, or if `data` is null or not aligned to elements. It then never calls the deleter.
Tensor tensor_over(void* data, const Sizes& sizes, const Sizes* strides, DType dtype, Device device,
                   std::function<void(void*)> deleter);
bool is_foreign(const Storage& storage);

// Between lend and give_back a foreign owner relies on the storage's bytes.
void lend(const Storage& storage);
void give_back(const Storage& storage);
// Throws if the storage is lent, so its bytes must stay: "FN: the memory is shared ...".
void check_not_lent(const char* fn, const Storage& storage);

}  // namespace lutra
