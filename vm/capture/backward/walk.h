// Finds the next part of a running backward that can be one graph, with everything that the graph would depend on.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/grad/checkpoint.h"
#include "ops/grad/engine.h"
#include "vm/bind/anchor.h"

namespace lutra {

// Positions in a part's lists where the data of a node begins.
struct PartPlace {
  size_t facts = 0, sizes = 0, numbers = 0, tensors = 0, calls = 0;
};

// Lua code that the part calls.
struct PartCall {
  const void* id;  // identity of the caller: a hook's `live`, a node
  std::shared_ptr<const LuaCallee> callee;
  uint64_t key;                       // key of the prototypes of its functions
  std::vector<int> tensors;           // tensors that it receives: indices in the part; -1: one that the part computes
  std::vector<int> places;            // argument indices of these tensors, counted from 0
  Ref<Checkpoint> repeats = nullptr;  // the checkpoint whose call this is, and which has not been repeated
  // A tensor that such a checkpoint computes: its index in `tensors`, and its number among the tensors that the
  // checkpoint keeps.
  struct Later {
    size_t tensor;
    Ref<Checkpoint> checkpoint;
    size_t number;
  };
  std::vector<Later> later = {};
};

// Knowledge about calls.
struct CallBook {
  virtual ~CallBook() = default;
  virtual uint64_t key(const LuaCallee& callee) = 0;  // 0 if it is not a Lua function
  // Returns why calls with the key cannot be part of a graph; null if they may be.
  virtual const std::string* refused(uint64_t key) const = 0;
  // Returns the tensors among its arguments, with their argument indices, counted from 0.
  virtual std::vector<std::pair<int, Tensor>> tensors(const LuaCallee& callee) = 0;
};

// Invariant: for two parts with equal facts, sizes and numbers the engine runs the same ops in the same order, if the
// guards of their calls hold.
struct BackwardPart {
  std::vector<uint64_t> facts;
  std::vector<int64_t> sizes;
  std::vector<double> numbers;
  // Pending gradients, then tensors that nodes saved (with elements, or with sizes only: is_fake), then .grad of
  // leaves.
  std::vector<Tensor> tensors;
  std::vector<size_t> tensor_sizes;  // by tensor: index of the first of its sizes, then strides; kFixed: they are facts
  std::vector<std::shared_ptr<const void>> objects;  // objects whose addresses are facts
  std::vector<GradNode*> nodes;                      // by place
  std::vector<PartPlace> begins;                     // by place, for nodes that run
  std::vector<int> grads;  // by place, for leaves: index of the tensor that is its .grad; -1: none
  // The same for results that retain their gradient, by the node's place and their number there.
  std::map<std::pair<uint32_t, size_t>, int> retained;
  std::vector<PartCall> calls;              // in the order of the walk
  std::vector<bool> stops;                  // by place, for leaves: one of its hooks cannot be part of the graph
  size_t own_tensors = 0, own_numbers = 0;  // values that calls read follow after these
  size_t under_way = 0;                     // number of tensors that are pending gradients
  size_t run = 0;                           // number of nodes
  uint64_t walk = 0;                        // number of the walk
  uint64_t stop = 0;                        // number of the node before which it ends; 0: none
  std::string why;                          // reason for its end
  std::string refused;                      // why it must run eagerly; empty if it need not
  std::string repeated;                     // why a checkpoint was repeated for it; empty if none was

  static constexpr size_t kFixed = ~size_t{0};
  void drop_calls_values() {
    tensors.resize(own_tensors), tensor_sizes.resize(own_tensors), numbers.resize(own_numbers);
  }
};

BackwardPart walk_backward(Engine& engine, CallBook& book);
// Returns whether this part was the last one walked, so that the nodes' places are those of the part.
bool is_walked_last(const BackwardPart& part);

}  // namespace lutra
