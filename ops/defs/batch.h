// A program on single tensors, run once on a batch of them. While a Batch is installed as a mode, FakeTensors stand for
// the elements of the batch; each op is called on all of them, as its row's batching says.
#pragma once
#include <unordered_map>

#include "ops/defs/call.h"

namespace lutra {

class Batch : public Mode {
 public:
  explicit Batch(SymInt size) : size_(size) {}
  // What stands for each part of t along its first dimension, which is the batch.
  Tensor enter(const Tensor& t);
  // All that t stands for, the batch in front. What does not depend on the batch is repeated.
  Tensor leave(const Tensor& t);

  Results call(OpId op, Args& args) override;
  Tensor call_inplace(OpId op, Args& args) override;

 private:
  bool is_batched(const Tensor& t) const { return whole_.contains(t.get()); }
  Results call_whole(OpId op, const Args& args);
  // All tensors with the batch in front and, for `rank`, ones behind it up to that many dimensions of an element.
  Args with_batch(const Args& args, size_t rank);

  struct Whole {
    Tensor element, batch;
  };
  SymInt size_;
  std::unordered_map<const TensorImpl*, Whole> whole_;
};

}  // namespace lutra
