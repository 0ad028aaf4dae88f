// Tensors from one device to another.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// A copy on the device, of the same layout where that is dense, without history; t itself where it is there already.
// Real tensors only.
Tensor copy_to(const Tensor& t, Device device);
// The elements where the host can read them.
inline Tensor on_host(const Tensor& t) { return copy_to(t, Device{}); }
// from's elements written into to, of the same sizes, on whatever devices; without history.
void copy_without_history(const Tensor& to, const Tensor& from);
// src written into self, which is on another device, where no conversion is needed. Whether it was.
bool copy_bytes_into(const Tensor& self, const Tensor& src);

}  // namespace lutra
