// Places the largest slot first. Each goes into the smallest gap between the slots that are in use at the same time, or
// after them.
#include "jit/runtime/arena.h"

#include <algorithm>
#include <numeric>

namespace lutra {
namespace {

// Measured on train steps: `spare` adds 24 MB to the 3,900 MB arena of GPT-2 124M, and 6 MB to that of a GPT with 0.8
// million parameters.
constexpr size_t kMaxSpared = size_t(64) << 20;

}  // namespace

void ArenaLayout::place(const std::vector<ArenaSlot>& slots, size_t align, int32_t spare) {
  const auto end_of = [&](size_t s) { return slots[s].last + (bytes[s] <= kMaxSpared ? spare : 0); };
  std::vector<size_t> order(slots.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  offsets.assign(slots.size(), 0);
  total = 0;
  std::vector<size_t> placed;  // by offset
  for (size_t s : order) {
    const size_t need = align_up(bytes[s], align);
    size_t end = 0, best = SIZE_MAX, slack = SIZE_MAX;  // end: the end of the slots before
    for (size_t p : placed) {
      if (slots[s].first > end_of(p) || slots[p].first > end_of(s)) continue;
      if (offsets[p] >= end + need && offsets[p] - end - need < slack) best = end, slack = offsets[p] - end - need;
      end = std::max(end, offsets[p] + align_up(bytes[p], align));
    }
    offsets[s] = best == SIZE_MAX ? end : best;
    total = std::max(total, offsets[s] + need);
    const auto after = [&](size_t offset, size_t p) { return offset < offsets[p]; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offsets[s], after), s);
  }
}

void ArenaLayout::find_gap(const std::vector<ArenaSlot>& slots, int32_t launch) {
  std::vector<std::pair<size_t, size_t>> used;
  for (size_t s = 0; s < slots.size(); s++) {
    if (slots[s].first <= launch && launch <= slots[s].last) used.emplace_back(offsets[s], offsets[s] + bytes[s]);
  }
  used.emplace_back(total, total);
  std::sort(used.begin(), used.end());
  if (gaps.size() <= size_t(launch)) gaps.resize(size_t(launch) + 1);
  ArenaGap& gap = gaps[size_t(launch)];
  gap = {};
  size_t end = 0;
  for (const auto& [from, to] : used) {
    if (from > end && from - end > gap.bytes) gap = {end, from - end};
    end = std::max(end, to);
  }
}

}  // namespace lutra
