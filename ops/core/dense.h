// Memory for thousands of objects that calls look at one after the other. The objects lie side by side, so that they
// occupy few pages. A page that a processor has not touched for long costs as much as several cache lines do.
#pragma once
#include <cstddef>
#include <new>

namespace lutra {

// Returns memory aligned to a cache line. Any thread may call it. Memory that is given back is used again, and the
// process keeps it.
void* take_dense(size_t bytes);
void give_back_dense(void* p, size_t bytes) noexcept;

// Base of a class whose objects `new` makes. Delete them by their own type or by a base with a virtual destructor.
struct Dense {
  static void* operator new(size_t bytes) { return take_dense(bytes); }
  static void operator delete(void* p, size_t bytes) { give_back_dense(p, bytes); }
};

// For std::allocate_shared.
template <class T>
struct DenseAllocator {
  using value_type = T;
  DenseAllocator() = default;
  template <class U>
  explicit DenseAllocator(const DenseAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(take_dense(n * sizeof(T))); }
  void deallocate(T* p, size_t n) noexcept { give_back_dense(p, n * sizeof(T)); }
  bool operator==(const DenseAllocator&) const = default;
};

}  // namespace lutra
