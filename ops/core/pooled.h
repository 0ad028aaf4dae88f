// Objects that are made and dropped by the thousand: their memory is kept in a list of each thread.
#pragma once
#include <cstddef>
#include <new>

namespace lutra {

// Base of T: `struct T : Pooled<T>`. Invariant: T has no subclasses with members of their own.
template <class T>
struct Pooled {
  static void* operator new(size_t bytes) {
    Kept& k = kept();
    if (!k.first) return ::operator new(bytes);
    Block* b = k.first;
    k.first = b->next;
    k.count--;
    // The next one has long left the cache.
    for (size_t i = 0; k.first && i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<char*>(k.first) + i, 1);
    return b;
  }
  static void operator delete(void* p) {
    Kept& k = kept();
    if (k.count >= k.most) return ::operator delete(p);
    k.first = new (p) Block{k.first};
    k.count++;
  }

 private:
  struct Block {
    Block* next;
  };
  struct Kept {
    Block* first = nullptr;
    size_t count = 0, most = 4096;
    // Objects may die after their thread's list.
    ~Kept() {
      while (first) {
        Block* next = first->next;
        ::operator delete(first);
        first = next;
      }
      count = most = 0;
    }
  };
  static Kept& kept() {
    static thread_local Kept k;
    return k;
  }
};

}  // namespace lutra
