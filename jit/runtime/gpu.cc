// What a GPU is given in a run: a launch of a kernel, or several of one kernel side by side as one launch.
#include <algorithm>
#include <cstring>

#include "jit/runtime/context.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/stream.h"
#include "jit/schedule/combine.h"
#include "ops/core/error.h"
#include "ops/core/late_error.h"
#include "ops/cuda/faults.h"
#include "ops/defs/call.h"

namespace lutra {

const cuda::LaunchCode& code_of(const CachedKernel& kernel) {
  return static_cast<const cuda::LaunchCode&>(*kernel.code);
}

// Faults are told after the launch, so what is said of them is kept where they are looked for.
void Executable::prepare_gpu() {
  for (Step& s : steps_) {
    if (!s.kernel) continue;
    const auto& launch = std::get<KernelLaunch>(plan_.launches[size_t(s.launch)]);
    if (launch.faults.empty()) continue;
    const Fault at{-1, -1, launch.op, launch.file, launch.line};
    s.site = cuda::add_fault_site(
        [faults = launch.faults, at](const LaunchFault& fault) { return fault_error(faults, at, fault, fault.bound); });
  }
  for (size_t i = 0; i < steps_.size(); i += size_t(steps_[i].beside) + 1) {
    if (steps_[i].kernel) add_gpu_groups(i);
  }
}

bool Executable::writes_inputs(int32_t launch) const {
  const auto is_input = [&](int32_t b) { return b >= 0 && plan_.buffers[size_t(b)].kind == Buffer::kInput; };
  const Launch& l = plan_.launches[size_t(launch)];
  if (const auto* e = std::get_if<ExternLaunch>(&l)) {
    return std::any_of(e->out.begin(), e->out.end(), [&](const BufferView& v) { return is_input(v.buffer); });
  }
  const auto& k = std::get<KernelLaunch>(l);
  for (size_t i = 0; i < k.buffers.size(); i++) {
    if (k.kernel.params[i].written && is_input(k.buffers[i])) return true;
  }
  return false;
}

// Steps that stand side by side, those of one kernel together as far as one launch takes them.
void Executable::add_gpu_groups(size_t first) {
  Step& head = steps_[first];
  head.gpu_first = int32_t(gpu_groups_.size());
  for (size_t i = first; i <= first + size_t(head.beside); i++) {
    const int most = code_of(*steps_[i].kernel).most;
    auto fits = [&](const std::vector<int32_t>& g) {
      return steps_[size_t(g[0])].kernel == steps_[i].kernel && int(g.size()) < most;
    };
    auto group = std::find_if(gpu_groups_.begin() + head.gpu_first, gpu_groups_.end(), fits);
    if (group == gpu_groups_.end()) group = gpu_groups_.insert(group, std::vector<int32_t>());
    group->push_back(int32_t(i));
  }
  head.gpu_end = int32_t(gpu_groups_.size());
}

void Executable::aim(BlockHead* head, int32_t step, cuda::Context& gpu) const {
  head->fault = cuda::fault_record(gpu);
  head->stream = gpu.stream;
  head->device = plan_.device.index;
  head->step = step;
  const Step& s = steps_[size_t(step)];
  // An eager op's kernels come from many lines; those of a segment know theirs.
  head->site =
      s.site && !std::get<KernelLaunch>(plan_.launches[size_t(s.launch)]).file ? cuda::site_here(s.site) : s.site;
}

bool Executable::make_gpu_launch(const Context& c, const std::vector<int32_t>& group, GpuLaunch& out) const {
  cuda::Context& gpu = cuda::context(plan_.device);
  const cuda::LaunchCode& code = code_of(*steps_[size_t(group[0])].kernel);
  const size_t words = size_t(steps_[size_t(group[0])].words), begin = 1 + size_t(code.most);
  const bool alone = group.size() == 1;
  unsigned blocks = 0;
  uint64_t count = 0;
  for (int32_t i : group) {
    Part part;
    if (!make_part(c, steps_[size_t(i)], default_generator(), part)) continue;
    aim(part.head, i, gpu);
    if (!code.prepare(part.head, out.grid)) continue;
    if (alone) out.param = reinterpret_cast<uint64_t*>(part.head);
    if (!alone) {
      out.several[1 + count] = blocks;
      std::memcpy(out.several + begin + count * words, part.head, words * 8);
    }
    blocks += out.grid.blocks[0];
    count++;
  }
  out.function = static_cast<cuda::FunctionHandle>(alone ? code.function : code.several);
  out.words = alone ? words : begin + count * words;
  if (!alone) out.several[0] = count, out.param = out.several, out.grid.blocks[0] = blocks;
  return count > 0;
}

// Never while a run is recorded: that is left until all kernels are ready.
void Executable::interpret_on_gpu(const Context& c, const std::vector<int32_t>& group) const {
  cuda::Context& gpu = cuda::context(plan_.device);
  for (int32_t i : group) {
    Part part;
    if (!make_part(c, steps_[size_t(i)], default_generator(), part)) continue;
    aim(part.head, i, gpu);
    steps_[size_t(i)].kernel->code->run(part.head);
    const KernelLaunch& launch = std::get<KernelLaunch>(plan_.launches[size_t(steps_[size_t(i)].launch)]);
    cuda::launched(gpu, launch.op, launch.file, launch.line);
  }
}

// A GPU takes the whole loop; what fails is told when the host next waits.
void Executable::launch_on_gpu(const Context& c, const std::vector<int32_t>& group) const {
  cuda::Context& gpu = cuda::context(plan_.device);
  const cuda::LaunchCode& code = code_of(*steps_[size_t(group[0])].kernel);
  if (!code.ready()) return interpret_on_gpu(c, group);
  GpuLaunch l;
  if (!make_gpu_launch(c, group, l)) return;
  void* params[] = {l.param};
  if (c.order) {
    SmallVec<int32_t, 16> launches;
    for (int32_t s : group) launches.push_back(steps_[size_t(s)].launch);
    c.order->begin({launches.begin(), launches.end()});
  }
  LUTRA_CUDA(launch(l.function, l.grid.blocks[0], l.grid.blocks[1], l.grid.blocks[2], l.grid.threads[0],
                    l.grid.threads[1], l.grid.threads[2], l.grid.shared_bytes, gpu.stream, params, nullptr));
  if (c.order) c.order->end();
  const auto& launch = std::get<KernelLaunch>(plan_.launches[size_t(steps_[size_t(group[0])].launch)]);
  cuda::launched(gpu, launch.op, launch.file, launch.line);
}

// Whether no launch goes by the interpreter any more.
bool Executable::kernels_ready() const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [](const Step& s) { return !s.kernel || code_of(*s.kernel).ready(); });
}

// A segment's inputs may be more than its plan needs, and those be anywhere.
bool Executable::reads_input(int32_t position) const {
  bool found = false;
  for (const Launch& l : plan_.launches) {
    for_buffers(l, [&](int32_t b, bool) { found = found || input_of_[size_t(b)] == position; });
  }
  return found;
}

// A GPU's run takes the CPU's inputs of no dimensions too.
void Executable::set_moved(Context& c, const std::vector<Tensor>& inputs) const {
  c.moved.clear();
  for (size_t i = 0; i < inputs.size(); i++) {
    const Tensor& t = inputs[i];
    if (t->device() == plan_.device || !reads_input(int32_t(i))) continue;
    LUTRA_CHECK(t->sizes.empty(), "an input on ", to_string(t->device()), " of a run on ", to_string(plan_.device));
    c.moved.push_back(make_tensor({}, t->dtype, plan_.device));
    copy_bytes(c.moved.back()->data(), plan_.device, t->data(), t->device(), size_of(t->dtype));
    c.inputs[i].data = c.moved.back()->data();
  }
}

void Executable::launch_all(Context& c) const {
  bool wrote = false;
  try {
    launch_steps(c, wrote);
  } catch (const Error& e) {
    // Nobody may run it again from the start.
    const auto [file, line] = first_place();
    if (wrote)
      throw LateError(Error(e.kind, str(e.what(), "; ", file ? str("the segment at ", file, ":", line) : "it",
                                        " had begun to write its results")));
    throw;
  }
}

void* stream_of(Device device) { return device.type == DeviceType::kCPU ? nullptr : cuda::context(device).stream; }

void wait_for(Device device) {
  if (device.type == DeviceType::kCUDA) cuda::synchronize(device);
}

}  // namespace lutra
