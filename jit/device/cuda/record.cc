// Runs of a plan on a GPU as CUDA graphs: recorded at the second run, replayed afterwards.
//
// Invariants:
// 1. A kernel's node is updated if its block or grid differ from the recorded ones. So kernels may get other addresses,
//    sizes, numbers and random calls in each run. The arguments of library calls cannot be updated: a recording serves
//    runs with equal library calls, apart from results.
// 2. Results that libraries write or read belong to the recording, or the caller gives up the storages that the
//    recording used (Donor). A run uses a recording only if nobody else holds its results, so a live output is never
//    overwritten. If somebody holds those of all recordings, the next recording keeps its results, and each run gets
//    copies.
// 3. An input that a library reads and whose address changes from run to run is copied to memory of its own first.
// 4. Memory taken during recording stays taken as long as the recording lives, except the arena: its address is part of
//    the recording's key.
// 5. The steps of a scan are part of the graph, with their kernels as recorded: a scan's arguments are part of the key,
//    as a library's are. Data-dependent branches and loops are conditional nodes (decide.h). The plan is not recorded
//    if the driver has none, or if the host needs the number of steps (the backward of a while_loop).
// 6. There are at most kMaxRecordings at a time, and kMaxTries in all. What cannot be recorded runs launch by launch.
#include "jit/device/cuda/record.h"

#include <cstring>
#include <stdexcept>

#include "jit/runtime/config.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/profile.h"
#include "ops/core/interrupt.h"
#include "ops/core/settings.h"
#include "ops/cuda/allocator.h"
#include "ops/cuda/faults.h"
#include "ops/defs/call.h"
#include "ops/extern/precision.h"

namespace lutra {
namespace {

constexpr size_t kMaxRecordings = 4;
constexpr int kMaxTries = 32;

void log_line(const std::string& text) {
  if (runtime_config().recording_log) runtime_config().recording_log(text);
}

}  // namespace

std::unique_ptr<CudaRunner::Recorder> CudaRunner::Recorder::make(const CudaRunner& runner) {
  const bool few = runner.steps_.size() < 2 && runner.flat_.functions.empty();
  return few || !runner.flat_.unbacked.empty() ? nullptr : std::make_unique<Recorder>(runner);
}

CudaRunner::Recorder::Recorder(const CudaRunner& runner)
    : runner_(runner), plan_(runner.plan_), library_results_(plan_.buffers.size(), false) {
  for (const Launch& l : plan_.launches) {
    const auto* e = std::get_if<ExternLaunch>(&l);
    if (!e) continue;
    has_libraries_ = true;
    for (const auto& v : e->out) library_results_[size_t(v.buffer)] = true;
    for (const auto& v : e->in) {
      const bool result = v.buffer >= 0 && plan_.buffers[size_t(v.buffer)].kind == Buffer::kOutput;
      if (result) library_results_[size_t(v.buffer)] = true;
    }
  }
}

void CudaRunner::Recorder::give_up(const std::string& why) {
  given_up_ = true;
  all_.clear();
  log_line(runner_.flat_.place() + " is not recorded: " + why + "\n");
}

CudaRunner::Recording* CudaRunner::Recorder::pick(GpuRun& c, const std::vector<Tensor>& inputs) {
  if (!settings().cudagraphs) return nullptr;
  c.lock = std::unique_lock(mutex_, std::try_to_lock);
  if (!c.lock || given_up_ || (runs_ == 0 && !runner_.kernels_ready()) || runs_++ == 0 || launches_watched() ||
      runner_.is_unsettled() || cuda::sync_wanted())
    return nullptr;
  bring_moving(c, inputs);
  make_key(c);
  for (size_t i = all_.size(); i-- > 0;) {
    if (all_[i]->key.words != key_.words || !all_[i]->is_free(c)) continue;
    std::rotate(all_.begin() + long(i), all_.begin() + long(i) + 1, all_.end());
    return all_.back().get();
  }
  if (tries_ == kMaxTries)
    return give_up("the arguments of its library calls, or the address of the GPU's working memory, keep changing"),
           nullptr;
  if (find_moving()) {
    bring_moving(c, inputs);
    make_key(c);
  }
  bool copies = false;
  if (all_.size() == kMaxRecordings) {
    auto idle = std::find_if(all_.begin(), all_.end(), [&](const auto& x) { return x->is_free(c); });
    copies = idle == all_.end();
    all_.erase(copies ? all_.begin() : idle);
  }
  // If somebody holds a storage that the caller had given to an equal recording, that memory may be gone. The next
  // recording keeps its own.
  const auto is_equal = [&](const auto& x) { return x->key.words == key_.words; };
  const bool keeps_results = std::any_of(all_.begin(), all_.end(), is_equal);
  std::erase_if(all_, [&](const auto& x) { return !x->keeps_results && is_equal(x); });
  tries_++;
  all_.push_back(std::make_unique<Recording>());
  all_.back()->keeps_results = keeps_results || copies;
  all_.back()->copies = copies;
  all_.back()->key = key_;
  return all_.back().get();
}

// Copies the elements of moving inputs to memory that stays.
void CudaRunner::Recorder::bring_moving(GpuRun& c, const std::vector<Tensor>& inputs) {
  for (auto& [buffer, memory] : moving_) {
    const TensorImpl& in = *inputs[size_t(runner_.flat_.input_of[size_t(buffer)])].get();
    int64_t last = 0;
    for (size_t d = 0; d < in.sizes.size(); d++) last += (in.sizes[d].hint - 1) * in.strides[d].hint;
    const size_t bytes = size_t(std::max<int64_t>(last, 0) + 1) * size_of(in.dtype);
    if (!memory || memory->nbytes != bytes) memory = allocate(bytes, plan_.device);
    cuda::Context& gpu = cuda::context(plan_.device);
    LUTRA_CUDA(
        copy_device(reinterpret_cast<cuda::DevicePtr>(memory->data),
                    reinterpret_cast<cuda::DevicePtr>(c.inputs[size_t(runner_.flat_.input_of[size_t(buffer)])].data),
                    bytes, gpu.stream));
    c.buffers[size_t(buffer)] = memory->data;
  }
}

// Returns true if the run differs from the last recorded one in the addresses of inputs only. These inputs are copied
// from now on.
bool CudaRunner::Recorder::find_moving() {
  if (all_.empty() || all_.back()->key.words.size() != key_.words.size()) return false;
  const LibraryKey& last = all_.back()->key;
  std::vector<int32_t> found;
  for (size_t i = 0; i < last.words.size(); i++) {
    if (last.words[i] == key_.words[i]) continue;
    const int32_t b = key_.buffers[i];
    if (b < 0 || plan_.buffers[size_t(b)].kind != Buffer::kInput) return false;
    if (std::count(plan_.mutated.begin(), plan_.mutated.end(), plan_.buffers[size_t(b)].index)) return false;
    if (!std::count(found.begin(), found.end(), b)) found.push_back(b);
  }
  for (int32_t b : found) moving_.emplace_back(b, nullptr);
  return !found.empty();
}

// Makes the key of a run. It has no addresses of results, since the recording owns these.
void CudaRunner::Recorder::make_key(const GpuRun& c) {
  LibraryKey& k = key_;
  k.words.clear(), k.buffers.clear();
  k.add(uint64_t(matmul_precision()) * 2 + convolution_tf32());
  k.add(runner_.settled_times());
  // The arena's address and slots: libraries' temporary memory may be there, and the order depends on them. Kernels are
  // updated if the arena moves.
  if (has_libraries_) k.add(reinterpret_cast<uint64_t>(c.arena_base));
  for (size_t bytes : c.layout.bytes) k.add(bytes);
  for (const LaunchStep& s : runner_.steps_) {
    if (s.kernel) {
      k.add(s.extent < 0 || c.values[size_t(s.extent)].i > 0);
      continue;
    }
    const auto& e = std::get<ExternLaunch>(plan_.launches[size_t(s.launch)]);
    CallOperands o;
    const ExternCall call = runner_.make_call(c, e, o);
    const auto add_view = [&](const ExternView& v, int32_t buffer) {
      const bool result = buffer >= 0 && plan_.buffers[size_t(buffer)].kind == Buffer::kOutput;
      k.add(result ? 0 : reinterpret_cast<uint64_t>(v.data), buffer);
      for (int32_t d = 0; d < v.dim; d++) k.add(uint64_t(v.sizes[d])), k.add(uint64_t(v.strides[d]));
    };
    for (size_t i = 0; i < call.in.size(); i++) add_view(call.in[i], e.in[i].buffer);
    for (size_t i = 0; i < call.out.size(); i++) add_view(call.out[i], e.out[i].buffer);
    for (int64_t n : call.ints) k.add(uint64_t(n));
    for (double x : call.scalars) {
      uint64_t bits;
      std::memcpy(&bits, &x, 8);
      k.add(bits);
    }
  }
}

// Sets where launches write the results that a recording copies: its own memory, or the run's.
void CudaRunner::Recorder::place_results(GpuRun& c, const Recording& r, bool own) const {
  for (const Recording::Result& x : r.results) {
    if (r.copies) c.buffers[size_t(x.buffer)] = own ? x.own->data : c.storages[size_t(x.buffer)]->data;
  }
}

void CudaRunner::Recorder::copy_results(const GpuRun& c, const Recording& r) const {
  for (const Recording::Result& x : r.results) {
    if (!r.copies || !x.bytes) continue;
    LUTRA_CUDA(copy_device(reinterpret_cast<cuda::DevicePtr>(c.storages[size_t(x.buffer)]->data),
                           reinterpret_cast<cuda::DevicePtr>(x.data), x.bytes, cuda::context(plan_.device).stream));
  }
}

void CudaRunner::Recorder::launch(GpuRun& c, Recording& r) {
  check_stop();
  if (r.exec) {
    place_results(c, r, true);
    update_kernels(c, r);
  } else if (!record(c, r)) {
    return runner_.launch_all(c);
  }
  cuda::Context& gpu = cuda::context(plan_.device);
  if (r.decides) gpu.loops = true;
  LUTRA_CUDA(graph_launch(r.exec, gpu.stream));
  copy_results(c, r);
  default_generator().next_call += uint64_t(plan_.rng_calls);
  const auto [file, line] = runner_.flat_.first_place();
  cuda::launched(gpu, "a recorded segment", file, line);
}

// Records the run's launches as a graph. Returns false if the GPU or a library refuses.
bool CudaRunner::Recorder::record(GpuRun& c, Recording& r) {
  r.results.clear(), r.kept.clear();  // left from a try that the driver did not let begin
  for (size_t i = 0; i < plan_.buffers.size(); i++) {
    const Ref<Storage>& s = c.storages[i];
    if (!library_results_[i] || !s) continue;
    const bool given = !r.keeps_results && c.donor(int32_t(i)) == s.get();
    const Ref<Storage> place = r.copies ? allocate(s->nbytes, plan_.device) : s;
    r.results.push_back({int32_t(i), given ? nullptr : place, place->data, s->nbytes});
  }
  place_results(c, r, true);
  const cuda::Driver& d = *cuda::driver();
  cuda::Context& gpu = cuda::context(plan_.device);
  const uint64_t call = default_generator().next_call;
  std::string wrong;
  {
    cuda::KeepAllocations keep(r.kept);
    c.working.scratch().hold_in(&r.kept);
    LUTRA_CUDA(begin_capture(gpu.stream, kRelaxed));
    LaunchOrder order(plan_, c.layout, c.arena_base, gpu.stream, c.working.scratch());
    try {
      runner_.launch_all(c);
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    const cuda::Result ended = d.end_capture(gpu.stream, &r.graph);
    r.decides = order.resumed != nullptr;
    if (!r.graph && r.decides) d.graph_destroy(order.resumed);
    c.working.scratch().hold_in(nullptr);
    if (wrong.empty() && ended != cuda::kSuccess) wrong = cuda::result_text(ended);
  }
  default_generator().next_call = call;
  size_t early = 0;
  try {
    if (wrong.empty()) early = overlap_launches(r.graph, gpu);
    const cuda::Result made = wrong.empty() ? d.graph_instantiate(&r.exec, r.graph, 0) : cuda::kSuccess;
    if (made != cuda::kSuccess) wrong = cuda::result_text(made);
    if (wrong.empty() && !find_nodes(c, r)) wrong = "its kernels are not found in the graph";
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) {
    place_results(c, r, false);
    return give_up(wrong), false;
  }
  log_line(str(runner_.flat_.place(), " is recorded (", all_.size(), "): ", runner_.steps_.size(), " launches, ",
               r.nodes, " nodes, ", early, " launched early\n"));
  return true;
}

// Finds the node of each launch: the first block of a node contains its step.
bool CudaRunner::Recorder::find_nodes(const GpuRun& c, Recording& r) const {
  const cuda::Driver& d = *cuda::driver();
  size_t count = 0;
  LUTRA_CUDA(graph_nodes(r.graph, nullptr, &count));
  r.nodes = count;
  std::vector<cuda::GraphNode> nodes(count);
  LUTRA_CUDA(graph_nodes(r.graph, nodes.data(), &count));
  std::vector<cuda::KernelNodeParams> params(count);
  for (size_t n = 0; n < count; n++) {
    int type = 0;
    if (d.graph_node_type(nodes[n], &type) != cuda::kSuccess || type != cuda::kKernelNode) continue;
    LUTRA_CUDA(graph_kernel_params(nodes[n], &params[n]));
  }
  r.kernels.resize(runner_.groups_.size());
  for (size_t g = 0; g < runner_.groups_.size(); g++) {
    GroupLaunch l;
    if (!runner_.make_launch(c, runner_.groups_[g], l)) continue;
    const size_t first =
        l.param == l.several ? 1 + size_t(code_of(*runner_.steps_[size_t(runner_.groups_[g][0])].kernel).most) : 0;
    const int32_t step = reinterpret_cast<const BlockHead*>(l.param + first)->step;
    Recording::Kernel& k = r.kernels[g];
    for (size_t n = 0; n < count && !k.node; n++) {
      if (params[n].func != l.function) continue;
      const auto* words = static_cast<const uint64_t*>(params[n].params[0]);
      if (reinterpret_cast<const BlockHead*>(words + first)->step != step) continue;
      k = {nodes[n], {l.param, l.param + l.words}};
    }
    if (!k.node) return false;
  }
  return true;
}

void CudaRunner::Recorder::update_kernels(const GpuRun& c, Recording& r) const {
  for (size_t g = 0; g < runner_.groups_.size(); g++) {
    Recording::Kernel& k = r.kernels[g];
    GroupLaunch l;
    if (!k.node || !runner_.make_launch(c, runner_.groups_[g], l)) continue;
    if (k.words.size() == l.words && std::equal(k.words.begin(), k.words.end(), l.param)) continue;
    void* params[] = {l.param};
    const cuda::KernelNodeParams p{l.function,
                                   {l.grid.blocks[0], l.grid.blocks[1], l.grid.blocks[2]},
                                   {l.grid.threads[0], l.grid.threads[1], l.grid.threads[2]},
                                   l.grid.shared_bytes,
                                   params,
                                   nullptr,
                                   nullptr,
                                   nullptr};
    LUTRA_CUDA(graph_set_kernel(r.exec, k.node, &p));
    k.words.assign(l.param, l.param + l.words);
  }
}

}  // namespace lutra
