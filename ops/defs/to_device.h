// Copies tensors from one device to another.
#pragma once
#include "ops/core/tensor.h"

namespace lutra {

// Returns a copy on the device, without history, of the same layout if that is dense. Returns t itself if it is on the
// device. Real tensors only.
Tensor copy_to(const Tensor& t, Device device);
// Returns the elements in memory that the host can read.
inline Tensor on_host(const Tensor& t) { return copy_to(t, Device{}); }
// Writes from's elements into `to`, of the same sizes, across any devices, without history.
void copy_without_history(const Tensor& to, const Tensor& from);
// Writes src into self, which is on another device, if that needs no conversion. Returns whether it did.
bool copy_bytes_into(const Tensor& self, const Tensor& src);

}  // namespace lutra
