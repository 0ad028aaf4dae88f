// A tensor as a GradNode keeps it: its elements where the vjp reads them, else its layout and dtype only.
// Invariants:
// 1. What is kept shares the storage but not the autograd state of the original: a node that keeps its own result makes
//    no cycle.
// 2. A FakeTensor is kept by pointer: its graph owns it, and graphs know their values by identity.
#pragma once
#include "ops/defs/modes.h"
#include "ops/grad/tape.h"

namespace lutra {

// While the parts of an in-place op are put on the tape: what is saved of the elements it is about to write is a copy.
// What the caller passes beside args[0] is not copied, even if it is the same tensor: backward says that it was
// modified.
class OverwriteScope {
 public:
  explicit OverwriteScope(const Args& args);
  ~OverwriteScope();
  OverwriteScope(const OverwriteScope&) = delete;
  // The copy to be saved instead of t; null where t is not about to be written.
  static Tensor copy_of(const Tensor& t);

 private:
  const Storage* storage_;
  std::vector<const TensorImpl*> others_;
  Tensor of_, copy_;  // the last one, since several nodes may save it
  OverwriteScope* above_;
};

// In place of what is saved while eager calls are watched by it: gives them when they are asked for.
struct SavedLater : CallWatch {
  // False: the node keeps it itself. saver: SavedTensor::elements_of's.
  virtual bool keeps(const Tensor& t, uint32_t saver, size_t& number) = 0;
  virtual Tensor give(size_t number, const char* op) = 0;
  virtual void drop(size_t number) = 0;
  virtual bool is_ready(size_t number) const = 0;  // given without making it first
};

// Told of the FakeTensors that are kept, in order.
struct FakeSaves : CallWatch {
  virtual void begin() = 0;  // what came before is of no use
  virtual void keeps(const Tensor& fake, uint32_t saver) = 0;
};

class SavedTensor {
 public:
  SavedTensor() = default;
  // Without elements.
  static SavedTensor shape_of(const Tensor& t);
  // saver: what saves it, of which op which tensor; 0: Lua code or another node without an op.
  static SavedTensor elements_of(const Tensor& t, uint32_t saver = 0);
  // Of a copy, since t is about to be written.
  static SavedTensor copy_of(const Tensor& t, uint32_t saver);
  // Throws where the storage was written since. With history, what is done with it is differentiated on through edge.
  Tensor unpack(const char* op, const Edge* history) const;
  void release();

  bool keeps_elements() const { return elements_; }
  bool is_fake() const { return fake_; }
  Tensor fake() const { return Tensor(Ref<TensorImpl>(fake_)); }
  bool is_ready() const { return !later_ || later_->is_ready(number_); }
  // Of what is saved now, as unpack has it; without elements, sizes and dtype only.
  const Tensor& kept() const { return tensor_; }
  bool is_later() const { return bool(later_); }
  SavedLater* later() const { return later_.get(); }
  size_t number() const { return number_; }  // of later()
  bool is_current() const { return !elements_ || (tensor_ && tensor_->storage->version == version_); }
  // From now on it is this FakeTensor, which somebody else owns.
  void become(const Tensor& fake);
  // Other sizes and strides, where no elements are kept.
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

// Of a tensor that was read by op, or made by it, and is not at the version it was saved at.
struct ModifiedError : Error {
  ModifiedError(const Tensor& t, const char* op, uint32_t version, uint32_t expected);
  Tensor value;
  const char* op;
  uint32_t writes;  // since it was saved
};
[[noreturn]] void fail_modified(const Tensor& t, const char* op, uint32_t version, uint32_t expected);

// The leaf that an AccumulateGrad node belongs to; null for other nodes.
Tensor leaf_of(const GradNode* node);

}  // namespace lutra
