// The leaves among the inputs of runs: where their gradients go, and the memory that they had.
//
// In: a run's inputs. Out: edges and aliases of the leaves that take a gradient. Runs of the same leaves share them: a
// module has hundreds of parameters, and mostly no call differs in one. Invariants:
// 1. What is shared lives as long as a node of the tape holds it: it keeps no parameter of a module that is gone.
// 2. It serves a run only if each leaf has the memory, the history and the place among the inputs that it had.
// 3. The aliases of what backwards read have memory while a run holds it, the others never. What runs leave behind (a
// loss in a list) keeps only sizes: a leaf
//    may take other memory at any time (x.data = y).
#pragma once
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/grad/tape.h"

namespace lutra {

class LeafInputs {
 public:
  // sources: which inputs take a gradient; read: by input, whether backwards read its elements.
  LeafInputs(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources, const std::vector<bool>& read);
  bool empty() const { return leaves_.empty(); }
  bool has_twice() const { return has_twice_; }  // a leaf is two of the inputs
  bool fits(const std::vector<Tensor>& inputs) const;
  // A run that fits takes hold of the leaves' memory, which goes when no run holds it.
  void hold();
  void let_go();
  // An alias of a leaf; null of another input.
  const Tensor& value(size_t input) const { return values_[input]; }
  const std::vector<size_t>& no_leaves() const { return no_leaves_; }  // the inputs that value does not have
  size_t place_of_other(size_t input) const {                          // among those
    return size_t(std::lower_bound(no_leaves_.begin(), no_leaves_.end(), input) - no_leaves_.begin());
  }
  // By source; of those that are no leaves (others) each run has edges of its own.
  const std::shared_ptr<const std::vector<Edge>>& edges() const { return edges_; }
  const std::vector<size_t>& others() const { return others_; }
  // What tells most sets of leaves apart: the first, and where it is.
  const TensorImpl* first() const { return leaves_[0].leaf; }
  size_t first_place() const { return leaves_[0].place; }

 private:
  struct Leaf {
    size_t place;
    const TensorImpl* leaf;  // its edge holds it
    const GradNode* accumulator;
    uint32_t laid;
    bool read;          // by backwards
    Ref<Storage> none;  // in place of its memory
  };
  std::vector<Leaf> leaves_;
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
// A run's hold of their memory.
using HeldMemory = std::unique_ptr<LeafInputs, LetGo>;

// Whether two of the edges, by number, lead to one place.
bool meet(const std::vector<Edge>& edges, const std::vector<size_t>& which);
// t with sizes only.
Tensor without_memory(const Tensor& t);

// Of the last runs, which may be of several modules in turn.
class KnownLeafInputs {
 public:
  std::shared_ptr<LeafInputs> find(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources,
                                   const std::vector<bool>& read);

 private:
  static constexpr size_t kMost = 32;
  struct Known {
    const TensorImpl* first;  // may be gone
    size_t place;
    std::weak_ptr<LeafInputs> leaves;
  };
  std::shared_ptr<LeafInputs> known(const std::vector<Tensor>& inputs, size_t& slot);

  std::mutex mutex_;
  std::vector<Known> known_;
  size_t oldest_ = 0;
};

}  // namespace lutra
