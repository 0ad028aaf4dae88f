// A tensor: sizes and strides over a storage, with its autograd state. Real tensors have bytes. FakeTensors have only
// metadata and stand for a value of the graph that is being traced.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/core/dtype.h"
#include "ops/core/ref.h"
#include "ops/core/storage.h"
#include "ops/core/sym.h"
#include "ops/core/watch.h"

namespace lutra {

struct GradNode;  // ops/grad/tape.h
struct Node;      // jit/graph/graph.h
struct TensorImpl;
struct AutogradMeta;

// Marks the state of a tensor's elements, so that code which keeps something derived from a tensor (a cast, a copy) can
// see whether they may have changed. A write through any tensor of the storage raises the storage's version. A tensor
// that takes another layout or storage (x.data = y, x:set_(y)) raises its own `laid`: nothing was written, so what
// other tensors of either storage have saved stays valid.
struct ElementsMark {
  uint32_t layout_version = 0, version = 0;
  bool operator==(const ElementsMark&) const = default;
};

// A counted handle; null is None.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return bool(impl_); }
  TensorImpl* operator->() const { return impl_.get(); }
  TensorImpl* get() const { return impl_.get(); }
  bool same(const Tensor& o) const { return impl_ == o.impl_; }
  bool operator==(const Tensor& o) const { return impl_ == o.impl_; }  // identity

 private:
  Ref<TensorImpl> impl_;
};

// The owner of the function that a leaf's hook runs.
struct HookKeeper {
  virtual ~HookKeeper() = default;
  virtual void graph_leads_here(bool leads) = 0;  // the hook may run only while `leads` is true
  virtual void take_turn(bool /*begins*/) {}      // between the two calls the hook runs, even if it is removed
};

// A hook that is called with a gradient. A null result keeps the gradient. A post_accumulate hook is called with the
// leaf itself, after the sum is in .grad. A removed hook stays in its list with *live == false.
struct GradHook {
  std::function<Tensor(const Tensor&)> run;
  std::shared_ptr<HookKeeper> keeper = nullptr;
  std::shared_ptr<bool> live = std::make_shared<bool>(true);
  bool post_accumulate = false;
};

// The autograd state of a tensor.
// Invariants: grad_fn is set for non-leaves only; hooks run in order of registration.
struct AutogradMeta : RefCounted {
  ~AutogradMeta();
  Tensor grad;
  Ref<GradNode> grad_fn;
  uint32_t output_nr = 0;
  std::vector<GradHook> hooks;      // of a leaf; a non-leaf's hooks are its grad_fn's
  GradNode* accumulator = nullptr;  // a leaf's AccumulateGrad node while one lives
  bool has_hooks() const {
    for (const GradHook& h : hooks) {
      if (*h.live) return true;
    }
    return false;
  }
};

// How a view was made from its base; ops/defs/call.h has the steps.
// Invariant: `version` is the version of the storage that the view's grad_fn belongs to. After an in-place write to the
// storage, the grad_fn is made anew from the base's.
struct ViewHistory : RefCounted {
  virtual ~ViewHistory() = default;
  uint32_t version = 0;
};

struct TensorImpl : RefCounted, Pooled<TensorImpl> {
  ~TensorImpl();
  Ref<Storage> storage;
  Sizes sizes, strides;  // strides in elements
  SymInt offset;         // in elements
  DType dtype = DType::kFloat32;
  WatchedFlag requires_grad;
  bool hidden_base = false;     // a view of a tensor that compiled code does not return
  uint32_t layout_version = 0;  // how often its sizes, strides or memory were replaced: see note_new_layout
  Ref<AutogradMeta> autograd;
  Tensor base;            // the tensor that this is a differentiable view of; null if none
  Ref<ViewHistory> view;  // set together with base if grad mode was on
  // FakeTensors: the graph node that makes this value, and the index of the value among its results.
  Node* node = nullptr;
  int32_t result = 0;
  // The host's canonical object for this tensor (a Lua userdata, held weakly by the host), and the function that tells
  // the host that the tensor dies.
  void* host = nullptr;
  void (*host_drop)(void* host) = nullptr;

  int64_t dim() const { return int64_t(sizes.size()); }
  SymInt numel() const { return lutra::numel(sizes); }
  Device device() const { return storage->device; }
  bool is_view() const { return base || hidden_base; }
  bool is_fake() const { return storage->fake; }
  ElementsMark mark() const { return {layout_version, storage->version}; }
  // See watch.h: a change that its invariants name must be followed by changed().
  void watch() const { requires_grad.watch(), storage->watched.watch(); }
  void changed() const { requires_grad.changed(); }
  bool is_contiguous() const;  // may ask symbols
  void* data() const;          // first element; throws if freed or fake
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data());
  }
};

// The most dimensions of a tensor that a program sees. Within an op there may be twice as many.
inline constexpr size_t kMaxDims = 16;
[[noreturn]] void fail_dims(size_t dims);

// Makes an uninitialised tensor, contiguous unless strides are given. Throws Error(kMemory).
Tensor make_tensor(const Sizes& sizes, DType dtype, Device device = {});
Tensor make_tensor(const Sizes& sizes, const Sizes& strides, DType dtype, Device device = {});
Tensor make_fake(const Sizes& sizes, const Sizes& strides, DType dtype, Device device = {});
// Returns whether no byte of a packed dtype is split: the last dimension has an even size and stride 1, and the offset
// and the other strides are even. Returns true for every other dtype.
bool whole_bytes(DType dtype, const Sizes& sizes, const Sizes& strides, SymInt offset);
[[noreturn]] void fail_packed(const char* fn, DType dtype, const Sizes& sizes);
// Makes another tensor over the same storage, without autograd state.
Tensor alias(const Tensor& t, const Sizes& sizes, const Sizes& strides, SymInt offset);
// Formats a type as the IRs print it: f32[2, 3].
std::string describe(const Tensor& t);

}  // namespace lutra
