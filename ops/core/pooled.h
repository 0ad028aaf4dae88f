// Objects that are made and dropped by the thousand: their memory is kept in a list of each thread.
#pragma once
#include <cstddef>
#include <new>

namespace lutra {

// Memory of dropped objects of one kind, of one thread.
// Invariants:
// 1. It keeps at most `most`, which grows only as the thread makes objects that the list does not have: who drops what
//    others made keeps few, and for the rest what a burst of drops leaves, the next burst of new ones takes.
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
    // The next one has long left the cache.
    for (size_t i = 0; first_ && i < bytes; i += 64) __builtin_prefetch(reinterpret_cast<char*>(first_) + i, 1);
    return b;
  }
  void put(void* p) {
    if (count_ >= most_) return give_back(p);
    first_ = new (p) Block{first_};
    count_++;
  }
  void keep_few();  // the others go back
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
