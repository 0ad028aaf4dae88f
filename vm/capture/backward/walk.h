// A backward under way in; the next part of it that can be one graph out, with all that the graph would depend on.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/grad/engine.h"

namespace lutra {

// Where in a part's lists what a visitor meets begins.
struct PartPlace {
  size_t facts = 0, sizes = 0, numbers = 0, tensors = 0, hooks = 0;
};

// A hook that the part runs: a Lua function.
struct PartHook {
  GradHook hook;
  const void* prototype;  // its identity, which no other prototype ever gets
};

// What is known of hooks.
struct HookBook {
  virtual ~HookBook() = default;
  virtual const void* prototype(const GradHook& hook) = 0;  // null: it is no Lua function
  // Why hooks of a prototype are no part of a graph; null: they may be.
  virtual const std::string* refused(const void* prototype) const = 0;
};

// Invariant: of two parts with equal facts, sizes and numbers the engine does the same, op for op, if the guards of
// their hooks hold.
struct BackwardPart {
  std::vector<uint64_t> facts;
  std::vector<int64_t> sizes;
  std::vector<double> numbers;
  // Gradients under way, then what nodes saved, whether elements or sizes only (is_fake), then .grad of leaves.
  std::vector<Tensor> tensors;
  std::vector<size_t> tensor_sizes;  // by tensor: where its sizes, then its strides begin; kFixed: they are facts
  std::vector<std::shared_ptr<const void>> objects;  // whose addresses are facts
  std::vector<GradNode*> nodes;                      // by place
  std::vector<PartPlace> begins;                     // by place, of nodes that run
  std::vector<int> grads;                            // by place, of leaves: which tensor its .grad is; -1: none
  std::vector<PartHook> hooks;                       // in the order of the walk
  std::vector<bool> stops;                           // by place, of leaves: a hook of it is no part of the graph
  size_t own_tensors = 0, own_numbers = 0;           // behind them come those that hooks read
  size_t under_way = 0;                              // tensors that are gradients under way
  size_t run = 0;                                    // nodes
  uint64_t stop = 0;                                 // the number of the node that it ends before; 0: of none
  std::string why;                                   // it ends there
  std::string refused;                               // not empty: why it must run eagerly

  static constexpr size_t kFixed = ~size_t{0};
  void drop_hooks_values() {
    tensors.resize(own_tensors), tensor_sizes.resize(own_tensors), numbers.resize(own_numbers);
  }
};

BackwardPart walk_backward(Engine& engine, HookBook& book);

}  // namespace lutra
