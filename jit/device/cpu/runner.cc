// Runs plans on a CPU: a kernel's loop in chunks, parallel kernels as one job, and a kernel that feeds a scatter in
// blocks that fit the cache.
#include "jit/device/cpu/runner.h"

#include <algorithm>
#include <cstring>

#include "jit/background/background.h"
#include "jit/codegen/kernel.h"
#include "jit/device/cpu/row_feed.h"
#include "jit/loop/look.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/pool.h"
#include "ops/extern/scatter_walk.h"

namespace lutra {
namespace {

constexpr int kMaxChunks = 4096;     // of a kernel
constexpr size_t kLocalWords = 256;  // size of a block that fits on a worker's stack
// Work of a chunk, in elements, from which on its loops look whether they shall stop: some milliseconds.
constexpr int64_t kLooksFrom = 1 << 22;
// kFedBytes: size of the rows that a thread computes before a scatter takes them. kFedRows: a block has a multiple of
// so many rows, so that its memory is aligned like the whole.
constexpr int64_t kFedBytes = 128 << 10, kFedRows = 64;

// How a kernel's loop is cut into chunks.
struct Part : FilledStep {
  int chunks, first;  // first: index of its first chunk among those of the parallel kernels
  bool looks;         // the code looks whether it shall stop
  const Code* code;
  int64_t begin = 0;  // first of the `extent` iterations
  int64_t align() const { return extent / chunks >= 1024 ? 64 : 1; }
};

void run_code(const Part& part, BlockHead* head) {
  part.code->run(head);
  if (part.looks) raise_left();
}

// Runs a chunk on a copy of the block.
void run_part(const Part& part, int chunk, LaunchFault* fault) {
  const size_t words = size_t(part.step->words);
  alignas(64) uint64_t local[kLocalWords];
  std::unique_ptr<uint64_t[]> large;
  uint64_t* block = local;
  if (words > kLocalWords) large.reset(new uint64_t[words]), block = large.get();
  std::memcpy(block, part.head, words * 8);
  auto* head = reinterpret_cast<BlockHead*>(block);
  head->begin = part.begin + chunk_begin(part.extent, part.chunks, chunk, part.align());
  head->end = part.begin + chunk_begin(part.extent, part.chunks, chunk + 1, part.align());
  head->fault = fault;
  if (head->begin < head->end) run_code(part, head);
}

// Writes to fresh pages before a kernel does, each large page by one thread. The system clears a page at its first
// access. If several threads access a large page at once, each of them clears one of its own.
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
  for (int i = 0; i < pages; i++) touch(&fresh, i);  // the threads belong to the program
}

class CpuRunner final : public Runner {
 public:
  explicit CpuRunner(const FlatPlan& flat) : Runner(flat) {
    run_plainly_where_small();
    for (size_t i = 0; i < steps_.size(); i++) feeds_.push_back(row_feed(flat, i));
  }

 private:
  void* arena(RunContext& c, size_t bytes) const override {
    const bool has = c.arena && c.arena->nbytes >= bytes;
    void* memory = Runner::arena(c, bytes);
    if (!has) touch_pages(memory, bytes);
    return memory;
  }
  // A long launch is stopped if the program shall stop, even if it writes visible memory.
  void launch_kernels(RunContext& c, const LaunchStep& first, const Generator& generator, bool& wrote) const override {
    if (fed_rows(c, first) > 0) return;  // launch_library runs it
    const bool unseen = loops_are_stoppable;
    const StoppableLoops loops(unseen || is_long(c, first));
    try {
      first.beside ? launch_beside(c, first, generator) : launch_kernel(c, first, generator);
    } catch (const Error& e) {
      wrote = wrote || (first.writes && !unseen && e.kind == ErrorKind::kInterrupt);
      throw;
    }
  }
  void launch_library(RunContext& c, const LaunchStep& step) const override {
    const LaunchStep* feeder = &step == steps_.data() ? nullptr : &step - 1;
    const int64_t rows = feeder ? fed_rows(c, *feeder) : 0;
    if (rows == 0) return Runner::launch_library(c, step);
    if (scatter_blocks(c, *feeder, step, rows)) return;
    // Runs both again, one after the other, to report the first failure.
    launch_kernel(c, *feeder, default_generator());
    Runner::launch_library(c, step);
  }
  int64_t fed_rows(const RunContext& c, const LaunchStep& step) const;
  bool scatter_blocks(RunContext& c, const LaunchStep& feeder, const LaunchStep& step, int64_t rows) const;
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
  static void run_part_chunks(const Part& part, LaunchFault* faults);
  bool run_block(const Part& part) const;

  static constexpr int kFewChunks = 64;  // the stack has room for the faults of this many chunks

  std::vector<RowFeed> feeds_;  // by step
};

// Returns the rows of a block if the step and the scatter after it run in blocks, otherwise 0. They do if there are
// many rows, the scatter takes the temporary as it is, and its result shares no memory with what the kernel reads.
int64_t CpuRunner::fed_rows(const RunContext& c, const LaunchStep& step) const {
  const RowFeed& feed = feeds_[size_t(&step - steps_.data())];
  if (feed.pointer < 0 || is_tuned()) return 0;
  const int32_t* operands = flat_.operands.data() + step.first;
  const int64_t row = feed.row.arg < 0 ? feed.row.literal : c.values[size_t(operands[step.ptrs + feed.row.arg])].i;
  const auto& launch = std::get<ExternLaunch>(plan_.launches[size_t((&step + 1)->launch)]);
  CallOperands views;
  const ExternCall call = make_call(c, launch, views);
  const ExternView& source = call.in[2];
  const auto bytes = int64_t(size_of(source.dtype));
  if (!is_by_rows(call) || row <= 0 || source.sizes[0] != c.values[size_t(step.extent)].i) return 0;
  int64_t inner = 1;
  for (int d = source.dim - 1; d >= 0; inner *= source.sizes[d--]) {
    if (source.strides[d] != inner) return 0;
  }
  const int64_t block = kFedBytes * thread_count() / (row * bytes) / kFedRows * kFedRows;
  if (inner != source.sizes[0] * row || block <= 0 || source.sizes[0] < 2 * block) return 0;
  if (source.data != c.buffers[size_t(operands[feed.pointer])]) return 0;
  const auto* out = static_cast<const char*>(call.out[0].data);
  const char* out_end = out + call.out[0].numel() * bytes;
  for (int32_t i = 0; i < step.ptrs; i++) {
    const Buffer& b = plan_.buffers[size_t(operands[i])];
    if (b.kind != Buffer::kTemp) continue;
    const auto* at = static_cast<const char*>(c.buffers[size_t(operands[i])]);
    if (at < out_end && out < at + c.layout.bytes[size_t(b.index)]) return 0;
  }
  return block;
}

// faults: one for each chunk.
void CpuRunner::run_part_chunks(const Part& part, LaunchFault* faults) {
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
}

// Returns true if no check has failed.
bool CpuRunner::run_block(const Part& part) const {
  LaunchFault faults[kFewChunks];
  run_part_chunks(part, faults);
  return std::none_of(faults, faults + part.chunks, [](const LaunchFault& f) { return f.set; });
}

// Runs kernel and scatter block by block. All blocks use the memory of the first one. Returns false if something has
// failed.
bool CpuRunner::scatter_blocks(RunContext& c, const LaunchStep& feeder, const LaunchStep& step, int64_t rows) const {
  Part part;
  if (!make_part(c, feeder, default_generator(), part)) return false;
  const RowFeed& feed = feeds_[size_t(&feeder - steps_.data())];
  uint64_t& pointer = static_cast<uint64_t*>(static_cast<void*>(part.head + 1))[feed.pointer];
  const uint64_t memory = pointer;
  CallOperands views;
  const ExternCall whole = make_call(c, std::get<ExternLaunch>(plan_.launches[size_t(step.launch)]), views);
  const ExternView index = views.in[1], source = views.in[2];
  const int64_t all = part.extent, row_bytes = source.strides[0] * int64_t(size_of(source.dtype));
  for (int64_t at = 0; at < all; at += rows) {
    check_stop();
    const int64_t n = std::min(rows, all - at);
    part.begin = at, part.extent = n;
    part.chunks = std::min(chunk_count(n, part.work), kFewChunks);
    pointer = memory - uint64_t(at * row_bytes);
    if (!run_block(part)) return false;
    views.in[1].data = static_cast<char*>(index.data) + at * index.strides[0] * int64_t(size_of(index.dtype));
    views.in[1].sizes[0] = views.in[2].sizes[0] = n;
    try {
      c.library = run_library(flat_.backend, whole, Tuning::kOff);
    } catch (const Error& e) {
      if (e.kind != ErrorKind::kData) throw;
      return false;
    }
    views.in[0] = views.out[0];  // the result of the blocks so far
  }
  return true;
}

void CpuRunner::launch_kernel(const RunContext& c, const LaunchStep& step, const Generator& generator) const {
  Part part;
  if (!make_part(c, step, generator, part)) return;
  if (part.chunks > 1) return launch_chunks(part);
  LaunchFault fault;
  part.head->fault = &fault;
  run_code(part, part.head);
  if (fault.set) report(part, fault);
}

// Runs the chunks in parallel. Reports the first fault in loop order, as on one thread.
void CpuRunner::launch_chunks(const Part& part) const {
  LaunchFault few[kFewChunks];
  std::unique_ptr<LaunchFault[]> many;  // a host's stack may be small
  if (part.chunks > kFewChunks) many = std::make_unique<LaunchFault[]>(size_t(part.chunks));
  LaunchFault* const faults = many ? many.get() : few;
  run_part_chunks(part, faults);
  for (int i = 0; i < part.chunks; i++) {
    if (faults[i].set) report(part, faults[i]);
  }
}

// Runs kernels that are independent and cannot fail. All their chunks are one job.
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
