// Makes tensors from sizes and storages.
#include "ops/core/tensor.h"

#include "ops/core/error.h"
#include "ops/core/extent.h"

namespace lutra {
namespace {

void check_dims(const Sizes& sizes) {
  if (sizes.size() > 2 * kMaxDims) fail_dims(sizes.size());
}

}  // namespace

size_t spanned_bytes(const Sizes& sizes, const Sizes& strides, DType dtype) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); d++) {
    LUTRA_CHECK(sizes[d].is_constant() && strides[d].is_constant(), "a real tensor of symbolic size");
    if (sizes[d].hint < 0)
      fail("a tensor cannot have negative size ", sizes[d].hint, " (sizes ", to_string(sizes), ")");
    if (sizes[d].hint == 0) return 0;
    int64_t extent;
    if (__builtin_mul_overflow(sizes[d].hint - 1, strides[d].hint, &extent) ||
        __builtin_add_overflow(last, extent, &last)) {
      fail("sizes ", to_string(sizes), " overflow the address space");
    }
  }
  int64_t bytes;
  if (__builtin_add_overflow(last, int64_t(1), &last) ||
      __builtin_mul_overflow(last, int64_t(size_of(dtype)), &bytes) || bytes < 0) {
    fail("sizes ", to_string(sizes), " overflow the address space");
  }
  return size_t(bytes_of(dtype, last));
}

void check_product(const Sizes& sizes) {
  int64_t n = 1;
  for (SymInt s : sizes) {
    if (s.hint == 0) return;
  }
  for (SymInt s : sizes) {
    if (__builtin_mul_overflow(n, s.hint, &n)) fail("sizes ", to_string(sizes), " overflow the address space");
  }
}

void fail_dims(size_t dims) { fail("tensors have at most ", kMaxDims, " dimensions, got ", dims); }

TensorImpl::~TensorImpl() {
  if (host && host_drop) host_drop(host);
}

bool TensorImpl::is_contiguous() const {
  SymInt expected = 1;
  bool contiguous = true;
  for (size_t d = sizes.size(); contiguous && d-- > 0;) {
    // A dimension of size one may have any stride. Compares expressions first: they are usually equal, and then nothing
    // is asked.
    if (!same_expr(strides[d], expected) && sizes[d] != 1 && strides[d] != expected) contiguous = false;
    expected = expected * sizes[d];
  }
  if (contiguous) return true;
  for (SymInt s : sizes) {
    if (s.is_constant() && s.hint == 0) return true;
  }
  return false;
}

void* TensorImpl::data() const {
  if (storage->freed) fail("the tensor's storage was freed (x:free())");
  LUTRA_CHECK(!storage->fake, "the data of a FakeTensor");
  return static_cast<char*>(storage->data) + bytes_of(dtype, offset.hint);
}

namespace {

Tensor tensor_in(Ref<Storage> storage, const Sizes& sizes, const Sizes& strides, DType dtype) {
  Ref<TensorImpl> t = make_ref<TensorImpl>();
  t->storage = std::move(storage);
  t->sizes = sizes;
  t->strides = strides;
  t->dtype = dtype;
  return Tensor(std::move(t));
}

}  // namespace

Tensor make_tensor(const Sizes& sizes, DType dtype, Device device) {
  check_product(sizes);
  return make_tensor(sizes, contiguous_strides(sizes), dtype, device);
}

Tensor make_tensor(const Sizes& sizes, const Sizes& strides, DType dtype, Device device) {
  check_dims(sizes);
  if (!whole_bytes(dtype, sizes, strides, 0)) fail_packed("tensor", dtype, sizes);
  return tensor_in(allocate(spanned_bytes(sizes, strides, dtype), device), sizes, strides, dtype);
}

Tensor make_fake(const Sizes& sizes, const Sizes& strides, DType dtype, Device device) {
  check_dims(sizes);
  return tensor_in(fake_storage(device), sizes, strides, dtype);
}

Tensor alias(const Tensor& t, const Sizes& sizes, const Sizes& strides, SymInt offset) {
  check_dims(sizes);
  Tensor r = tensor_in(t->storage, sizes, strides, t->dtype);
  r->offset = offset;
  return r;
}

bool whole_bytes(DType dtype, const Sizes& sizes, const Sizes& strides, SymInt offset) {
  if (!is_packed(dtype)) return true;
  const auto even = [](SymInt v) { return floor_div(v, 2) * 2 == v; };
  if (sizes.empty() || strides.back() != 1 || !even(sizes.back()) || !even(offset)) return false;
  for (size_t d = 0; d + 1 < sizes.size(); d++) {
    if (sizes[d] != 1 && !even(strides[d])) return false;
  }
  return true;
}

void fail_packed(const char* fn, DType dtype, const Sizes& sizes) {
  fail(fn, ": ", name(dtype), " lies two elements a byte, so the last dimension is whole and even: not so with sizes ",
       to_string(sizes), "; convert by x:to('int8')");
}

std::string describe(const Tensor& t) {
  if (!t) return "none";
  std::string s = str(info(t->dtype).ir_name, "[");
  for (size_t i = 0; i < t->sizes.size(); i++) s += (i ? ", " : "") + std::to_string(t->sizes[i].hint);
  return s + "]";
}

}  // namespace lutra
