// A backward under way in; the next part of it that can be one graph out, with all that the graph would depend on.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/grad/checkpoint.h"
#include "ops/grad/engine.h"
#include "vm/bind/anchor.h"

namespace lutra {

// Where in a part's lists what a visitor meets begins.
struct PartPlace {
  size_t facts = 0, sizes = 0, numbers = 0, tensors = 0, calls = 0;
};

// Lua code that the part calls.
struct PartCall {
  const void* id;  // of what calls it: a hook's `live`, a node
  std::shared_ptr<const LuaCallee> callee;
  uint64_t key;                       // of the prototypes of its functions
  std::vector<int> tensors;           // that it is given: which of the part; -1: one that is made on the way
  std::vector<int> places;            // which arguments these are, counted from 0
  Ref<Checkpoint> repeats = nullptr;  // the call is that of a checkpoint, which has not been repeated
  // Of the tensors that such a checkpoint makes: which of tensors, and of what the checkpoint keeps.
  struct Later {
    size_t tensor;
    Ref<Checkpoint> checkpoint;
    size_t number;
  };
  std::vector<Later> later = {};
};

// What is known of calls.
struct CallBook {
  virtual ~CallBook() = default;
  virtual uint64_t key(const LuaCallee& callee) = 0;  // 0: it is no Lua function
  // Why calls of a key are no part of a graph; null: they may be.
  virtual const std::string* refused(uint64_t key) const = 0;
  // The tensors among its arguments: which these are, counted from 0.
  virtual std::vector<std::pair<int, Tensor>> tensors(const LuaCallee& callee) = 0;
};

// Invariant: of two parts with equal facts, sizes and numbers the engine does the same, op for op, if the guards of
// their calls hold.
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
  // Likewise of results that keep their gradient: by the node's place and their number there.
  std::map<std::pair<uint32_t, size_t>, int> retained;
  std::vector<PartCall> calls;              // in the order of the walk
  std::vector<bool> stops;                  // by place, of leaves: a hook of it is no part of the graph
  size_t own_tensors = 0, own_numbers = 0;  // behind them come those that calls read
  size_t under_way = 0;                     // tensors that are gradients under way
  size_t run = 0;                           // nodes
  uint64_t walk = 0;                        // its number
  uint64_t stop = 0;                        // the number of the node that it ends before; 0: of none
  std::string why;                          // it ends there
  std::string refused;                      // not empty: why it must run eagerly
  std::string repeated;                     // why a checkpoint was repeated for it; empty: none was

  static constexpr size_t kFixed = ~size_t{0};
  void drop_calls_values() {
    tensors.resize(own_tensors), tensor_sizes.resize(own_tensors), numbers.resize(own_numbers);
  }
};

BackwardPart walk_backward(Engine& engine, CallBook& book);
// The places that nodes have are those of the part.
bool is_walked_last(const BackwardPart& part);

}  // namespace lutra
