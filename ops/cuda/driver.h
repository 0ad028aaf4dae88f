// libcuda as a table of functions, opened when it is first requested. Its types and codes follow the driver's binary
// interface and are declared here, so building needs nothing of CUDA.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace lutra::cuda {

using Result = int;  // CUresult
using DevicePtr = uint64_t;
using ContextHandle = struct CUctx_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using GraphHandle = struct CUgraph_st*;
using GraphNode = struct CUgraphNode_st*;
using GraphExec = struct CUgraphExec_st*;

inline constexpr Result kSuccess = 0, kOutOfMemory = 2;
inline constexpr int kKernelNode = 0;  // CU_GRAPH_NODE_TYPE_KERNEL

// CUDA_KERNEL_NODE_PARAMS (version 2).
struct KernelNodeParams {
  FunctionHandle func;
  unsigned grid[3], block[3], shared_bytes;
  void** params;
  void** extra;
  void* kernel;
  ContextHandle context;
};

// CUgraphEdgeData: the kind of the edge, and the event of its source node that it waits for.
struct GraphEdge {
  unsigned char from_port = 0, to_port = 0, type = 0, reserved[5] = {};
};
static_assert(sizeof(GraphEdge) == 8);

// CUgraphNodeParams of a conditional node. graphs: set by the driver, one for each body.
struct ConditionalNodeParams {
  int type = 13;  // CU_GRAPH_NODE_TYPE_CONDITIONAL
  int reserved[3] = {};
  uint64_t handle = 0;
  int kind = 0;  // CU_GRAPH_COND_TYPE_IF, _WHILE
  unsigned size = 1;
  GraphHandle* graphs = nullptr;
  ContextHandle context = nullptr;
  int64_t padding[26] = {};
};
static_assert(sizeof(ConditionalNodeParams) == 256);

// X(member, symbol, signature): the functions that Lutra calls.
// clang-format off
#define LUTRA_CUDA_FUNCTIONS(X)                                                                                       \
  X(init, "cuInit", (unsigned))                                                                                       \
  X(driver_version, "cuDriverGetVersion", (int*))                                                                     \
  X(error_name, "cuGetErrorName", (Result, const char**))                                                             \
  X(error_string, "cuGetErrorString", (Result, const char**))                                                         \
  X(device_count, "cuDeviceGetCount", (int*))                                                                         \
  X(device_get, "cuDeviceGet", (int*, int))                                                                           \
  X(device_name, "cuDeviceGetName", (char*, int, int))                                                                \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, int))                                                       \
  X(device_total_memory, "cuDeviceTotalMem_v2", (size_t*, int))                                                       \
  X(retain_primary, "cuDevicePrimaryCtxRetain", (ContextHandle*, int))                                                \
  X(release_primary, "cuDevicePrimaryCtxRelease_v2", (int))                                                           \
  X(set_current, "cuCtxSetCurrent", (ContextHandle))                                                                  \
  X(get_current, "cuCtxGetCurrent", (ContextHandle*))                                                                 \
  X(can_access_peer, "cuDeviceCanAccessPeer", (int*, int, int))                                                       \
  X(enable_peer_access, "cuCtxEnablePeerAccess", (ContextHandle, unsigned))                                           \
  X(memory_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                                               \
  X(memory_allocate, "cuMemAlloc_v2", (DevicePtr*, size_t))                                                           \
  X(memory_free, "cuMemFree_v2", (DevicePtr))                                                                         \
  X(host_allocate, "cuMemHostAlloc", (void**, size_t, unsigned))                                                      \
  X(host_free, "cuMemFreeHost", (void*))                                                                              \
  X(copy_async, "cuMemcpyAsync", (DevicePtr, DevicePtr, size_t, StreamHandle))                                        \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (DevicePtr, const void*, size_t, StreamHandle))                           \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void*, DevicePtr, size_t, StreamHandle))                                   \
  X(copy_device, "cuMemcpyDtoDAsync_v2", (DevicePtr, DevicePtr, size_t, StreamHandle))                                \
  X(set_bytes, "cuMemsetD8Async", (DevicePtr, unsigned char, size_t, StreamHandle))                                   \
  X(stream_create, "cuStreamCreate", (StreamHandle*, unsigned))                                                       \
  X(stream_destroy, "cuStreamDestroy_v2", (StreamHandle))                                                             \
  X(stream_synchronize, "cuStreamSynchronize", (StreamHandle))                                                        \
  X(stream_wait_event, "cuStreamWaitEvent", (StreamHandle, EventHandle, unsigned))                                    \
  X(stream_query, "cuStreamQuery", (StreamHandle))                                                                    \
  X(begin_capture, "cuStreamBeginCapture_v2", (StreamHandle, int))                                                    \
  X(end_capture, "cuStreamEndCapture", (StreamHandle, GraphHandle*))                                                  \
  X(capture_info, "cuStreamGetCaptureInfo_v2",                                                                        \
    (StreamHandle, int*, uint64_t*, GraphHandle*, const GraphNode**, size_t*))                                        \
  X(set_capture_dependencies, "cuStreamUpdateCaptureDependencies", (StreamHandle, GraphNode*, size_t, unsigned))      \
  X(event_create, "cuEventCreate", (EventHandle*, unsigned))                                                          \
  X(event_destroy, "cuEventDestroy_v2", (EventHandle))                                                                \
  X(event_record, "cuEventRecord", (EventHandle, StreamHandle))                                                       \
  X(event_query, "cuEventQuery", (EventHandle))                                                                       \
  X(event_synchronize, "cuEventSynchronize", (EventHandle))                                                           \
  X(event_elapsed, "cuEventElapsedTime", (float*, EventHandle, EventHandle))                                          \
  X(module_load, "cuModuleLoadData", (ModuleHandle*, const void*))                                                    \
  X(module_unload, "cuModuleUnload", (ModuleHandle))                                                                  \
  X(module_function, "cuModuleGetFunction", (FunctionHandle*, ModuleHandle, const char*))                             \
  X(function_attribute, "cuFuncGetAttribute", (int*, int, FunctionHandle))                                            \
  X(set_function_attribute, "cuFuncSetAttribute", (FunctionHandle, int, int))                                         \
  X(launch, "cuLaunchKernel", (FunctionHandle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                               StreamHandle, void**, void**))                                                         \
  X(graph_nodes, "cuGraphGetNodes", (GraphHandle, GraphNode*, size_t*))                                               \
  X(graph_node_type, "cuGraphNodeGetType", (GraphNode, int*))                                                         \
  X(graph_kernel_params, "cuGraphKernelNodeGetParams_v2", (GraphNode, KernelNodeParams*))                             \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExec*, GraphHandle, unsigned long long))                  \
  X(graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2", (GraphExec, GraphNode, const KernelNodeParams*))           \
  X(graph_launch, "cuGraphLaunch", (GraphExec, StreamHandle))                                                         \
  X(graph_destroy, "cuGraphDestroy", (GraphHandle))                                                                   \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExec))

// Functions of newer drivers; null in older ones.
#define LUTRA_CUDA_NEWER_FUNCTIONS(X)                                                                                 \
  X(begin_capture_to_graph, "cuStreamBeginCaptureToGraph",                                                            \
    (StreamHandle, GraphHandle, const GraphNode*, const void*, size_t, int))                                          \
  X(graph_conditional_handle, "cuGraphConditionalHandleCreate",                                                       \
    (uint64_t*, GraphHandle, ContextHandle, unsigned, unsigned))                                                      \
  X(graph_add_node, "cuGraphAddNode", (GraphNode*, GraphHandle, const GraphNode*, size_t, ConditionalNodeParams*))    \
  X(graph_edges, "cuGraphGetEdges_v2", (GraphHandle, GraphNode*, GraphNode*, GraphEdge*, size_t*))                     \
  X(graph_add_edges, "cuGraphAddDependencies_v2",                                                                     \
    (GraphHandle, const GraphNode*, const GraphNode*, const GraphEdge*, size_t))                                      \
  X(graph_remove_edges, "cuGraphRemoveDependencies_v2",                                                               \
    (GraphHandle, const GraphNode*, const GraphNode*, const GraphEdge*, size_t))
// clang-format on

struct Driver {
#define X(member, symbol, signature) Result(*member) signature = nullptr;
  LUTRA_CUDA_FUNCTIONS(X)
  LUTRA_CUDA_NEWER_FUNCTIONS(X)
#undef X
};

// Returns the machine's driver, or null if there is none or it is too old. driver_problem() then tells why, in one
// line.
const Driver* driver();
const std::string& driver_problem();
// Returns whether a GPU may decide which nodes of a graph run: since CUDA 12.4.
bool has_conditional_nodes();
// Returns whether a launch in a graph may begin before the launches that it depends on have ended: since CUDA 12.3.
bool has_dependent_launches();
// Replaces the driver for tests (its version is checked like the machine's); null restores the machine's driver. This
// folder forgets all that it knows of GPUs, so no storage of theirs may be alive.
void set_driver(const Driver* driver);
// Registers a function that set_driver calls, with which a file of this folder forgets its state.
void on_set_driver(void (*forget)());

// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
std::string result_text(Result result);

}  // namespace lutra::cuda
