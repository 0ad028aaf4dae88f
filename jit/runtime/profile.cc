// Makes records of launches. See profile.h.
#include "jit/runtime/profile.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <tuple>

#include "jit/runtime/config.h"
#include "jit/runtime/kernel_cache.h"
#include "ops/defs/cost.h"

namespace lutra {
namespace {

struct Profile {
  std::mutex mutex;
  std::map<std::tuple<std::string, std::string, int>, LaunchRecord> records;
  void (*locate)(LaunchRecord&) = nullptr;
};
Profile& profile() {
  static Profile* p = new Profile;
  return *p;
}
std::atomic<bool> on{false};

std::atomic<uint64_t> compile_ns{0};
std::atomic<int64_t> compiled_kernels{0};
thread_local int compile_depth = 0;

uint64_t now_ns() {
  return uint64_t(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

// -- bytes of a kernel

// The key of a place in memory: pointer argument, offset (argument, literal), written or read.
using Place = std::tuple<int32_t, int32_t, int64_t, bool>;

class Footprint {
 public:
  Footprint(const loop::Kernel& k, const std::vector<int64_t>& ints) : kernel_(k), ints_(ints) {}
  int64_t bytes() {
    visit(kernel_.body, 1);
    int64_t total = 0;
    for (const auto& [place, count] : most_) {
      total += count * int64_t(size_of(kernel_.params[size_t(std::get<0>(place))].type));
    }
    return total;
  }

 private:
  int64_t value(const loop::Coef& c) const { return c.arg >= 0 ? ints_.at(size_t(c.arg)) : c.literal; }

  // around: the iterations of all loops around the statements.
  void visit(const std::vector<loop::Stmt>& body, int64_t around) {
    for (const loop::Stmt& s : body) {
      if (const auto* inner = std::get_if<std::unique_ptr<loop::Loop>>(&s)) {
        const int64_t size = std::max<int64_t>(0, value((*inner)->size));
        sizes_[(*inner)->id] = size;
        visit((*inner)->body, around * size);
      } else if (const auto& inst = std::get<loop::Inst>(s); loop::has_access(inst.op)) {
        note(inst, around);
      }
    }
  }

  void note(const loop::Inst& inst, int64_t around) {
    int64_t count = around > 0 ? 1 : 0;
    for (const loop::Access::Term& t : inst.access.terms) {
      if (value(t.stride) == 0) continue;
      if (t.is_value) {  // a gathered index: a place for each iteration
        count = around;
        break;
      }
      count *= sizes_[t.id];
    }
    const bool written = inst.op != loop::Op::kLoad;
    // The kernel reads what it has written itself from the caches.
    const bool own = written_first_.try_emplace(inst.access.ptr, written).first->second;
    if (own && !written) return;
    const auto& offset = inst.access.offset;
    int64_t& most = most_[{inst.access.ptr, offset.arg, offset.literal, written}];
    most = std::max(most, std::min(count, around));
  }

  const loop::Kernel& kernel_;
  const std::vector<int64_t>& ints_;
  std::map<int32_t, int64_t> sizes_;       // loop sizes, by id
  std::map<int32_t, bool> written_first_;  // by pointer
  std::map<Place, int64_t> most_;
};

double product_of(const std::vector<int64_t>& sizes) {
  double n = 1;
  for (int64_t s : sizes) n *= double(s);
  return n;
}

int64_t bytes_of(const SizeLists& sizes, const std::vector<DType>& dtypes) {
  double n = 0;
  for (size_t i = 0; i < sizes.size(); i++) n += product_of(sizes[i]) * double(size_of(dtypes[i]));
  return int64_t(n);
}

}  // namespace

void start_profile(void (*locate)(LaunchRecord& record)) {
  Profile& p = profile();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.records.clear();
  p.locate = locate;
  compile_ns = 0, compiled_kernels = 0;
  on = true;
}

std::vector<LaunchRecord> stop_profile() {
  on = false;
  Profile& p = profile();
  std::lock_guard<std::mutex> lock(p.mutex);
  std::vector<LaunchRecord> out;
  for (auto& [key, record] : p.records) out.push_back(std::move(record));
  p.records.clear();
  return out;
}

bool profiling() { return on.load(std::memory_order_relaxed); }

bool launches_watched() { return profiling() || runtime_config().perf; }

void keep_record(LaunchRecord record) {
  Profile& p = profile();
  std::lock_guard<std::mutex> lock(p.mutex);
  if (record.file.empty() && p.locate) p.locate(record);
  const auto [at, is_new] = p.records.try_emplace({record.name, record.file, record.line}, record);
  if (is_new) return;
  LaunchRecord& sum = at->second;
  sum.calls++, sum.ms += record.ms, sum.bytes += record.bytes, sum.flops += record.flops;
  sum.bfloat16_flops += record.bfloat16_flops;
  sum.candidate = record.candidate, sum.why = record.why;
}

CompileCost compile_cost() { return {double(compile_ns) / 1e6, compiled_kernels}; }

LaunchTimer::LaunchTimer(const Backend& backend)
    : backend_(backend), start_(now_ns()), waited_(backend.compile_wait_ns()) {}
uint64_t LaunchTimer::stop() const {
  const uint64_t waited = backend_.compile_wait_ns() - waited_;
  if (compile_depth == 0) compile_ns += waited;
  return now_ns() - start_ - waited;
}

CompileScope::CompileScope() {
  if (compile_depth++ == 0) start_ = now_ns();
}

CompileScope::~CompileScope() {
  if (--compile_depth == 0) compile_ns += now_ns() - start_;
}

void count_compiled_kernel() { compiled_kernels++; }

int64_t kernel_bytes(const loop::Kernel& kernel, const std::vector<int64_t>& ints) {
  return Footprint(kernel, ints).bytes();
}

namespace {
void set_library(LaunchRecord& r, const LibraryChoice& made_by) {
  r.library = true;
  if (made_by.candidate) r.candidate = made_by.candidate, r.why = made_by.text();
}
void count_flops(LaunchRecord& r, OpId op, const SizeLists* sizes, DType made) {
  const double n = flops(op, sizes[0], sizes[1]);
  r.flops += n;
  if (made == DType::kBFloat16) r.bfloat16_flops += n;
}
}  // namespace

void note_extern(const ExternCall& call, const LibraryChoice& made_by, uint64_t nanoseconds) {
  LaunchRecord r;
  r.name = r.ops = name(call.op);
  set_library(r, made_by);
  r.ms = double(nanoseconds) / 1e6;
  SizeLists sizes[2];
  for (const bool out : {false, true}) {
    for (const ExternView& v : out ? call.out : call.in) {
      sizes[out].emplace_back(v.sizes, v.sizes + v.dim);
      if (!v.data) sizes[out].back() = {0};
      r.bytes += int64_t(product_of(sizes[out].back())) * int64_t(size_of(v.dtype));
    }
  }
  count_flops(r, call.op, sizes, call.out[0].dtype);
  if (runtime_config().perf) library_counters(name(call.op))->count(nanoseconds, r.bytes, r.flops);
  if (profiling()) keep_record(std::move(r));
}

void note_launch(const FlatPlan& flat, const HostValue* values, const LaunchStep* step, const LibraryChoice& made_by,
                 uint64_t nanoseconds) {
  LaunchRecord r;
  r.name = step->counters->name;
  if (!step->kernel) set_library(r, made_by);
  r.ms = double(nanoseconds) / 1e6;
  for (int32_t k = 0; k <= step->beside; k++) {
    const LaunchStep& each = step[k];
    const Launch& launch = flat.plan.launches[size_t(each.launch)];
    if (const auto* kernel = std::get_if<KernelLaunch>(&launch)) {
      std::vector<int64_t> ints;
      const int32_t* operand = flat.operands.data() + each.first + each.ptrs;
      for (int32_t i = 0; i < each.ints; i++) ints.push_back(values[size_t(operand[i])].i);
      r.bytes += kernel_bytes(kernel->kernel, ints);
      if (!kernel->op.empty()) r.ops += (r.ops.empty() ? "" : " | ") + kernel->op;
      if (r.file.empty()) r.file = kernel->file, r.line = kernel->line;
      continue;
    }
    const auto& library = std::get<ExternLaunch>(launch);
    SizeLists sizes[2];
    std::vector<DType> dtypes[2];
    for (const bool out : {false, true}) {
      for (const BufferView& v : out ? library.out : library.in) {
        auto& list = sizes[out].emplace_back();
        dtypes[out].push_back(v.dtype);
        if (v.buffer < 0) list.push_back(0);
        for (ExprId e : v.sizes) list.push_back(flat.program.int_value(values, e));
      }
    }
    r.bytes += bytes_of(sizes[0], dtypes[0]) + bytes_of(sizes[1], dtypes[1]);
    count_flops(r, library.op, sizes, library.out[0].dtype);
    r.ops = name(library.op);
    if (r.file.empty()) r.file = library.file, r.line = library.line;
  }
  if (runtime_config().perf) step->counters->count(nanoseconds, r.bytes, r.flops);
  if (profiling()) keep_record(std::move(r));
}

}  // namespace lutra
