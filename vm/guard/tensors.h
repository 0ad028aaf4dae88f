// The tensors that guards have loaded. Most of them are held by userdata on the Lua stack, where their registers are,
// for longer than they are looked at here: those are not counted, as that would cost more than all else that a call
// does with an input.
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
  // All elements are null from now on.
  void forget() {
    for (size_t i : counted_) all_[i] = Tensor();
    counted_.clear();
    if (!all_.empty()) std::memset(static_cast<void*>(all_.data()), 0, all_.size() * sizeof(Tensor));
  }
  // The userdata of t outlives what is done with element i, which is null.
  void borrow(size_t i, const Tensor& t) {
    static_assert(sizeof(Tensor) == sizeof(void*));
    std::memcpy(static_cast<void*>(all_.data() + i), &t, sizeof t);
  }
  void* first() { return all_.data(); }  // for machine code, which borrows
  // Element i is null; verify sees to that.
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
