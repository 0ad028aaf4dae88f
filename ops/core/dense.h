// Objects of which calls look at one after the other, of thousands: they lie side by side, in memory of few pages. Each
// page that a processor has not met for long costs it as much as several lines do.
#pragma once
#include <cstddef>
#include <new>

namespace lutra {

// Aligned to a cache line. Any thread may ask; what is given back is used again and stays with the process.
void* take_dense(size_t bytes);
void give_back_dense(void* p, size_t bytes) noexcept;

// Base of a class whose objects are made by new, or of a base with a virtual destructor.
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
