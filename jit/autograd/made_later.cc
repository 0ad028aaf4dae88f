// Makes what runs of a segment need at first use, each once: backwards, recomputed values, views, reaches. Several
// threads may ask at once.
#include <algorithm>

#include "jit/autograd/compiled_autograd.h"
#include "jit/autograd/gradient_layout.h"
#include "jit/passes/passes.h"

namespace lutra {
namespace {

// Returns true if sizes or numbers of a run enter the graph's computation.
bool reads_symbols(const Graph& graph) {
  const auto symbolic = [](const Value& v) {
    return (v.is<Scalar>() && v.as<Scalar>().expr) || (v.is<Sizes>() && is_symbolic(v.as<Sizes>()));
  };
  return std::any_of(
             graph.inputs.begin(), graph.inputs.end(),
             [](const GraphInput& in) { return is_symbolic(in.value->sizes) || is_symbolic(in.value->strides); }) ||
         std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const auto& n) { return std::any_of(n->args.begin(), n->args.end(), symbolic); });
}

}  // namespace

bool CompiledAutograd::wait(std::chrono::milliseconds most) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (repeated_ && !repeated_->wait(most)) return false;
  for (const auto& [key, backward] : backwards_) {
    for (const auto& piece : backward->pieces) {
      if (piece && !piece->wait(most)) return false;
    }
  }
  return true;
}

EventuallyCompiled& CompiledAutograd::repeated() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!repeated_) repeated_ = std::make_unique<EventuallyCompiled>(repeated_values(traced_), options_, guarded_);
  return *repeated_;
}

const Graph* CompiledAutograd::views() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!views_) views_ = view_values(traced_);
  return views_.get();
}

void CompiledAutograd::log_joint(Graph& graph) const {
  if (!options_.log || (options_.wanted && !options_.wanted("joint"))) return;
  graph.renumber();
  options_.log("joint", print(graph));
}

std::shared_ptr<const CompiledAutograd::Backward> CompiledAutograd::backward_for(const BackwardRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string key = request.key();
  auto it = backwards_.find(key);
  if (it != backwards_.end()) return it->second;
  const LateTime time(options_);
  // Each gradient with gaps may have other strides, as rows of changing width in a wide tensor do. After this many,
  // backwards for new ones are interpreted.
  constexpr size_t kMaxWithGaps = 32;
  const auto gaps = [](const Tensor& g) { return g && has_gaps(g); };
  const bool some = std::any_of(request.gradients.begin(), request.gradients.end(), gaps) ||
                    std::any_of(request.taken.begin(), request.taken.end(), gaps);
  const bool kept = !some || with_gaps_ < kMaxWithGaps, compiles = kept && !request.create_graph;
  auto made = std::make_shared<Backward>(Backward{trace_backward(traced_, request), {}});
  Backward& b = *made;
  for (BackwardPiece& piece : b.traced.pieces) {
    b.pieces.emplace_back();
    if (!piece.graph) continue;
    log_joint(*piece.graph);
    if (!compiles) continue;
    b.pieces.back() = std::make_unique<EventuallyCompiled>(std::move(piece.graph), options_, guarded_);
  }
  if (b.traced.error.empty() && kept) backwards_.emplace(key, made), with_gaps_ += some;
  return made;
}

bool CompiledAutograd::is_plain() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!plain_)
    plain_ = !reads_symbols(*traced_.graph) && unbacked_.empty() && !traced_.graph->rng_calls &&
             constants_of(*traced_.graph).empty();
  return *plain_;
}

std::shared_ptr<const CompiledAutograd::Backward> CompiledAutograd::traced_backward(const BackwardRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto made = std::make_shared<Backward>(Backward{trace_backward(traced_, request), {}});
  made->pieces.resize(made->traced.pieces.size());
  return made;
}

const ResultReach& CompiledAutograd::reach(uint32_t result) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = reaches_.find(result);
  if (it == reaches_.end()) it = reaches_.emplace(result, reach_of(traced_, result)).first;
  return it->second;
}

}  // namespace lutra
