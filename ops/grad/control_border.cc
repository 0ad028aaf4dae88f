// Adds a node to the tape that decides which values of control flow get gradients.
#include "ops/grad/control_border.h"

#include <algorithm>

#include "ops/decompose/emit.h"
#include "ops/defs/control.h"
#include "ops/grad/saved_tensor.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;

// Edges: the reads, the values, the token. Results: the values, then this border's token.
struct BorderNode final : GradNode {
  bool fills = false;  // gradients of values are filled with zeros and have the values' layouts
  std::vector<SavedTensor> reads, values;
  std::vector<std::vector<size_t>> wanted_by;  // by result: the reads that get a gradient if it has one

  BorderNode() { joint = true; }
  const char* name() const override { return "control_border"; }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override {
    fail_internal("a joint node is asked jointly");
  }
  bool leads(uint32_t, const std::function<bool(const Edge&)>& wanted) override {
    return std::any_of(next.begin(), next.end(), wanted);
  }
  void release() override {}  // it has saved no elements

  static Tensor like(const SavedTensor& t) { return t.unpack("control_border", nullptr); }

  std::vector<bool> with_gradients(const Tensors& grads) const {
    std::vector<bool> out(reads.size());
    for (size_t k = 0; k < wanted_by.size(); k++) {
      if (!grads[k] && !fills) continue;
      for (size_t i : wanted_by[k]) out[i] = true;
    }
    return out;
  }
  Tensor of_read(const JointCall& call, size_t i) const {
    if (!next[i].node || !call.wanted(next[i])) return {};
    Tensor* const sum = call.so_far(next[i]);
    if (!sum || !*sum) return zeros_laid_as(like(reads[i]));
    return fills ? laid_as(std::exchange(*sum, Tensor()), like(reads[i])) : Tensor();
  }

  std::vector<Tensor> apply_joint(JointCall& call) override {
    Tensors grads = call.grads;
    grads.resize(values.size());
    for (size_t k = grads.size(); k-- > 0;) {
      const auto& points = call.points;
      if (grads[k] && std::count(points.begin(), points.end(), uint32_t(k))) {
        grads[k] = call.visit(uint32_t(k), grads[k]);
      }
    }
    const std::vector<bool> has = with_gradients(grads);
    Tensors out;
    for (size_t i = 0; i < reads.size(); i++) out.push_back(has[i] ? of_read(call, i) : Tensor());
    for (size_t k = 0; k < values.size(); k++) {
      const Tensor& g = grads[k];
      const bool filled = fills && next[reads.size() + k].node;
      out.push_back(!filled ? g : g ? laid_as(g, like(values[k])) : zeros_laid_as(like(values[k])));
    }
    if (out.size() < next.size()) out.push_back(full({0}, 0.0, DType::kFloat32, Device()));
    return out;
  }
};

Tensor same_elements(const Tensor& t) { return alias(t, t->sizes, t->strides, t->offset); }

}  // namespace

Tensors join_branches(const Tensors& results, const std::vector<Tensors>& others) {
  auto node = make_ref<BorderNode>();
  Tensors reads, edges;
  node->wanted_by.resize(results.size());
  for (size_t k = 0; k < results.size(); k++) {
    for (const Tensor& t : others[k]) {
      const auto known = std::find_if(reads.begin(), reads.end(), [&](const Tensor& r) { return r.same(t); });
      node->wanted_by[k].push_back(size_t(known - reads.begin()));
      if (known == reads.end()) reads.push_back(t), node->reads.push_back(SavedTensor::shape_of(t));
    }
    node->values.push_back(SavedTensor::shape_of(results[k]));
  }
  edges = reads;
  edges.insert(edges.end(), results.begin(), results.end());
  link(*node, edges);
  Tensors out = results;
  for (size_t k = 0; k < results.size(); k++) {
    if (others[k].empty()) continue;
    out[k] = same_elements(results[k]);
    set_history(out[k], Ref<GradNode>(node.get()), uint32_t(k));
  }
  return out;
}

LoopBorder loop_border(const Tensors& values, const std::vector<bool>& takes, const Tensors& reads,
                       const Tensor& token) {
  auto node = make_ref<BorderNode>();
  node->fills = true;
  Tensors edges = reads;
  std::vector<size_t> all;
  for (const Tensor& t : reads) all.push_back(node->reads.size()), node->reads.push_back(SavedTensor::shape_of(t));
  LoopBorder out{values, make_tensor({0}, DType::kFloat32)};
  for (size_t k = 0; k < values.size(); k++) {
    if (!takes[k]) continue;
    out.values[k] = same_elements(values[k]);
    set_history(out.values[k], Ref<GradNode>(node.get()), uint32_t(node->values.size()));
    edges.push_back(values[k]);
    node->values.push_back(SavedTensor::shape_of(values[k]));
    node->wanted_by.push_back(all);
  }
  set_history(out.token, Ref<GradNode>(node.get()), uint32_t(node->values.size()));
  if (token) edges.push_back(token);
  link(*node, edges);
  return out;
}

}  // namespace lutra
