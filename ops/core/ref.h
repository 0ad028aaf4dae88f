// Intrusive reference counting: RefCounted objects, Ref<T> pointers.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace lutra {

struct RefCounted {
  std::atomic<uint32_t> refs{0};
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}           // NOLINT
  Ref(T* p) : p_(p) { retain(); }  // NOLINT
  Ref(const Ref& o) : p_(o.p_) { retain(); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  // The reference to an object that was just made: no other thread knows it, so no locked instruction is needed.
  static Ref first(T* p) {
    p->refs.store(p->refs.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    Ref r;
    r.p_ = p;
    return r;
  }
  // The holder of the only reference needs no locked instruction: nobody else can make another.
  ~Ref() {
    if (!p_) return;
    if (p_->refs.load(std::memory_order_acquire) == 1 || p_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete p_;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref& o) const { return p_ == o.p_; }

 private:
  void retain() {
    if (p_) p_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  T* p_ = nullptr;
};

template <class T, class... A>
Ref<T> make_ref(A&&... args) {
  return Ref<T>::first(new T(std::forward<A>(args)...));
}

}  // namespace lutra
