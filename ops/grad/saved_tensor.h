// A tensor as a GradNode saves it: with its elements if the vjp reads them, else with its layout and dtype only.
// Invariants:
// 1. The saved tensor shares the storage but not the autograd state of the original. So a node that saves its own
//    result makes no cycle.
// 2. A FakeTensor is saved by pointer: its graph owns it, and graphs know their values by identity.
#pragma once
#include "ops/defs/modes.h"
#include "ops/grad/tape.h"

namespace lutra {

// A scope that tapes the parts of an in-place op. Saving elements that the op is about to write saves a copy. Arguments
// that the caller passes beside args[0] are not copied, even if one is the same tensor: backward then reports that it
// was modified.
class OverwriteScope {
 public:
  explicit OverwriteScope(const Args& args);
  ~OverwriteScope();
  OverwriteScope(const OverwriteScope&) = delete;
  // Returns the copy to save instead of t, or null if t is not about to be written.
  static Tensor copy_of(const Tensor& t);

 private:
  const Storage* storage_;
  std::vector<const TensorImpl*> others_;
  Tensor of_, copy_;  // the last copied tensor and its copy, which several nodes may save
  OverwriteScope* above_;
};

// Watches eager calls and replaces the tensors that nodes save. It gives them when they are requested.
struct SavedLater : CallWatch {
  // Returns false if the node must save t itself. See SavedTensor::elements_of for `saver`.
  virtual bool keeps(const Tensor& t, uint32_t saver, size_t& number) = 0;
  virtual Tensor give(size_t number, const char* op) = 0;
  virtual void drop(size_t number) = 0;
  virtual bool is_ready(size_t number) const = 0;  // give returns it without running anything first
};

// Is told the FakeTensors that nodes save, in order.
struct FakeSaves : CallWatch {
  virtual void begin() = 0;  // forget the tensors that came before
  virtual void keeps(const Tensor& fake, uint32_t saver) = 0;
};

class SavedTensor {
 public:
  SavedTensor() = default;
  // Saves t without its elements.
  static SavedTensor shape_of(const Tensor& t);
  // saver: identifies the op and the number of the tensor that it saves. 0: Lua code or a node without an op saves it.
  static SavedTensor elements_of(const Tensor& t, uint32_t saver = 0);
  // Saves a copy, because t is about to be written.
  static SavedTensor copy_of(const Tensor& t, uint32_t saver);
  // Returns the tensor. Throws if the storage was written since. With history, ops on the result are differentiated
  // through that edge.
  Tensor unpack(const char* op, const Edge* history) const;
  void release();

  bool keeps_elements() const { return elements_; }
  bool is_fake() const { return fake_; }
  Tensor fake() const { return Tensor(Ref<TensorImpl>(fake_)); }
  bool is_ready() const { return !later_ || later_->is_ready(number_); }
  // Returns what is saved now, without checks. If elements are not saved, it has sizes and dtype only.
  const Tensor& kept() const { return tensor_; }
  bool is_later() const { return bool(later_); }
  SavedLater* later() const { return later_.get(); }
  size_t number() const { return number_; }  // the number within later()
  bool is_current() const { return !elements_ || (tensor_ && tensor_->storage->version == version_); }
  // Replaces the tensor by this FakeTensor, which another object owns.
  void become(const Tensor& fake);
  // Sets other sizes and strides, if no elements are saved.
  void lay(const Sizes& sizes, const Sizes& strides);

 private:
  static SavedTensor whole(const Tensor& t, uint32_t saver);

  Tensor tensor_;
  TensorImpl* fake_ = nullptr;
  Ref<SavedLater> later_;
  size_t number_ = 0;
  uint32_t version_ = 0;
  bool elements_ = false;
};

// The error about a tensor that op read or made, and that was written after it was saved.
struct ModifiedError : Error {
  ModifiedError(const Tensor& t, const char* op, uint32_t version, uint32_t expected);
  Tensor value;
  const char* op;
  uint32_t writes;  // the number of writes since it was saved
};
[[noreturn]] void fail_modified(const Tensor& t, const char* op, uint32_t version, uint32_t expected);

// Returns the leaf of an AccumulateGrad node; null for other nodes.
Tensor leaf_of(const GradNode* node);

}  // namespace lutra
