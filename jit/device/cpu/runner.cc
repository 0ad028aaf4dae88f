// What a CPU is given in a run: a kernel's loop in chunks, those of kernels side by side as one job.
#include "jit/device/cpu/runner.h"

#include <algorithm>
#include <cstring>

#include "jit/background/background.h"
#include "jit/codegen/kernel.h"
#include "jit/loop/look.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/pool.h"

namespace lutra {
namespace {

constexpr int kMaxChunks = 4096;     // of a kernel
constexpr size_t kLocalWords = 256;  // of a block copied to a worker's stack
// Work of a chunk, in elements, from which on its loops look whether they shall end: some milliseconds.
constexpr int64_t kLooksFrom = 1 << 22;

// How a kernel's loop is cut.
struct Part : FilledStep {
  int chunks, first;  // first: among the chunks of the kernels beside it
  bool looks;         // code has looks
  const Code* code;
  int64_t align() const { return extent / chunks >= 1024 ? 64 : 1; }
};

void run_code(const Part& part, BlockHead* head) {
  part.code->run(head);
  if (part.looks) raise_left();
}

// A chunk runs on a copy of the block.
void run_part(const Part& part, int chunk, LaunchFault* fault) {
  const size_t words = size_t(part.step->words);
  alignas(64) uint64_t local[kLocalWords];
  std::unique_ptr<uint64_t[]> large;
  uint64_t* block = local;
  if (words > kLocalWords) large.reset(new uint64_t[words]), block = large.get();
  std::memcpy(block, part.head, words * 8);
  auto* head = reinterpret_cast<BlockHead*>(block);
  head->begin = chunk_begin(part.extent, part.chunks, chunk, part.align());
  head->end = chunk_begin(part.extent, part.chunks, chunk + 1, part.align());
  head->fault = fault;
  if (head->begin < head->end) run_code(part, head);
}

// Fresh pages are cleared at their first touch, and each of the threads that touch a large page at once clears one of
// its own: so one thread touches each, before a kernel does.
void touch_pages(void* memory, size_t bytes) {
  constexpr size_t kPage = 4096, kLargePage = size_t(2) << 20;
  struct Fresh {
    char* begin;
    size_t bytes;
  } fresh = {static_cast<char*>(memory), bytes};
  auto touch = [](void* arg, int i) {
    const auto& [begin, bytes] = *static_cast<Fresh*>(arg);
    const size_t end = std::min(bytes, (size_t(i) + 1) * kLargePage);
    for (size_t at = size_t(i) * kLargePage; at < end; at += kPage) static_cast<volatile char*>(begin)[at] = 0;
  };
  const int pages = int((bytes + kLargePage - 1) / kLargePage);
  const StoppableLoops loops(true);  // nothing of the segment has run yet
  if (!in_background()) return run_chunks(pages, touch, &fresh);
  for (int i = 0; i < pages; i++) touch(&fresh, i);  // the threads are the program's
}

class CpuRunner final : public Runner {
 public:
  explicit CpuRunner(const FlatPlan& flat) : Runner(flat) { run_plainly_where_small(); }

 private:
  void* arena(RunContext& c, size_t bytes) const override {
    const bool has = c.arena && c.arena->nbytes >= bytes;
    void* memory = Runner::arena(c, bytes);
    if (!has) touch_pages(memory, bytes);
    return memory;
  }
  // What takes long is ended where the program shall stop, even where it writes what can be seen.
  void launch_kernels(RunContext& c, const LaunchStep& first, const Generator& generator, bool& wrote) const override {
    const bool unseen = loops_are_stoppable;
    const StoppableLoops loops(unseen || is_long(c, first));
    try {
      first.beside ? launch_beside(c, first, generator) : launch_kernel(c, first, generator);
    } catch (const Error& e) {
      wrote = wrote || (first.writes && !unseen && e.kind == ErrorKind::kInterrupt);
      throw;
    }
  }
  static bool is_long(const RunContext& c, const LaunchStep& step) {
    const auto value = [&](int32_t slot) { return slot >= 0 ? c.values[size_t(slot)].i : 1; };
    return total_work(value(step.extent), value(step.work)) >= int64_t(1) << 25;
  }
  bool make_part(const RunContext& c, const LaunchStep& step, const Generator& generator, Part& part) const {
    if (!fill(c, step, generator, part)) return false;
    part.chunks = step.extent < 0 ? 1 : std::min(chunk_count(part.extent, part.work), kMaxChunks);
    part.looks = total_work((part.extent + part.chunks - 1) / part.chunks, part.work) >= kLooksFrom;
    part.code = part.looks ? &looking(step) : step.kernel->code.get();
    if (part.looks) part.head->look = look_entry();
    return true;
  }
  const Code& looking(const LaunchStep& step) const {
    const auto& launch = std::get<KernelLaunch>(plan_.launches[size_t(step.launch)]);
    return looking_code(*step.kernel, launch.kernel, {plan_.device, flat_.isa});
  }
  void launch_kernel(const RunContext& c, const LaunchStep& step, const Generator& generator) const;
  void launch_chunks(const Part& part) const;
  void launch_beside(const RunContext& c, const LaunchStep& first, const Generator& generator) const;
};

void CpuRunner::launch_kernel(const RunContext& c, const LaunchStep& step, const Generator& generator) const {
  Part part;
  if (!make_part(c, step, generator, part)) return;
  if (part.chunks > 1) return launch_chunks(part);
  LaunchFault fault;
  part.head->fault = &fault;
  run_code(part, part.head);
  if (fault.set) report(part, fault);
}

// Of several faults the first in loop order is reported, as on one thread.
void CpuRunner::launch_chunks(const Part& part) const {
  constexpr int kFew = 64;
  LaunchFault few[kFew];
  std::unique_ptr<LaunchFault[]> many;  // a host's stack may be small
  if (part.chunks > kFew) many = std::make_unique<LaunchFault[]>(size_t(part.chunks));
  LaunchFault* const faults = many ? many.get() : few;
  struct Job {
    const Part& part;
    LaunchFault* faults;
  } job{part, faults};
  run_chunks(
      part.chunks,
      [](void* arg, int i) {
        const Job& j = *static_cast<Job*>(arg);
        run_part(j.part, i, &j.faults[i]);
      },
      &job);
  for (int i = 0; i < part.chunks; i++) {
    if (faults[i].set) report(part, faults[i]);
  }
}

// Kernels that do not depend on each other and cannot fail: the chunks of all are one job.
void CpuRunner::launch_beside(const RunContext& c, const LaunchStep& first, const Generator& generator) const {
  struct Job {
    Part parts[kMaxBeside];
    int count = 0, chunks = 0;
  } job;
  int64_t work = 0;
  for (int i = 0; i <= first.beside; i++) {
    Part& part = job.parts[job.count];
    if (!make_part(c, (&first)[i], generator, part)) continue;
    part.first = job.chunks;
    job.chunks += part.chunks;
    job.count++;
    work += total_work(part.extent, part.work);
  }
  if (!is_worth_forking(work)) {
    for (int i = 0; i < job.count; i++) job.parts[i].head->fault = nullptr, run_code(job.parts[i], job.parts[i].head);
    return;
  }
  run_chunks(
      job.chunks,
      [](void* arg, int i) {
        const Job& j = *static_cast<Job*>(arg);
        int k = j.count - 1;
        while (j.parts[k].first > i) k--;
        run_part(j.parts[k], i - j.parts[k].first, nullptr);
      },
      &job);
}

}  // namespace

std::unique_ptr<Runner> make_cpu_runner(const FlatPlan& flat) { return std::make_unique<CpuRunner>(flat); }

}  // namespace lutra
