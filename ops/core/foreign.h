// Memory that others own, as tensors; and whether others hold the address of ours.
#pragma once
#include <functional>

#include "ops/core/tensor.h"

namespace lutra {

// Over memory of someone else, who is told by the deleter (may be empty) when no tensor needs it any more, on whatever
// thread that is. Strides null: contiguous. Throws Error(kUser), and then never calls the deleter, where sizes or
// strides are negative or overflow, where memory is null, or not aligned to elements.
Tensor tensor_over(void* data, const Sizes& sizes, const Sizes* strides, DType dtype, Device device,
                   std::function<void(void*)> deleter);
bool is_foreign(const Storage& storage);

// Others count on the storage's bytes, from lend to give_back.
void lend(const Storage& storage);
void give_back(const Storage& storage);
// Throws where the storage's bytes must stay: "FN: the memory is shared ...".
void check_not_lent(const char* fn, const Storage& storage);

}  // namespace lutra
