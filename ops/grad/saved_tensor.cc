// Saves tensors for GradNodes.
#include "ops/grad/saved_tensor.h"

#include <algorithm>

#include "ops/defs/each_tensor.h"

namespace lutra {
namespace {
thread_local OverwriteScope* overwriting = nullptr;

Tensor copy_with_history(const Tensor& t) {
  const GradModeScope off(false);
  Tensor copy = op1(OpId::clone, {t, std::string("preserve_format")});
  if (!t->requires_grad) return copy;
  const Edge edge = gradient_edge(t);
  set_history(copy, edge.node, edge.result);
  return copy;
}

}  // namespace

OverwriteScope::OverwriteScope(const Args& args)
    : storage_(args[0].as<Tensor>()->storage.get()), above_(std::exchange(overwriting, this)) {
  each_argument_tensor(args, [&](size_t i, const Tensor& t) {
    if (i > 0) others_.push_back(t.get());
  });
}
OverwriteScope::~OverwriteScope() { overwriting = above_; }

Tensor OverwriteScope::copy_of(const Tensor& t) {
  OverwriteScope* s = overwriting;
  if (!s || t->storage.get() != s->storage_) return {};
  if (std::count(s->others_.begin(), s->others_.end(), t.get())) return {};
  if (!t.same(s->of_)) s->of_ = t, s->copy_ = copy_with_history(t);
  return s->copy_;
}

SavedTensor SavedTensor::shape_of(const Tensor& t) {
  // All of these share one storage, because nobody asks for their identity.
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

SavedTensor SavedTensor::copy_of(const Tensor& t, uint32_t saver) { return whole(copy_with_history(t), saver); }

SavedTensor SavedTensor::elements_of(const Tensor& t, uint32_t saver) {
  const Tensor copy = OverwriteScope::copy_of(t);
  return whole(copy ? copy : t, saver);
}

SavedTensor SavedTensor::whole(const Tensor& t, uint32_t saver) {
  SavedTensor s;
  s.elements_ = true;
  s.version_ = t->storage->version;
  if (t->is_fake()) {
    if (auto* saves = dynamic_cast<FakeSaves*>(modes().watch.get())) saves->keeps(t, saver);
    s.fake_ = t.get();
    return s;
  }
  if (auto* later = dynamic_cast<SavedLater*>(modes().watch.get())) {
    if (later->keeps(t, saver, s.number_)) {
      s.later_ = Ref<SavedLater>(later);
      return s;
    }
  }
  s.tensor_ = alias(t, t->sizes, t->strides, t->offset);
  s.tensor_->requires_grad = t->requires_grad;
  return s;
}

void SavedTensor::become(const Tensor& fake) {
  tensor_ = Tensor(), later_ = nullptr;
  fake_ = fake.get();
  version_ = fake->storage->version;
}

void SavedTensor::lay(const Sizes& sizes, const Sizes& strides) {
  const bool requires_grad = tensor_->requires_grad;
  tensor_ = alias(tensor_, sizes, strides, tensor_->offset);
  tensor_->requires_grad = requires_grad;
}

void SavedTensor::release() {
  tensor_ = Tensor(), fake_ = nullptr;
  if (later_) later_->drop(number_);
  later_ = nullptr;
}

ModifiedError::ModifiedError(const Tensor& t, const char* op, uint32_t version, uint32_t expected)
    : Error(ErrorKind::kUser,
            str("backward: one of the variables needed for gradient computation has been modified by an inplace "
                "operation: ",
                describe(t), ", an input or result of ", op, ", is at version ", version, ", expected version ",
                expected)),
      value(t),
      op(op),
      writes(version - expected) {}
void fail_modified(const Tensor& t, const char* op, uint32_t version, uint32_t expected) {
  throw ModifiedError(t, op, version, expected);
}

Tensor SavedTensor::unpack(const char* op, const Edge* history) const {
  Tensor t = later_ ? later_->give(number_, op) : fake_ ? Tensor(Ref<TensorImpl>(fake_)) : tensor_;
  if (!elements_) return t;
  if (!later_ && t->storage->version != version_) {
    if (fake_ && tape_watch()) tape_watch()->refused(t);
    fail_modified(t, op, t->storage->version, version_);
  }
  if (fake_ && tape_watch()) tape_watch()->read(t, op);
  if (fake_ || !history || !history->node) return t;
  if (Tensor leaf = leaf_of(history->node.get())) return leaf;
  Tensor again = alias(t, t->sizes, t->strides, t->offset);
  set_history(again, history->node, history->result);
  return again;
}

}  // namespace lutra
