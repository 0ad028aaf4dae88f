// Makes the edges and aliases of the leaves among a run's inputs.
#include "jit/autograd/leaf_inputs.h"

#include <algorithm>

namespace lutra {
namespace {

// Returns false for a view: its history is its base's, which may change.
bool is_plain_leaf(const TensorImpl& t) { return t.requires_grad && !t.view && (!t.autograd || !t.autograd->grad_fn); }

}  // namespace

LeafInputs::LeafInputs(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources,
                       const std::vector<bool>& read)
    : changes_(watched_changes.load(std::memory_order_relaxed)), values_(inputs.size()) {
  auto edges = std::make_shared<std::vector<Edge>>(sources.size());
  leaves_.reserve(sources.size());
  std::vector<size_t> of_leaves;
  for (size_t k = 0; k < sources.size(); k++) {
    const Tensor& t = inputs[sources[k]];
    t->watch();
    if (!is_plain_leaf(*t.get())) {
      others_.push_back(k);
      continue;
    }
    (*edges)[k] = gradient_edge(t);
    of_leaves.push_back(k);
    leaves_.push_back({sources[k], t.get(), (*edges)[k].node.get(), t->layout_version, read[sources[k]], {}});
    values_[sources[k]] = without_memory(t);
    leaves_.back().none = values_[sources[k]]->storage;
  }
  has_twice_ = meet(*edges, of_leaves);
  edges_ = std::move(edges);
  for (size_t i = 0; i < inputs.size(); i++) {
    if (!values_[i]) no_leaves_.push_back(i);
  }
}

bool LeafInputs::fits(const std::vector<Tensor>& inputs) {
  const uint64_t now = watched_changes.load(std::memory_order_relaxed);
  for (const Leaf& l : leaves_) {
    if (inputs[l.place].get() != l.leaf) return false;
  }
  if (now == changes_) return true;
  for (const Leaf& l : leaves_) {
    const TensorImpl* t = l.leaf;
    if (t->layout_version != l.layout_version || !t->requires_grad || t->view) return false;
    const AutogradMeta* meta = t->autograd.get();
    if (!meta || meta->grad_fn || meta->accumulator != l.accumulator) return false;
  }
  changes_ = now;
  return true;
}

void LeafInputs::hold() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (holders_++) return;
  for (const Leaf& l : leaves_) {
    if (l.read) values_[l.place]->storage = l.leaf->storage;
  }
}

// An alias that somebody else holds keeps its memory.
void LeafInputs::let_go() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--holders_) return;
  for (Leaf& l : leaves_) {
    Tensor& t = values_[l.place];
    if (!l.read) continue;
    if (t->refs.load() > 1) t = without_memory(t), l.none = t->storage;
    t->storage = l.none;
  }
}

bool meet(const std::vector<Edge>& edges, const std::vector<size_t>& which) {
  std::vector<std::pair<const GradNode*, uint32_t>> all;
  for (size_t k : which) {
    if (edges[k].node) all.emplace_back(edges[k].node.get(), edges[k].result);
  }
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

Tensor without_memory(const Tensor& t) {
  Tensor rest = alias(t, t->sizes, t->strides, t->offset);
  rest->storage = make_ref<Storage>();
  rest->storage->device = t->device();
  return rest;
}

std::shared_ptr<LeafInputs> KnownLeafInputs::known(const std::vector<Tensor>& inputs, size_t& slot) {
  for (size_t i = 0; i < known_.size(); i++) {
    const Known& k = known_[i];
    if (k.first != inputs[k.place].get()) continue;
    slot = i;
    std::shared_ptr<LeafInputs> leaves = k.leaves.lock();
    return leaves && leaves->fits(inputs) ? leaves : nullptr;
  }
  return {};
}

std::shared_ptr<LeafInputs> KnownLeafInputs::find(const std::vector<Tensor>& inputs, const std::vector<size_t>& sources,
                                                  const std::vector<bool>& read) {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t slot = known_.size();
  if (auto leaves = known(inputs, slot)) return leaves;
  auto made = std::make_shared<LeafInputs>(inputs, sources, read);
  if (made->empty()) return made;
  if (slot == kMost) slot = oldest_++ % kMost;
  if (slot == known_.size()) known_.emplace_back();
  known_[slot] = {made->first(), made->first_place(), made};
  return made;
}

}  // namespace lutra
