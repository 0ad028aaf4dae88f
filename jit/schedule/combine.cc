// Moves each kernel back to the nearest group of kernels that it may join, past launches that it does not depend on.
#include "jit/schedule/combine.h"

#include "jit/schedule/compile_limits.h"
#include "ops/core/interrupt.h"

#include <algorithm>

namespace lutra {
namespace {

struct Touch {
  std::vector<int32_t> reads, writes;  // memory that it accesses: buffers, inputs by their storage
  bool alone = false, fails = false, writes_input = false;
  bool decides_size = false;  // its elements decide a size that later launches may depend on
};

bool intersect(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](int32_t m) { return std::count(b.begin(), b.end(), m) > 0; });
}

bool depends(const Touch& a, const Touch& b) {
  return intersect(a.writes, b.reads) || intersect(a.writes, b.writes) || intersect(a.reads, b.writes);
}

// A write to an input must come after launches that may fail.
bool keeps_order(const Touch& a, const Touch& b) {
  return depends(a, b) || b.decides_size || (a.fails && b.writes_input) || (b.fails && a.writes_input);
}

Touch touch_of(const Plan& plan, const Launch& l) {
  Touch t;
  for_buffers(l, [&](int32_t b, bool written) {
    const Buffer& buffer = plan.buffers[size_t(b)];
    const int32_t memory = buffer.storage >= 0 ? -1 - buffer.storage : b;
    (written ? t.writes : t.reads).push_back(memory);
    t.writes_input |= written && buffer.kind == Buffer::kInput;
  });
  const auto* k = std::get_if<KernelLaunch>(&l);
  t.alone = !k;
  t.decides_size = !k && info(std::get<ExternLaunch>(l).op).dynamic;
  t.fails = k ? !k->faults.empty() : t.decides_size || info(std::get<ExternLaunch>(l).op).has(kFails);
  return t;
}

struct Run {
  std::vector<size_t> launches;
  Touch touch;
  bool open;  // takes more kernels: its own cannot fail, and it has no library's launch
};

void add(Run& run, size_t launch, const Touch& t) {
  run.launches.push_back(launch);
  run.touch.reads.insert(run.touch.reads.end(), t.reads.begin(), t.reads.end());
  run.touch.writes.insert(run.touch.writes.end(), t.writes.begin(), t.writes.end());
  run.touch.decides_size |= t.decides_size, run.touch.fails |= t.fails, run.touch.writes_input |= t.writes_input;
}

}  // namespace

void combine_launches(Plan& plan) {
  std::vector<Run> runs;
  for (size_t i = 0; i < plan.launches.size(); i++) {
    check_stop();
    Touch t = touch_of(plan, plan.launches[i]);
    Run* joined = nullptr;
    const bool open = !t.fails && !t.alone;
    for (size_t back = 0; open && !joined && back < std::min(runs.size(), compile_limits::kFarthest); back++) {
      Run& run = runs[runs.size() - 1 - back];
      if (keeps_order(t, run.touch)) break;
      if (run.open && run.launches.size() < compile_limits::kBeside) joined = &run;
    }
    if (!joined) {
      runs.push_back({{}, {}, open});
      joined = &runs.back();
    }
    add(*joined, i, t);
  }
  std::vector<Launch> launches;
  for (const Run& run : runs) {
    for (size_t i : run.launches) {
      launches.push_back(std::move(plan.launches[i]));
      if (auto* k = std::get_if<KernelLaunch>(&launches.back())) k->beside = i != run.launches[0];
    }
  }
  plan.launches = std::move(launches);
}

}  // namespace lutra
