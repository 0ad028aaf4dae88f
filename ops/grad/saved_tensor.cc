// Tensors in, what a GradNode keeps of them out.
#include "ops/grad/saved_tensor.h"

namespace lutra {

SavedTensor SavedTensor::shape_of(const Tensor& t) {
  // One storage for all: such a tensor has no identity that anybody asks for.
  static const Ref<Storage> cpu = fake_storage({});
  SavedTensor s;
  s.tensor_ = Tensor(make_ref<TensorImpl>());
  s.tensor_->storage = t->device() == Device{} ? cpu : fake_storage(t->device());
  s.tensor_->sizes = t->sizes;
  s.tensor_->strides = t->strides;
  s.tensor_->offset = t->offset;
  s.tensor_->dtype = t->dtype;
  s.tensor_->requires_grad = t->requires_grad;
  return s;
}

SavedTensor SavedTensor::elements_of(const Tensor& t) {
  SavedTensor s;
  s.elements_ = true;
  s.version_ = t->storage->version;
  if (t->is_fake()) {
    s.fake_ = t.get();
    return s;
  }
  s.tensor_ = alias(t, t->sizes, t->strides, t->offset);
  s.tensor_->requires_grad = t->requires_grad;
  return s;
}

Tensor SavedTensor::unpack(const char* op, const Edge* history) const {
  Tensor t = fake_ ? Tensor(Ref<TensorImpl>(fake_)) : tensor_;
  if (!elements_) return t;
  if (t->storage->version != version_) {
    fail("backward: one of the variables needed for gradient computation has been modified by an inplace operation: ",
         describe(t), ", an input or result of ", op, ", is at version ", t->storage->version, ", expected version ",
         version_);
  }
  if (fake_ || !history || !history->node) return t;
  if (Tensor leaf = leaf_of(history->node.get())) return leaf;
  Tensor again = alias(t, t->sizes, t->strides, t->offset);
  set_history(again, history->node, history->result);
  return again;
}

}  // namespace lutra
