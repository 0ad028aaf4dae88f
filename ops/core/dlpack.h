// Tensors of other libraries in, ours out, without a copy: DLPack's structs (as its version 1.1 lays them out in
// memory) and what makes tensors of them.
#pragma once
#include <cstdint>

#include "ops/core/tensor.h"

// At global scope, under DLPack's names: what lutra.h declares.
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

// Before version 1.
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

// A tensor over its memory; once it is made, the deleter is called when no tensor needs the memory any more. Throws
// Error(kUser), and leaves what was given to the caller, for dtypes, devices, versions and layouts that Lutra lacks,
// and for memory that may only be read. Work that others gave a GPU must be done before.
Tensor from_dlpack(DLManagedTensorVersioned* managed);
Tensor from_dlpack(DLManagedTensor* managed);

// The tensor for another library, which calls the deleter when it is done, on any thread. Work on it is waited for.
// The storage is lent until then: it cannot be freed or grow.
DLManagedTensorVersioned* to_dlpack(const Tensor& t);
DLManagedTensor* to_dlpack_unversioned(const Tensor& t);

}  // namespace lutra
