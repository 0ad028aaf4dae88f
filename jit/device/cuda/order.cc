// The plan's launches, as they are put into a stream that is captured, in; edges of the CUDA graph out.
#include "jit/device/cuda/order.h"

#include <algorithm>
#include <tuple>

#include "jit/schedule/combine.h"
#include "ops/cuda/context.h"

namespace lutra {
namespace {

// Slots and what is lent are the arena's.
enum Kind : int64_t { kSlot, kLent, kBuffer, kStorage, kScratch };
int64_t key(Kind kind, int64_t n) { return kind << 32 | n; }
Kind kind_of(int64_t memory) { return Kind(memory >> 32); }
size_t number_of(int64_t memory) { return size_t(memory & 0xffffffff); }

constexpr unsigned kAdd = 0, kSet = 1;  // CU_STREAM_ADD_CAPTURE_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES

}  // namespace

LaunchOrder::LaunchOrder(const Plan& plan, const ArenaLayout& layout, const char* arena, cuda::StreamHandle stream,
                         cuda::ScratchPool& scratch)
    : plan_(plan), layout_(layout), arena_(arena), stream_(stream), scratch_(scratch) {
  scratch_.watch = this;
}
LaunchOrder::~LaunchOrder() { scratch_.watch = nullptr; }

int64_t LaunchOrder::memory_of(int32_t buffer) const {
  const Buffer& b = plan_.buffers[size_t(buffer)];
  if (b.kind == Buffer::kTemp) return key(kSlot, b.index);
  return b.storage >= 0 ? key(kStorage, b.storage) : key(kBuffer, buffer);
}

void LaunchOrder::begin(std::span<const int32_t> launches) {
  touched_.clear(), asked_.clear();
  before_.assign(done_.size(), false);
  for (int32_t i : launches) {
    for_buffers(plan_.launches[size_t(i)], [&](int32_t b, bool written) { touch(memory_of(b), written); });
  }
  std::vector<cuda::GraphNode> nodes;
  for (int32_t a : asked_) {
    const bool through_another = std::any_of(asked_.begin(), asked_.end(),
                                             [&](int32_t b) { return a < b && done_[size_t(b)].before[size_t(a)]; });
    if (!through_another) nodes.insert(nodes.end(), done_[size_t(a)].leaves.begin(), done_[size_t(a)].leaves.end());
  }
  LUTRA_CUDA(set_capture_dependencies(stream_, nodes.data(), nodes.size(), kSet));
}

void LaunchOrder::touch(int64_t memory, bool written) {
  touched_.emplace_back(memory, written);
  const auto found = memories_.find(memory);
  if (found == memories_.end()) return take_over(memory);
  wait_for(found->second.writer);
  if (!written) return;
  for (int32_t r : found->second.readers) wait_for(r);
}

void LaunchOrder::wait_for(int32_t done) {
  if (done < 0 || std::count(asked_.begin(), asked_.end(), done)) return;
  asked_.push_back(done);
  before_[size_t(done)] = true;
  const std::vector<bool>& more = done_[size_t(done)].before;
  for (size_t i = 0; i < more.size(); i++) before_[i] = before_[i] || more[i];
}

void LaunchOrder::find_range(int64_t memory, Memory& m) const {
  const size_t n = number_of(memory);
  if (kind_of(memory) == kSlot) m.from = layout_.offsets[n], m.to = m.from + layout_.bytes[n];
  if (kind_of(memory) == kLent) std::tie(m.from, m.to) = lent_[n];
}

// The first who touches a piece of the arena waits for all who touched others that lay there.
void LaunchOrder::take_over(int64_t memory) {
  if (kind_of(memory) > kLent) return;
  Memory own;
  find_range(memory, own);
  for (const auto& [other, m] : memories_) {
    if (kind_of(other) > kLent || m.from >= own.to || own.from >= m.to) continue;
    wait_for(m.writer);
    for (int32_t r : m.readers) wait_for(r);
  }
}

// In the middle of a launch: what it puts into the stream from now on waits.
void LaunchOrder::taken(size_t block) {
  const int64_t memory = key(kScratch, int64_t(block));
  touched_.emplace_back(memory, true);
  const auto found = memories_.find(memory);
  const size_t asked = asked_.size();
  if (found != memories_.end() && !before_[size_t(found->second.writer)]) wait_for(found->second.writer);
  wait_in_the_middle(asked);
}

void LaunchOrder::taken_lent(const void* p, size_t nbytes) {
  const size_t from = size_t(static_cast<const char*>(p) - arena_);
  const int64_t memory = key(kLent, int64_t(lent_.size()));
  lent_.emplace_back(from, from + nbytes);
  touched_.emplace_back(memory, true);
  const size_t asked = asked_.size();
  take_over(memory);
  wait_in_the_middle(asked);
}

void LaunchOrder::wait_in_the_middle(size_t asked_before) {
  std::vector<cuda::GraphNode> nodes;
  for (size_t i = asked_before; i < asked_.size(); i++) {
    const std::vector<cuda::GraphNode>& leaves = done_[size_t(asked_[i])].leaves;
    nodes.insert(nodes.end(), leaves.begin(), leaves.end());
  }
  if (!nodes.empty()) LUTRA_CUDA(set_capture_dependencies(stream_, nodes.data(), nodes.size(), kAdd));
}

void LaunchOrder::end() {
  const int32_t self = int32_t(done_.size());
  done_.push_back({current(), before_});
  for (auto [memory, written] : touched_) {
    const auto [at, is_new] = memories_.try_emplace(memory);
    Memory& m = at->second;
    if (is_new) find_range(memory, m);
    if (written)
      m.writer = self, m.readers.clear();
    else if (m.writer != self && (m.readers.empty() || m.readers.back() != self))
      m.readers.push_back(self);
  }
}

std::vector<cuda::GraphNode> LaunchOrder::current() const {
  int status = 0;
  uint64_t id = 0;
  cuda::GraphHandle graph = nullptr;
  const cuda::GraphNode* nodes = nullptr;
  size_t count = 0;
  LUTRA_CUDA(capture_info(stream_, &status, &id, &graph, &nodes, &count));
  return {nodes, nodes + count};
}

}  // namespace lutra
