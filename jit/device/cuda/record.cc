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
#include "ops/defs/control.h"
#include "ops/extern/precision.h"

namespace lutra {
namespace {

constexpr size_t kMaxRecordings = 4;
constexpr int kMaxTries = 32;

void log_line(const std::string& text) {
  if (runtime_config().recording_log) runtime_config().recording_log(text);
}

}  // namespace

void CudaRunner::RecordingsDeleter::operator()(Recordings* r) const { delete r; }

void CudaRunner::prepare_recordings() {
  if ((steps_.size() < 2 && flat_.functions.empty()) || !flat_.unbacked.empty()) return;
  recordings_.reset(new Recordings);
  recordings_->library_results.assign(plan_.buffers.size(), false);
  for (const Launch& l : plan_.launches) {
    const auto* e = std::get_if<ExternLaunch>(&l);
    if (!e) continue;
    recordings_->has_libraries = true;
    for (const auto& v : e->out) recordings_->library_results[size_t(v.buffer)] = true;
    for (const auto& v : e->in) {
      const bool result = v.buffer >= 0 && plan_.buffers[size_t(v.buffer)].kind == Buffer::kOutput;
      if (result) recordings_->library_results[size_t(v.buffer)] = true;
    }
  }
}

void CudaRunner::give_up(const std::string& why) const {
  recordings_->given_up = true;
  recordings_->all.clear();
  log_line(flat_.place() + " is not recorded: " + why + "\n");
}

// Returns the run's recording: one that serves it, or a new one to be filled. Null: the run goes launch by launch.
CudaRunner::Recording* CudaRunner::pick_recording(GpuRun& c, const std::vector<Tensor>& inputs,
                                                  std::unique_lock<std::mutex>& lock) const {
  if (!settings().cudagraphs) return nullptr;
  Recordings& r = *recordings_;
  lock = std::unique_lock(r.mutex, std::try_to_lock);
  if (!lock || r.given_up || (r.runs == 0 && !kernels_ready()) || r.runs++ == 0 || launches_watched() ||
      is_unsettled() || cuda::sync_wanted())
    return nullptr;
  bring_moving(c, inputs);
  make_key(c, r.key);
  for (size_t i = r.all.size(); i-- > 0;) {
    if (r.all[i]->key.words != r.key.words || !r.all[i]->is_free(c)) continue;
    std::rotate(r.all.begin() + long(i), r.all.begin() + long(i) + 1, r.all.end());
    return r.all.back().get();
  }
  if (r.tries == kMaxTries)
    return give_up("the arguments of its library calls, or the address of the GPU's working memory, keep changing"),
           nullptr;
  if (find_moving(r)) {
    bring_moving(c, inputs);
    make_key(c, r.key);
  }
  bool copies = false;
  if (r.all.size() == kMaxRecordings) {
    auto idle = std::find_if(r.all.begin(), r.all.end(), [&](const auto& x) { return x->is_free(c); });
    copies = idle == r.all.end();
    r.all.erase(copies ? r.all.begin() : idle);
  }
  // If somebody holds a storage that the caller had given to an equal recording, that memory may be gone. The next
  // recording keeps its own.
  const auto is_equal = [&](const auto& x) { return x->key.words == r.key.words; };
  const bool keeps_results = std::any_of(r.all.begin(), r.all.end(), is_equal);
  std::erase_if(r.all, [&](const auto& x) { return !x->keeps_results && is_equal(x); });
  r.tries++;
  r.all.push_back(std::make_unique<Recording>());
  r.all.back()->keeps_results = keeps_results || copies;
  r.all.back()->copies = copies;
  r.all.back()->key = r.key;
  return r.all.back().get();
}

void CudaRunner::set_donors(GpuRun& c, const std::vector<Donor>& donors) const {
  c.donors.clear();
  if (donors.empty()) return;
  c.donors.assign(plan_.buffers.size(), nullptr);
  for (const Donor& d : donors) {
    const PlanOutput& out = plan_.outputs[size_t(d.output)];
    const bool made = out.kind == PlanOutput::kTensor && plan_.buffers[size_t(out.view.buffer)].kind == Buffer::kOutput;
    if (!made || d.storage->device != plan_.device || d.storage->freed || !cuda::is_block(*d.storage)) continue;
    c.donors[size_t(out.view.buffer)] = d.storage;
  }
}

// Throws where the launch cannot be part of the graph.
void CudaRunner::check_recordable(const GpuRun& c, const ExternLaunch& launch) const {
  const Control control = control_of(launch.op);
  const bool decides = control == Control::kCond || control == Control::kWhileLoop;
  if (control == Control::kScan || (decides && cuda::has_conditional_nodes())) return;
  if (decides) throw std::runtime_error(str(name(launch.op), " waits for the GPU: the driver is older than CUDA 12.4"));
  CallOperands operands;
  const char* candidate = control == Control::kNone ? extern_candidate(make_call(c, launch, operands)) : "host";
  if (candidate && !std::strcmp(candidate, "host"))
    throw std::runtime_error(str(name(launch.op), " waits for the GPU"));
}

// Copies the elements of moving inputs to memory that stays.
void CudaRunner::bring_moving(GpuRun& c, const std::vector<Tensor>& inputs) const {
  for (auto& [buffer, memory] : recordings_->moving) {
    const TensorImpl& in = *inputs[size_t(flat_.input_of[size_t(buffer)])].get();
    int64_t last = 0;
    for (size_t d = 0; d < in.sizes.size(); d++) last += (in.sizes[d].hint - 1) * in.strides[d].hint;
    const size_t bytes = size_t(std::max<int64_t>(last, 0) + 1) * size_of(in.dtype);
    if (!memory || memory->nbytes != bytes) memory = allocate(bytes, plan_.device);
    cuda::Context& gpu = cuda::context(plan_.device);
    LUTRA_CUDA(copy_device(reinterpret_cast<cuda::DevicePtr>(memory->data),
                           reinterpret_cast<cuda::DevicePtr>(c.inputs[size_t(flat_.input_of[size_t(buffer)])].data),
                           bytes, gpu.stream));
    c.buffers[size_t(buffer)] = memory->data;
  }
}

// Returns true if the run differs from the last recorded one in the addresses of inputs only. These inputs are copied
// from now on.
bool CudaRunner::find_moving(Recordings& r) const {
  if (r.all.empty() || r.all.back()->key.words.size() != r.key.words.size()) return false;
  const LibraryKey& last = r.all.back()->key;
  std::vector<int32_t> found;
  for (size_t i = 0; i < last.words.size(); i++) {
    if (last.words[i] == r.key.words[i]) continue;
    const int32_t b = r.key.buffers[i];
    if (b < 0 || plan_.buffers[size_t(b)].kind != Buffer::kInput) return false;
    if (std::count(plan_.mutated.begin(), plan_.mutated.end(), plan_.buffers[size_t(b)].index)) return false;
    if (!std::count(found.begin(), found.end(), b)) found.push_back(b);
  }
  for (int32_t b : found) r.moving.emplace_back(b, nullptr);
  return !found.empty();
}

// Makes the key of a run. It has no addresses of results, since the recording owns these.
void CudaRunner::make_key(const GpuRun& c, LibraryKey& k) const {
  k.words.clear(), k.buffers.clear();
  k.add(uint64_t(matmul_precision()) * 2 + convolution_tf32());
  k.add(settled_times());
  // The arena's address and slots: libraries' temporary memory may be there, and the order depends on them. Kernels are
  // updated if the arena moves.
  if (recordings_->has_libraries) k.add(reinterpret_cast<uint64_t>(c.arena_base));
  for (size_t bytes : c.layout.bytes) k.add(bytes);
  for (const LaunchStep& s : steps_) {
    if (s.kernel) {
      k.add(s.extent < 0 || c.values[size_t(s.extent)].i > 0);
      continue;
    }
    const auto& e = std::get<ExternLaunch>(plan_.launches[size_t(s.launch)]);
    CallOperands o;
    const ExternCall call = make_call(c, e, o);
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
void CudaRunner::place_results(GpuRun& c, const Recording& r, bool own) const {
  for (const Recording::Result& x : r.results) {
    if (r.copies) c.buffers[size_t(x.buffer)] = own ? x.own->data : c.storages[size_t(x.buffer)]->data;
  }
}

void CudaRunner::copy_results(const GpuRun& c, const Recording& r) const {
  for (const Recording::Result& x : r.results) {
    if (!r.copies || !x.bytes) continue;
    LUTRA_CUDA(copy_device(reinterpret_cast<cuda::DevicePtr>(c.storages[size_t(x.buffer)]->data),
                           reinterpret_cast<cuda::DevicePtr>(x.data), x.bytes, cuda::context(plan_.device).stream));
  }
}

void CudaRunner::launch_recorded(GpuRun& c, Recording& r) const {
  check_stop();
  if (r.exec) {
    place_results(c, r, true);
    update_kernels(c, r);
  } else if (!record(c, r)) {
    return launch_all(c);
  }
  cuda::Context& gpu = cuda::context(plan_.device);
  if (r.decides) gpu.loops = true;
  LUTRA_CUDA(graph_launch(r.exec, gpu.stream));
  copy_results(c, r);
  default_generator().next_call += uint64_t(plan_.rng_calls);
  const auto [file, line] = flat_.first_place();
  cuda::launched(gpu, "a recorded segment", file, line);
}

// Records the run's launches as a graph. Returns false if the GPU or a library refuses.
bool CudaRunner::record(GpuRun& c, Recording& r) const {
  r.results.clear(), r.kept.clear();  // left from a try that the driver did not let begin
  for (size_t i = 0; i < plan_.buffers.size(); i++) {
    const Ref<Storage>& s = c.storages[i];
    if (!recordings_->library_results[i] || !s) continue;
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
      launch_all(c);
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
  log_line(str(flat_.place(), " is recorded (", recordings_->all.size(), "): ", steps_.size(), " launches, ", r.nodes,
               " nodes, ", early, " launched early\n"));
  return true;
}

// Finds the node of each launch: the first block of a node contains its step.
bool CudaRunner::find_nodes(const GpuRun& c, Recording& r) const {
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
  r.kernels.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); g++) {
    GroupLaunch l;
    if (!make_launch(c, groups_[g], l)) continue;
    const size_t first = l.param == l.several ? 1 + size_t(code_of(*steps_[size_t(groups_[g][0])].kernel).most) : 0;
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

void CudaRunner::update_kernels(const GpuRun& c, Recording& r) const {
  for (size_t g = 0; g < groups_.size(); g++) {
    Recording::Kernel& k = r.kernels[g];
    GroupLaunch l;
    if (!k.node || !make_launch(c, groups_[g], l)) continue;
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
