// Turns the dependencies of the plan's launches into edges of a CUDA graph, while the launches are put into a captured
// stream.
#include "jit/device/cuda/order.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "ops/cuda/loaded_module.h"

namespace lutra {
namespace {

constexpr unsigned kAdd = 0, kSet = 1;  // CU_STREAM_ADD_CAPTURE_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES
constexpr size_t kArenas = 4;           // for one function
constexpr size_t kMaxLaunches = 1 << 14;

thread_local LaunchOrder* under_way = nullptr;

}  // namespace

LaunchOrder* LaunchOrder::current() { return under_way; }

LaunchOrder::LaunchOrder(const Plan& plan, const ArenaLayout& layout, const char* arena, cuda::StreamHandle stream,
                         cuda::ScratchPool& scratch)
    : plan_(plan), layout_(layout), arena_(arena), stream_(stream), scratch_(scratch) {
  scratch_.watch = this;
  under_way = this;
}
LaunchOrder::LaunchOrder(LaunchOrder& around)
    : plan_(around.plan_),
      layout_(around.layout_),
      arena_(around.arena_),
      stream_(around.stream_),
      scratch_(around.scratch_),
      outer_(&around) {
  scratch_.watch = this;
  under_way = this;
}
LaunchOrder::~LaunchOrder() {
  scratch_.watch = outer_;
  under_way = outer_;
}

void LaunchOrder::Set::add(size_t i) {
  if (words_.size() <= i / 64) words_.resize(i / 64 + 1);
  words_[i / 64] |= uint64_t(1) << i % 64;
}

void LaunchOrder::Set::add(const Set& other) {
  if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
  for (size_t i = 0; i < other.words_.size(); i++) words_[i] |= other.words_[i];
}

MemoryRange LaunchOrder::range_of(int32_t buffer) const {
  const Buffer& b = plan_.buffers[size_t(buffer)];
  if (b.kind == Buffer::kTemp) {
    const size_t from = layout_.offsets[size_t(b.index)];
    return MemoryRange::of(MemoryRange::kArena, 0, from, from + layout_.bytes[size_t(b.index)]);
  }
  return b.storage >= 0 ? MemoryRange::of(MemoryRange::kStorage, b.storage)
                        : MemoryRange::of(MemoryRange::kBuffer, buffer);
}

void LaunchOrder::begin() {
  if (done_.size() == kMaxLaunches) throw std::runtime_error(str("it has more than ", kMaxLaunches, " launches"));
  launch_ = {};
  wait_for(floor_);
  if (!around_.empty()) wait_for(around_.back().entry);
}

LaunchOrder::Pieces::iterator LaunchOrder::first_in(Pieces& pieces, size_t from) {
  auto at = pieces.upper_bound(from);
  if (at != pieces.begin() && std::prev(at)->second.to > from) --at;
  return at;
}

void LaunchOrder::touch(const MemoryRange& range, bool written) {
  if (range.from >= range.to) return;
  launch_.touched.emplace_back(range, written);
  Pieces& pieces = spaces_[range.space];
  for (auto at = first_in(pieces, range.from); at != pieces.end() && at->first < range.to; ++at) {
    wait_for(at->second.writer);
    if (!written) continue;
    for (int32_t r : at->second.readers) wait_for(r);
  }
}

void LaunchOrder::wait_for(int32_t done) {
  if (done < 0 || std::count(launch_.dependencies.begin(), launch_.dependencies.end(), done)) return;
  launch_.dependencies.push_back(done);
  launch_.before.add(size_t(done));
  launch_.before.add(done_[size_t(done)].before);
}

// Returns the nodes of these launches, without those that others of them wait for. Those others came later.
std::vector<cuda::GraphNode> LaunchOrder::nodes_of(std::span<const int32_t> launches) const {
  std::vector<int32_t> latest(launches.begin(), launches.end());
  std::sort(latest.rbegin(), latest.rend());
  Set through;
  std::vector<cuda::GraphNode> nodes;
  for (int32_t a : latest) {
    const Done& d = done_[size_t(a)];
    if (!through.has(size_t(a))) nodes.insert(nodes.end(), d.leaves.begin(), d.leaves.end());
    through.add(d.before);
  }
  return nodes;
}

void LaunchOrder::wait() {
  std::vector<cuda::GraphNode> nodes = nodes_of(launch_.dependencies);
  LUTRA_CUDA(set_capture_dependencies(stream_, nodes.data(), nodes.size(), kSet));
}

void LaunchOrder::begin_barrier() {
  begin();
  launch_.dependencies.clear();
  for (int32_t i = 0; i < int32_t(done_.size()); i++) {
    launch_.dependencies.push_back(i);
    launch_.before.add(size_t(i));
  }
  wait();
}

void LaunchOrder::end_barrier() {
  end();
  floor_ = int32_t(done_.size()) - 1;
}

// Adds a dependency in the middle of a launch: what the launch puts into the stream from now on waits.
void LaunchOrder::take(const MemoryRange& range) {
  const size_t before = launch_.dependencies.size();
  touch(range, true);
  std::vector<cuda::GraphNode> nodes = nodes_of(std::span(launch_.dependencies).subspan(before));
  if (!nodes.empty()) LUTRA_CUDA(set_capture_dependencies(stream_, nodes.data(), nodes.size(), kAdd));
}

void LaunchOrder::taken(size_t block) { take(MemoryRange::of(MemoryRange::kScratch, int64_t(block))); }

void LaunchOrder::taken_lent(const void* p, size_t nbytes) {
  const size_t from = size_t(static_cast<const char*>(p) - arena_);
  take(MemoryRange::of(MemoryRange::kArena, 0, from, from + nbytes));
}

void LaunchOrder::end() {
  const std::vector<std::pair<MemoryRange, bool>> touched = std::move(launch_.touched);
  done_.push_back({leaves(), std::move(launch_.before)});
  for (const auto& [range, written] : touched) mark(range, written);
}

void LaunchOrder::cut(Pieces& pieces, size_t at) {
  const auto found = first_in(pieces, at);
  if (found == pieces.end() || found->first >= at) return;
  pieces.emplace(at, found->second);
  found->second.to = at;
}

// Notes that the last launch in done_ accessed the range.
void LaunchOrder::mark(const MemoryRange& range, bool written) {
  const int32_t self = int32_t(done_.size()) - 1;
  Pieces& pieces = spaces_[range.space];
  cut(pieces, range.from), cut(pieces, range.to);
  auto at = pieces.lower_bound(range.from);
  const auto end = pieces.lower_bound(range.to);
  if (written) {
    pieces.erase(at, end);
    pieces[range.from] = {range.to, self, {}};
    return;
  }
  for (size_t from = range.from; from < range.to;) {
    if (at == end || at->first > from) at = pieces.emplace(from, Piece{at == end ? range.to : at->first, -1, {}}).first;
    Piece& p = at->second;
    if (p.writer != self && (p.readers.empty() || p.readers.back() != self)) p.readers.push_back(self);
    from = p.to, ++at;
  }
}

void LaunchOrder::enter() {
  launch_.entry = int32_t(done_.size());
  done_.push_back({leaves(), launch_.before});
  around_.push_back(std::move(launch_));
}

void LaunchOrder::leave() {
  launch_ = std::move(around_.back());
  around_.pop_back();
  std::vector<int32_t> inner;
  for (int32_t i = launch_.entry; i < int32_t(done_.size()); i++) {
    inner.push_back(i);
    launch_.before.add(size_t(i));
    launch_.before.add(done_[size_t(i)].before);
  }
  std::vector<cuda::GraphNode> nodes = nodes_of(inner);
  LUTRA_CUDA(set_capture_dependencies(stream_, nodes.data(), nodes.size(), kSet));
}

void* LaunchOrder::arena(const void* function, size_t bytes, Device device) {
  Arenas& a = arenas_[function];
  a.all.resize(kArenas);
  Ref<Storage>& s = a.all[a.calls++ % kArenas];
  if (!s || s->nbytes < bytes) s = allocate(bytes, device);
  return s->data;
}

namespace {

struct Captured {
  cuda::GraphHandle graph = nullptr;
  const cuda::GraphNode* nodes = nullptr;
  size_t count = 0;
  explicit Captured(cuda::StreamHandle stream) {
    int status = 0;
    uint64_t id = 0;
    LUTRA_CUDA(capture_info(stream, &status, &id, &graph, &nodes, &count));
  }
};

}  // namespace

std::vector<cuda::GraphNode> LaunchOrder::leaves() const {
  const Captured now(stream_);
  return {now.nodes, now.nodes + now.count};
}

cuda::GraphHandle LaunchOrder::graph() const { return Captured(stream_).graph; }

// Indirect waits stay correct: the launches in between end after those that they wait for.
size_t overlap_launches(cuda::GraphHandle graph, const cuda::Context& gpu) {
  constexpr cuda::GraphEdge kWhole, kEarly{1, 0, 1, {}};  // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC and its type of edge
  constexpr int64_t kSmall = 2;                           // blocks for each multiprocessor
  if (!cuda::has_dependent_launches()) return 0;
  size_t count = 0;
  LUTRA_CUDA(graph_edges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cuda::GraphNode> from(count), to(count);
  std::vector<cuda::GraphEdge> edges(count);
  LUTRA_CUDA(graph_edges(graph, from.data(), to.data(), edges.data(), &count));
  std::unordered_map<cuda::GraphNode, cuda::KernelNodeParams> kernels;  // without a function: not a kernel
  const auto kernel_of = [&](cuda::GraphNode node) -> const cuda::KernelNodeParams& {
    const auto [at, is_new] = kernels.try_emplace(node);
    int type = 0;
    if (is_new) LUTRA_CUDA(graph_node_type(node, &type));
    if (is_new && type == cuda::kKernelNode) LUTRA_CUDA(graph_kernel_params(node, &at->second));
    return at->second;
  };
  size_t early = 0;
  for (size_t i = 0; i < count; i++) {
    const cuda::KernelNodeParams& before = kernel_of(from[i]);
    const int64_t blocks = int64_t(before.grid[0]) * before.grid[1] * before.grid[2];
    if (!before.func || blocks > kSmall * gpu.multiprocessors || edges[i].type != kWhole.type) continue;
    if (cuda::waits_by_itself(kernel_of(to[i]).func)) from[early] = from[i], to[early] = to[i], early++;
  }
  if (early == 0) return 0;
  edges.assign(early, kWhole);
  LUTRA_CUDA(graph_remove_edges(graph, from.data(), to.data(), edges.data(), early));
  edges.assign(early, kEarly);
  LUTRA_CUDA(graph_add_edges(graph, from.data(), to.data(), edges.data(), early));
  return early;
}

}  // namespace lutra
