// The tensors that a function of lt.autograd.Function saves for its gradient: arguments, results of its own node,
// others.
#pragma once
#include <string>
#include <vector>

#include "ops/grad/saved_tensor.h"
#include "ops/grad/tape.h"

namespace lutra {

class NodeSaves {
 public:
  // t may be a result of `node`, which keeps these.
  void save(const GradNode* node, const Tensor& t) {
    const bool mine = t->autograd && t->autograd->grad_fn.get() == node;
    own_.push_back(mine ? int(t->autograd->output_nr) : -1);
    origins_.push_back(mine ? Edge{} : gradient_edge(t));
    saved_.push_back(SavedTensor::elements_of(t));
  }
  // With their history where that of the gradient is recorded.
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
  std::vector<Edge> origins_;  // of each saved tensor; that of a result of the node has no node, or it would be a cycle
  std::vector<int> own_;       // which result of the node it is, or -1
};

}  // namespace lutra
