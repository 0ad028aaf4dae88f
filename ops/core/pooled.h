// Recycles the memory of objects that are made and dropped by the thousand, in a list of each thread.
#pragma once
#include <cstddef>
#include <new>

namespace lutra {

// The memory of one thread's dropped objects of one kind.
// Invariants:
// 1. It keeps at most `most_` blocks. `most_` grows only when the thread makes an object that the list has no block
//    for. A thread that drops what others made therefore keeps few. Otherwise the next burst of new objects takes what
//    a burst of drops left.
// 2. Objects may die after their thread's list, which then keeps none.
class DroppedObjects {
 public:
  DroppedObjects() = default;
  ~DroppedObjects();
  DroppedObjects(const DroppedObjects&) = delete;

  void* take(size_t bytes) {
    if (!first_) return make(bytes);
    Block* b = first_;
    first_ = b->next;
    count_--;
    // Prefetches the next block, which has long left the cache.
    for (size_t i = 0; first_ && i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<char*>(first_) + i, 1);
    return b;
  }
  void put(void* p) {
    if (count_ >= most_) return give_back(p);
    first_ = new (p) Block{first_};
    count_++;
  }
  void keep_few();  // frees the other blocks
  size_t count() const { return count_; }

 private:
  static constexpr size_t kFew = 64, kMost = 4096, kPatience = 8;
  struct Block {
    Block* next;
  };
  void* make(size_t bytes);
  void give_back(void* p);
  void shorten(size_t to);

  Block* first_ = nullptr;
  size_t count_ = 0, most_ = kFew, given_back_ = 0;
};

// Base of T: `struct T : Pooled<T>`. Invariant: T has no subclasses with members of their own.
template <class T>
struct Pooled {
  static void* operator new(size_t bytes) { return dropped().take(bytes); }
  static void operator delete(void* p) { dropped().put(p); }
  static void keep_few_dropped() { dropped().keep_few(); }

 private:
  static DroppedObjects& dropped() {
    static thread_local DroppedObjects d;
    return d;
  }
};

}  // namespace lutra
