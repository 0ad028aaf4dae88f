// The tensors that guards have loaded. Most are held by userdata on the Lua stack, in the registers' slots, for longer
// than they are used here. These are borrowed without a reference count, because counting would cost more than the rest
// of a call's work for an input.
#pragma once
#include <cstring>
#include <utility>
#include <vector>

#include "ops/core/tensor.h"

namespace lutra {

class GuardTensors {
 public:
  GuardTensors() = default;
  GuardTensors(GuardTensors&&) noexcept = default;
  GuardTensors& operator=(GuardTensors&& o) noexcept {
    std::swap(all_, o.all_), std::swap(counted_, o.counted_);
    return *this;
  }
  ~GuardTensors() { forget(); }

  void reset(size_t n) {
    forget();
    if (all_.size() != n) all_.resize(n);
  }
  // Sets all elements to null.
  void forget() {
    for (size_t i : counted_) all_[i] = Tensor();
    counted_.clear();
    if (!all_.empty()) std::memset(static_cast<void*>(all_.data()), 0, all_.size() * sizeof(Tensor));
  }
  // Sets element i, which is null, without counting the reference. The userdata of t must outlive its use.
  void borrow(size_t i, const Tensor& t) {
    static_assert(sizeof(Tensor) == sizeof(void*));
    std::memcpy(static_cast<void*>(all_.data() + i), &t, sizeof t);
  }
  void* first() { return all_.data(); }  // for machine code, which borrows tensors
  // Sets element i, which is null (verify checks that), and counts the reference.
  void hold(size_t i, Tensor t) {
    counted_.push_back(i);
    all_[i] = std::move(t);
  }
  size_t size() const { return all_.size(); }
  const Tensor& operator[](size_t i) const { return all_[i]; }
  operator const std::vector<Tensor>&() const { return all_; }  // NOLINT

 private:
  std::vector<Tensor> all_;
  std::vector<size_t> counted_;
};

}  // namespace lutra
