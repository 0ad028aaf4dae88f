// Grows and shortens lists of dropped objects.
#include "ops/core/pooled.h"

#include <algorithm>

namespace lutra {

DroppedObjects::~DroppedObjects() {
  shorten(0);
  most_ = 0;
  // Objects that die later still read these members. Without this, compilers would drop the writes, because the
  // lifetime ends here.
  asm volatile("" : : "r"(this) : "memory");
}

void DroppedObjects::keep_few() {
  most_ = std::min(most_, kFew);
  shorten(most_);
}

void* DroppedObjects::make(size_t bytes) {
  if (most_ > 0 && most_ < kMost) most_++;
  return ::operator new(bytes);
}

// Frees a block that finds no place. A burst of drops may be longer than any list, so only every kPatience-th such
// block shortens the list.
void DroppedObjects::give_back(void* p) {
  ::operator delete(p);
  if (most_ <= kFew || ++given_back_ < kPatience) return;
  given_back_ = 0;
  shorten(--most_);
}

void DroppedObjects::shorten(size_t to) {
  for (; count_ > to; count_--) {
    Block* next = first_->next;
    ::operator delete(first_);
    first_ = next;
  }
}

}  // namespace lutra
