// Runs a program for single tensors once on a batch of them. While a Batch is installed as a mode, FakeTensors stand
// for the elements of the batch. Each op is called on the whole batch, by its row's batching rule.
#pragma once
#include <unordered_map>

#include "ops/defs/call.h"

namespace lutra {

class Batch : public Mode {
 public:
  explicit Batch(SymInt size) : size_(size) {}
  // Returns the FakeTensor that stands for each slice of t along its first dimension, the batch.
  Tensor enter(const Tensor& t);
  // Returns the whole batch of t, with the batch dimension first. A tensor that does not depend on the batch is
  // expanded.
  Tensor leave(const Tensor& t);

  Results call(OpId op, Args& args) override;
  Tensor call_inplace(OpId op, Args& args) override;

 private:
  bool is_batched(const Tensor& t) const { return whole_.contains(t.get()); }
  Results call_whole(OpId op, const Args& args);
  // Returns args with the whole batch of each tensor. A tensor with fewer than `rank` dimensions beside the batch gets
  // dimensions of size 1 behind it.
  Args with_batch(const Args& args, size_t rank);

  struct Whole {
    Tensor element, batch;
  };
  SymInt size_;
  std::unordered_map<const TensorImpl*, Whole> whole_;
};

}  // namespace lutra
