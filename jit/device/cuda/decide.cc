// Makes conditional nodes for data-dependent branches and loops. It ends the capture of the graph, adds the node,
// captures the node's body, and continues the capture after the node. A tiny kernel sets the condition.
#include "jit/device/cuda/decide.h"

#include "jit/device/cuda/order.h"
#include "ops/cuda/context.h"
#include "ops/cuda/faults.h"
#include "ops/extern/cuda/condition.h"

namespace lutra {
namespace {

constexpr int kIf = 0, kWhile = 1;      // CU_GRAPH_COND_TYPE_
constexpr unsigned kAssignDefault = 1;  // CU_GRAPH_COND_ASSIGN_DEFAULT

// Captures what a body puts into the stream as the graph `inside`.
void capture_body(LaunchOrder& order, cuda::StreamHandle stream, cuda::GraphHandle inside,
                  const std::function<void(LaunchOrder&)>& body) {
  LUTRA_CUDA(begin_capture_to_graph(stream, inside, nullptr, nullptr, 0, kRelaxed));
  std::exception_ptr wrong;
  try {
    LaunchOrder within(order);
    body(within);
  } catch (...) {
    wrong = std::current_exception();
  }
  cuda::GraphHandle same = nullptr;
  const cuda::Result ended = cuda::driver()->end_capture(stream, &same);
  if (wrong) std::rethrow_exception(wrong);
  cuda::check(ended, "end_capture()");
}

// set(handle) sets the condition: before the node, and at the end of a loop's body.
void add_node(Device device, int kind, const std::function<void(uint64_t handle)>& set,
              const std::function<void()>& body) {
  LaunchOrder& order = *LaunchOrder::current();
  cuda::Context& gpu = cuda::context(device);
  order.begin_barrier();
  cuda::ConditionalNodeParams p;
  LUTRA_CUDA(graph_conditional_handle(&p.handle, order.graph(), gpu.handle, 0, kAssignDefault));
  set(p.handle);
  p.kind = kind, p.context = gpu.handle;
  std::vector<cuda::GraphNode> behind = order.leaves();
  cuda::GraphHandle graph = nullptr;
  LUTRA_CUDA(end_capture(gpu.stream, &graph));
  order.resumed = graph;
  std::exception_ptr wrong;
  try {
    cuda::GraphNode node = nullptr;
    LUTRA_CUDA(graph_add_node(&node, graph, behind.data(), behind.size(), &p));
    behind = {node};
    capture_body(order, gpu.stream, p.graphs[0], [&](LaunchOrder& within) {
      body();
      if (kind != kWhile) return;
      within.begin_barrier();
      set(p.handle);
      within.end_barrier();
    });
  } catch (...) {
    wrong = std::current_exception();
  }
  LUTRA_CUDA(begin_capture_to_graph(gpu.stream, graph, behind.data(), nullptr, behind.size(), kRelaxed));
  if (wrong) std::rethrow_exception(wrong);
  order.end_barrier();
}

}  // namespace

void ConditionalNodes::when(const void* flag, DType dtype, bool holds, const std::function<void()>& body) {
  const auto set = [&](uint64_t handle) { cuda::set_condition(device_, handle, flag, dtype, holds, nullptr); };
  add_node(device_, kIf, set, body);
}

// The host can stop a loop: code that waits for the loop sets the flag (cuda::wait_for_loops).
void ConditionalNodes::repeat(const void* flag, DType dtype, const std::function<void()>& body) {
  const int32_t* stop = cuda::loops_stop(cuda::context(device_));
  const auto set = [&](uint64_t handle) { cuda::set_condition(device_, handle, flag, dtype, true, stop); };
  add_node(device_, kWhile, set, body);
}

void ConditionalNodes::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  LaunchOrder& order = *LaunchOrder::current();
  order.begin_barrier();
  LUTRA_CUDA(copy_device(reinterpret_cast<cuda::DevicePtr>(to), reinterpret_cast<cuda::DevicePtr>(from), bytes,
                         cuda::context(device_).stream));
  order.end_barrier();
}

}  // namespace lutra
