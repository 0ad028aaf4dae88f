// DLPack's structs to tensors and back; see dlpack.h.
#include "ops/core/dlpack.h"

#include <memory>

#include "ops/core/error.h"
#include "ops/core/foreign.h"

namespace lutra {
namespace {

constexpr uint32_t kMajor = 1, kMinor = 1;

// DLPack's codes of element types and of devices.
enum Code : uint8_t { kInt, kUInt, kFloat, kBfloat = 4, kComplex, kBool, kFloat8E4M3FN = 10, kFloat8E5M2 = 12 };
enum : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };

const struct {
  DType dtype;
  Code code;
  uint8_t bits;
} kDTypes[] = {
    {DType::kBool, kBool, 8},
    {DType::kUInt8, kUInt, 8},
    {DType::kUInt16, kUInt, 16},
    {DType::kUInt32, kUInt, 32},
    {DType::kUInt64, kUInt, 64},
    {DType::kInt8, kInt, 8},
    {DType::kInt16, kInt, 16},
    {DType::kInt32, kInt, 32},
    {DType::kInt64, kInt, 64},
    {DType::kFloat16, kFloat, 16},
    {DType::kBFloat16, kBfloat, 16},
    {DType::kFloat32, kFloat, 32},
    {DType::kFloat64, kFloat, 64},
    {DType::kComplex64, kComplex, 64},
    {DType::kComplex128, kComplex, 128},
    {DType::kFloat8E4M3FN, kFloat8E4M3FN, 8},
    {DType::kFloat8E5M2, kFloat8E5M2, 8},
};

DType dtype_of(DLDataType type) {
  for (const auto& row : kDTypes) {
    if (row.code == type.code && row.bits == type.bits && type.lanes == 1) return row.dtype;
  }
  fail("there is no dtype for elements of code ", int(type.code), ", ", int(type.bits), " bits, ", type.lanes,
       " lanes");
}

DLDataType type_of(DType dtype) {
  for (const auto& row : kDTypes) {
    if (row.dtype == dtype) return {row.code, row.bits, 1};
  }
  fail("to_dlpack: DLPack has no ", name(dtype), " as Lutra lays it out; convert it by x:to(dtype)");
}

Device device_of(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost: return {};
    case kDLCUDA:
    case kDLCUDAManaged:
      if (device.device_id >= 0 && device.device_id < 100) return {DeviceType::kCUDA, int8_t(device.device_id)};
      fail("there is no GPU ", device.device_id);
    default: fail("memory of device type ", device.device_type, " cannot be used (1, CPU, and 2, CUDA, can)");
  }
}

// Waits until the device has done its work. Copying one byte to the host waits for that.
void wait(const void* data, Device device) {
  char byte;
  if (data && device != Device{}) copy_bytes(&byte, Device{}, data, device, 1);
}

Tensor over(const DLTensor& t, std::function<void(void*)> deleter) {
  if (t.ndim < 0) fail("a tensor of ", t.ndim, " dims");
  if (size_t(t.ndim) > kMaxDims) fail_dims(size_t(t.ndim));
  if (t.ndim > 0 && !t.shape) fail("the tensor has no sizes");
  const Device device = device_of(t.device);
  const DType dtype = dtype_of(t.dtype);
  Sizes sizes, strides;
  for (int32_t d = 0; d < t.ndim; d++) {
    sizes.push_back(t.shape[d]);
    if (t.strides) strides.push_back(t.strides[d]);
  }
  char* data = static_cast<char*>(t.data);
  if (data) data += t.byte_offset;
  if (device == Device{}) return tensor_over(data, sizes, t.strides ? &strides : nullptr, dtype, device, deleter);
  return tensor_over(data, sizes, t.strides ? &strides : nullptr, dtype, device, [device, deleter](void* p) {
    try {
      wait(p, device);
    } catch (const Error&) {  // the context is lost, so its work is over
    }
    deleter(p);
  });
}

template <class Managed>
std::function<void(void*)> deleter_of(Managed* managed) {
  return [managed](void*) {
    if (managed->deleter) managed->deleter(managed);
  };
}

// The object that a consumer holds: the tensor, and the arrays that DLPack's struct points to.
template <class Managed>
struct Loan {
  Tensor tensor;
  int64_t sizes[kMaxDims], strides[kMaxDims];
  Managed managed = {};
  explicit Loan(const Tensor& t) : tensor(t) { lend(*t->storage); }
  ~Loan() { give_back(*tensor->storage); }
};

template <class Managed>
Managed* lent(const Tensor& t) {
  if (t->requires_grad) fail("to_dlpack: a tensor that requires grad cannot be shared; share x:detach()");
  const DLDataType type = type_of(t->dtype);
  void* data = t->data();  // throws if the tensor has no data
  if (t->sizes.size() > kMaxDims) fail_dims(t->sizes.size());
  const Device device = t->device();
  if (t->numel().hint > 0) wait(data, device);
  auto loan = std::make_unique<Loan<Managed>>(t);
  for (size_t d = 0; d < t->sizes.size(); d++) {
    loan->sizes[d] = t->sizes[d].hint, loan->strides[d] = t->strides[d].hint;
  }
  Managed& m = loan->managed;
  const bool on_cpu = device.type == DeviceType::kCPU;
  m.dl_tensor = {
      data, {on_cpu ? kDLCPU : kDLCUDA, device.index}, int32_t(t->sizes.size()), type, loan->sizes, loan->strides, 0};
  m.manager_ctx = loan.get();
  m.deleter = [](Managed* self) { delete static_cast<Loan<Managed>*>(self->manager_ctx); };
  return &loan.release()->managed;
}

}  // namespace

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  if (!managed) fail("a null pointer, or a tensor that was taken before");
  if (managed->version.major != kMajor) {
    fail("version ", managed->version.major, ".", managed->version.minor, " of DLPack is not known (1.x is)");
  }
  if (managed->flags & kDLPackReadOnly) fail("the memory may only be read; ask for a copy where it is made");
  return over(managed->dl_tensor, deleter_of(managed));
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (!managed) fail("a null pointer, or a tensor that was taken before");
  return over(managed->dl_tensor, deleter_of(managed));
}

DLManagedTensorVersioned* to_dlpack(const Tensor& t) {
  DLManagedTensorVersioned* m = lent<DLManagedTensorVersioned>(t);
  m->version = {kMajor, kMinor};
  return m;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& t) { return lent<DLManagedTensor>(t); }

}  // namespace lutra
