// The tensors that a function of lt.autograd.Function saves for its gradient: arguments, results of its own node, other
// tensors.
#pragma once
#include <string>
#include <vector>

#include "ops/grad/saved_tensor.h"
#include "ops/grad/tape.h"

namespace lutra {

class NodeSaves {
 public:
  // Saves t, which may be a result of `node`, the owner of this object.
  void save(const GradNode* node, const Tensor& t) {
    const bool mine = t->autograd && t->autograd->grad_fn.get() == node;
    own_.push_back(mine ? int(t->autograd->output_nr) : -1);
    origins_.push_back(mine ? Edge{} : gradient_edge(t));
    saved_.push_back(SavedTensor::elements_of(t));
  }
  // Returns the saved tensors, with their history if create_graph is set.
  std::vector<Tensor> unpack(GradNode* node, const std::string& title, bool create_graph) const {
    std::vector<Tensor> out;
    for (size_t i = 0; i < saved_.size(); i++) {
      const Edge from = own_[i] < 0 ? origins_[i] : Edge{Ref<GradNode>(node), uint32_t(own_[i])};
      out.push_back(saved_[i].unpack(title.c_str(), create_graph ? &from : nullptr));
    }
    return out;
  }
  bool empty() const { return saved_.empty(); }
  std::vector<SavedTensor>& tensors() { return saved_; }
  void clear() { saved_.clear(), origins_.clear(), own_.clear(); }

 private:
  std::vector<SavedTensor> saved_;
  std::vector<Edge> origins_;  // by saved tensor; no node for a result of the node itself: it would be a cycle
  std::vector<int> own_;       // by saved tensor: its number among the node's results, or -1
};

}  // namespace lutra
