// Resizes tensors. See resize.h.
#include "ops/core/resize.h"

#include <algorithm>
#include <cstring>

#include "ops/core/account.h"
#include "ops/core/error.h"
#include "ops/core/foreign.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

// Bytes between two checks for a stop.
constexpr size_t kLook = 4 << 20;

// Clears the bytes from `begin` on. On a device each copy doubles the cleared part.
void clear(const Storage& storage, size_t begin) {
  static const char zeros[1 << 16] = {};
  char* const to = static_cast<char*>(storage.data) + begin;
  const size_t size = storage.nbytes - std::min(begin, storage.nbytes);
  const bool on_host = storage.device.type == DeviceType::kCPU;
  for (size_t done = 0, n; done < size; done += n) {
    check_stop();
    n = std::min(on_host ? kLook : std::max(sizeof zeros, done), size - done);
    if (on_host) {
      std::memset(to + done, 0, n);
    } else {
      copy_bytes(to + done, storage.device, done ? to : zeros, done ? storage.device : Device{}, n);
    }
  }
}

// Copies all bytes of `from` to `to`.
void fill_from(const Storage& to, const Storage& from) {
  const size_t most = from.device.type == DeviceType::kCPU ? kLook : from.nbytes;
  for (size_t done = 0, n; done < from.nbytes; done += n) {
    if (done) check_stop();
    n = std::min(most, from.nbytes - done);
    copy_bytes(static_cast<char*>(to.data) + done, to.device, static_cast<char*>(from.data) + done, from.device, n);
  }
}

void grow(Storage& storage, int64_t elements, DType dtype) {
  if (is_foreign(storage)) fail("a tensor over memory that is not Lutra's cannot grow: clone it");
  check_not_lent("resize_", storage);
  const Tensor larger = make_tensor({elements}, dtype, storage.device);
  Storage& fresh = *larger->storage;
  fill_from(fresh, storage);
  if (installed_account && installed_account->cleared) clear(fresh, storage.nbytes);
  std::swap(storage.data, fresh.data);
  std::swap(storage.nbytes, fresh.nbytes);
  std::swap(storage.deleter, fresh.deleter);
  storage.watched.changed();
}

}  // namespace

int64_t extent(SymInt offset, const Sizes& sizes, const Sizes& strides) {
  int64_t last = offset.hint;
  bool empty = false;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d].hint < 0) fail("a tensor cannot have negative size ", sizes[d].hint);
    if (strides[d].hint < 0) fail("a tensor cannot have negative stride ", strides[d].hint);
    empty |= sizes[d].hint == 0;
  }
  if (empty) return 0;
  for (size_t d = 0; d < sizes.size(); d++) {
    int64_t step;
    if (__builtin_mul_overflow(sizes[d].hint - 1, strides[d].hint, &step) ||
        __builtin_add_overflow(last, step, &last)) {
      fail("sizes ", to_string(sizes), " overflow the address space");
    }
  }
  return last + 1;
}

void reserve(const Tensor& t, SymInt offset, const Sizes& sizes, const Sizes& strides) {
  t->data();  // throws if the tensor has no data
  const int64_t elements = extent(offset, sizes, strides);
  if (!whole_bytes(t->dtype, sizes, strides, offset)) fail_packed("resize_", t->dtype, sizes);
  const auto held = int64_t(t->storage->nbytes / size_of(t->dtype)) * (is_packed(t->dtype) ? 2 : 1);
  if (elements > held) grow(*t->storage, elements, t->dtype);
}

void resize(const Tensor& t, const Sizes& sizes, const Sizes& strides) {
  reserve(t, t->offset, sizes, strides);
  t->sizes = sizes;
  t->strides = strides;
}

}  // namespace lutra
