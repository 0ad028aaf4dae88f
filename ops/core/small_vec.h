// A vector of trivially copyable elements that holds up to N of them without the heap.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace lutra {

template <class T, unsigned N>
class SmallVec {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVec() = default;
  SmallVec(std::initializer_list<T> l) { assign(l.begin(), l.end()); }
  SmallVec(size_t n, T v) {
    for (size_t i = 0; i < n; i++) push_back(v);
  }
  template <class It>
  SmallVec(It b, It e) {
    assign(b, e);
  }
  SmallVec(const SmallVec& o) { assign(o.begin(), o.end()); }
  SmallVec(SmallVec&& o) noexcept { steal(o); }
  SmallVec& operator=(const SmallVec& o) {
    if (this != &o) clear(), assign(o.begin(), o.end());
    return *this;
  }
  SmallVec& operator=(SmallVec&& o) noexcept {
    if (this != &o) release(), steal(o);
    return *this;
  }
  ~SmallVec() { release(); }

  template <class It>
  void assign(It b, It e) {
    clear();
    for (; b != e; ++b) push_back(*b);
  }
  void push_back(T v) {
    if (size_ == cap_) grow();
    data_[size_++] = v;
  }
  void pop_back() { size_--; }
  void insert(size_t at, T v) {
    push_back(v);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(size_t at) {
    std::rotate(begin() + at, begin() + at + 1, end());
    size_--;
  }
  void resize(size_t n, T v = T()) {
    while (size_ > n) pop_back();
    while (size_ < n) push_back(v);
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

 private:
  void grow() {
    uint32_t cap = cap_ * 2;
    T* p = static_cast<T*>(::operator new(cap * sizeof(T)));
    std::memcpy(static_cast<void*>(p), data_, size_ * sizeof(T));
    if (data_ != local()) ::operator delete(data_);
    data_ = p;
    cap_ = cap;
  }
  void release() {
    if (data_ != local()) ::operator delete(data_);
    data_ = local();
    cap_ = N;
    size_ = 0;
  }
  void steal(SmallVec& o) {
    if (o.data_ != o.local()) {
      data_ = std::exchange(o.data_, o.local());
      cap_ = std::exchange(o.cap_, N);
    } else {
      std::memcpy(static_cast<void*>(local()), o.local(), o.size_ * sizeof(T));
    }
    size_ = std::exchange(o.size_, 0);
  }
  T* local() { return reinterpret_cast<T*>(buf_); }

  alignas(T) unsigned char buf_[N * sizeof(T)];
  T* data_ = local();
  uint32_t size_ = 0, cap_ = N;
};

}  // namespace lutra
