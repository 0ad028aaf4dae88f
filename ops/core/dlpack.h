// Exchanges tensors with other libraries without a copy: DLPack's structs (laid out as in version 1.1) and conversions
// from and to tensors.
#pragma once
#include <cstdint>

#include "ops/core/tensor.h"

// At global scope, under DLPack's names, because lutra.h declares them there.
struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t byte_offset;
};

// The struct before DLPack version 1.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

namespace lutra {

enum : uint64_t { kDLPackReadOnly = 1, kDLPackCopied = 2 };

// Makes a tensor over DLPack's memory and calls the deleter when no tensor needs the memory any more. Throws
// Error(kUser) for dtypes, devices, versions and layouts that Lutra lacks, and for read-only memory. The caller then
// still owns `managed`. Work that other libraries gave a GPU must be done before the call.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

// Shares t with another library, which calls the deleter when it is done, on any thread. The call waits for pending
// work on t. The storage is lent until the deleter is called, so it cannot be freed or grow.
DLManagedTensorVersioned* to_dlpack(const Tensor& t);
DLManagedTensor* to_dlpack_unversioned(const Tensor& t);

}  // namespace lutra
