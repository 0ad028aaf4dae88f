// The leaves among the inputs of runs: where their gradients go, and which memory they had.
//
// In: a run's inputs. Out: edges and aliases of the leaves that take a gradient. Runs on the same leaves share them: a
// module has hundreds of parameters, and most calls pass the same ones.
//
// Invariants:
// 1. A LeafInputs lives only as long as a node of the tape holds it, so it does not keep the parameters of a dead
//    module alive.
// 2. It serves a run only if each leaf has the same memory, history and place among the inputs as before.
// 3. The aliases that backwards read have memory while a run holds it; the other aliases never have. A finished run
//    (its loss is in a list) keeps only sizes: a leaf may take other memory at any time (x.data = y).
#pragma once
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/grad/tape.h"

namespace lutra {

class LeafInputs {
 public:
  // sources: the inputs that take a gradient. read: by input, true if backwards read its elements.
  LeafInputs(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources, const std::vector<bool>& read);
  bool empty() const { return leaves_.empty(); }
  bool has_twice() const { return has_twice_; }  // one leaf is two of the inputs
  bool fits(const std::vector<Tensor>& inputs);
  // A run that fits holds the leaves' memory. The last let_go() releases it.
  void hold();
  void let_go();
  // Returns an alias of the leaf at this input; null if the input is not a leaf.
  const Tensor& value(size_t input) const { return values_[input]; }
  const std::vector<size_t>& no_leaves() const { return no_leaves_; }  // the inputs without value()
  size_t place_of_other(size_t input) const {                          // position in no_leaves()
    return size_t(std::lower_bound(no_leaves_.begin(), no_leaves_.end(), input) - no_leaves_.begin());
  }
  // By source. Each run has its own edges for the sources that are not leaves (others()).
  const std::shared_ptr<const std::vector<Edge>>& edges() const { return edges_; }
  const std::vector<size_t>& others() const { return others_; }
  // The first leaf and its place: they distinguish most sets of leaves.
  const TensorImpl* first() const { return leaves_[0].leaf; }
  size_t first_place() const { return leaves_[0].place; }

 private:
  struct Leaf {
    size_t place;
    const TensorImpl* leaf;  // its edge holds it
    const GradNode* accumulator;
    uint32_t layout_version;
    bool read;          // true if backwards read it
    Ref<Storage> none;  // empty storage, in place of the leaf's memory
  };
  std::vector<Leaf> leaves_;
  uint64_t changes_;  // watched_changes before the last check of all leaves
  std::vector<Tensor> values_;
  std::vector<size_t> no_leaves_, others_;
  std::shared_ptr<const std::vector<Edge>> edges_;
  std::mutex mutex_;
  size_t holders_ = 0;
  bool has_twice_ = false;
};

struct LetGo {
  void operator()(LeafInputs* leaves) const { leaves->let_go(); }
};
// A run's hold on the leaves' memory.
using HeldMemory = std::unique_ptr<LeafInputs, LetGo>;

// Returns true if two of the edges that `which` lists lead to the same place.
bool meet(const std::vector<Edge>& edges, const std::vector<size_t>& which);
// Returns a tensor like t that has sizes but no memory.
Tensor without_memory(const Tensor& t);

// The leaves of the last runs, which may belong to several modules in turn.
class KnownLeafInputs {
 public:
  std::shared_ptr<LeafInputs> find(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources,
                                   const std::vector<bool>& read);

 private:
  static constexpr size_t kMost = 32;
  struct Known {
    const TensorImpl* first;  // may dangle
    size_t place;
    std::weak_ptr<LeafInputs> leaves;
  };
  std::shared_ptr<LeafInputs> known(const std::vector<Tensor>& inputs, size_t& slot);

  std::mutex mutex_;
  std::vector<Known> known_;
  size_t oldest_ = 0;
};

}  // namespace lutra
