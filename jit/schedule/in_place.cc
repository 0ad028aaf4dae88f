// Finds scatters whose results are copied into inputs. They write these inputs themselves then, without the copies.
//
// Invariants of a chain of scatters. The chain begins at an input; only the next scatter reads each link; the value of
// the last one is copied into the input.
// 1. Memory: the chain's values have the input's memory and layout, and are not outputs. Other readers of the input
//    come before the chain writes, and are not inlined, so that they stay there. No link reads that memory for the
//    elements that it writes.
// 2. A run that fails is repeated from its start by the original bytecode. So a launch that may fail and comes before
//    the chain in the program comes before it in the plan. After it, a launch may fail or allocate memory only if the
//    chain writes the same values when it runs twice. That is: it only sets elements; each link is the program's own
//    write at that place (Node::written); the program has not read that memory before, in nodes that were dropped since
//    included. Guards may have read the number in an input of one element, so such an input does not count. The runner
//    does not treat such writes as visible results.
#include <algorithm>

#include "jit/schedule/compute_units.h"
#include "ops/core/interrupt.h"
#include "ops/defs/category.h"

namespace lutra {
namespace {

bool scatters(const ComputeUnit& u) {
  return u.low.kind == Lowered::kStrided || (u.low.kind == Lowered::kExtern && info(u.node->op).has(kScatters));
}

}  // namespace

bool ComputeUnits::same_layout(const Tensor& a, const Tensor& b) const {
  const bool alike = a->dtype == b->dtype && a->sizes.size() == b->sizes.size();
  for (size_t d = 0; alike && d < a->sizes.size(); d++) {
    if (!facts.equal(a->sizes[d], b->sizes[d]) || !facts.equal(a->strides[d], b->strides[d])) return false;
  }
  return alike && !a->sizes.empty();
}

// Returns the scatters from the copy to the input, the last one first. Empty if there is no such chain.
std::vector<int32_t> ComputeUnits::chain_into(int32_t copy, int32_t input) const {
  std::vector<int32_t> chain;
  const auto returned = [&](int32_t source) {
    return std::any_of(graph.outputs.begin(), graph.outputs.end(), [&](const Value& v) {
      return v.is<Tensor>() && v.tensor() && resolve(v.tensor()).id == source;
    });
  };
  const Tensor& target = value_of(input);
  Tensor at = units_[size_t(copy)].low.reads[1];
  for (int32_t reader = copy;;) {
    const ViewSource& s = resolve(at);
    if (s.view || (is_input(s.id) && s.id != input)) return {};
    if (s.id == input) return chain;
    const int32_t u = unit_of(s.id);
    const ComputeUnit& unit = units_[size_t(u)];
    if (!scatters(unit) || unit.inlined || !same_layout(unit.value, target) || returned(s.id)) return {};
    // Only the last link's value may have other readers.
    for (int32_t v = 0; reader != copy && v < size(); v++) {
      if (v != reader && std::count(units_[size_t(v)].reads.begin(), units_[size_t(v)].reads.end(), u)) return {};
    }
    chain.push_back(u);
    reader = u;
    at = unit.node->args[0].tensor();
  }
}

// Returns true if the chain writes the same values when the run is repeated. A link that fails must leave the input as
// it was: a library checks all operands before it writes, a kernel does not.
bool ComputeUnits::repeats(const std::vector<int32_t>& chain, int32_t input) const {
  const Tensor& target = value_of(input);
  const auto is_one = [](const SymInt& size) { return size.hint == 1; };
  if (std::all_of(target->sizes.begin(), target->sizes.end(), is_one)) return false;
  return std::all_of(chain.begin(), chain.end(), [&](int32_t u) {
    const ComputeUnit& link = units_[size_t(u)];
    return link.node->written == input && only_sets(link.node->op, link.node->args) &&
           (link.low.kind == Lowered::kExtern || !link.checks);
  });
}

// Returns true if the chain may write the input in place. early: the units that read the input before it.
bool ComputeUnits::may_write(const std::vector<int32_t>& chain, int32_t copy, int32_t input,
                             std::vector<int32_t>& early) const {
  const int32_t first = chain.back();
  bool fails_later = false;
  const auto is_written = [&](int32_t i) { return same_memory(i, input); };
  for (int32_t u : chain) {
    const ComputeUnit& link = units_[size_t(u)];
    ComputeUnit rest;
    for (size_t k = 1; k < link.low.reads.size(); k++) trace(link.low.reads[k], rest);
    const auto is_link = [&](int32_t v) { return std::count(chain.begin(), chain.end(), v) > 0; };
    if (std::any_of(rest.inputs.begin(), rest.inputs.end(), is_written) ||
        std::any_of(rest.reads.begin(), rest.reads.end(), is_link))
      return false;
  }
  for (int32_t v = 0; v < size(); v++) {
    const ComputeUnit& unit = units_[size_t(v)];
    if (v == copy || unit.inlined) continue;
    fails_later |= v > first && (unit.checks || unit.low.kind == Lowered::kExtern);
    if (v != first && std::any_of(unit.inputs.begin(), unit.inputs.end(), is_written)) {
      if (v > first) return false;
      early.push_back(v);
    }
  }
  const bool again = early.empty() && repeats(chain, input);
  return again || !fails_later;
}

void ComputeUnits::write_in_place() {
  if (!fuse_) return;
  bool any = false;
  for (int32_t c = size(); c-- > 0;) {
    check_stop();
    if (!units_[size_t(c)].is_copy()) continue;
    const ViewSource& target = resolve(units_[size_t(c)].value);
    const int32_t input = target.id;
    if (target.view || graph.inputs[size_t(input)].constant) continue;
    const std::vector<int32_t> chain = chain_into(c, input);
    std::vector<int32_t> early;
    if (chain.empty() || !may_write(chain, c, input, early)) continue;
    const bool again = early.empty() && repeats(chain, input);
    for (int32_t u : chain) {
      ComputeUnit& link = units_[size_t(u)];
      link.in_place = input, link.needs_memory = true, link.repeats = again;
    }
    for (int32_t u : early) units_[size_t(u)].stays = true;
    units_.erase(units_.begin() + c);  // only copies come after this place, so no unit's number changes
    any = true;
  }
  if (any) link();
}

}  // namespace lutra
