// Modules and graphs of the fake driver. In: images, and the work that a stream records. Out: calls of host functions.
// A module is a shared library of the host (fake/fake_nvrtc.cc), or empty.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/cuda/fake_calls.h"

namespace lutra::cuda {
namespace {

struct Module {
  void* library;
};
struct Function {
  void (*run)(const unsigned* grid, const unsigned* threads, void** params);
  size_t (*size)(size_t param);
};

// A library ends with its table of sections.
size_t image_bytes(const char* image) {
  uint64_t sections;
  uint16_t size, count;
  std::memcpy(&sections, image + 40, 8);
  std::memcpy(&size, image + 58, 2);
  std::memcpy(&count, image + 60, 2);
  return sections + size_t(size) * count;
}

// A GPU's code (of a real NVRTC) is ELF too, of another machine.
bool is_host_library(const char* image) {
  if (std::memcmp(image, "\177ELF", 4) != 0) return false;
  uint16_t machine;
  std::memcpy(&machine, image + 18, 2);
  return machine == 62;  // x86-64
}

void* open_image(const char* image) {
  char path[] = "/tmp/lutra_module_XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) return nullptr;
  const size_t bytes = image_bytes(image);
  const bool whole = write(fd, image, bytes) == ssize_t(bytes);
  close(fd);
  void* library = whole ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) std::fprintf(stderr, "fake driver: %s\n", dlerror());
  unlink(path);
  return library;
}

// A node of a captured graph: the action of a launch or a copy.
struct Node {
  Function* function = nullptr;  // null: a copy or a fill
  unsigned grid[3] = {}, block[3] = {}, shared_bytes = 0;
  std::vector<std::vector<char>> params;
  std::vector<void*> pointers;
  std::function<void()> other;
  std::vector<Node*> after;
  std::set<Node*> early;  // those of `after` that need not have ended
  // For conditional nodes.
  bool conditional = false, loops = false;
  const unsigned* condition = nullptr;
  GraphHandle bodies[1] = {};

  void set(void** from) {
    params.clear(), pointers.clear();
    for (size_t i = 0; function->size(i); i++) {
      const char* p = static_cast<const char*>(from[i]);
      params.emplace_back(p, p + function->size(i));
    }
    for (auto& p : params) pointers.push_back(p.data());
  }
  void run() {
    if (function && fake_gpu().idle) return;
    const FakeWork work;
    if (function) {
      function->run(grid, block, pointers.data());
    } else {
      other();
    }
  }
};
struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<Node*> current;  // that the next node waits for
  std::vector<std::unique_ptr<unsigned>> conditions;

  Graph() = default;
  Graph(const Graph&) = delete;
  ~Graph() {
    for (const auto& n : nodes) delete reinterpret_cast<Graph*>(n->bodies[0]);
  }
  void add(std::shared_ptr<Node> node) {
    node->after = current;
    current = {node.get()};
    nodes.push_back(std::move(node));
  }
};
Graph* recorded = nullptr;     // while a stream is captured
std::unique_ptr<Graph> fresh;  // the same, where that made it

// A launch of a graph: nodes of its own, by the graph's, in an order of its own.
struct Exec {
  std::map<Node*, std::shared_ptr<Node>> nodes;
  std::vector<Node*> order;
  std::map<Node*, std::unique_ptr<Exec>> bodies;
  std::vector<unsigned*> conditions;

  explicit Exec(const Graph& graph);
  void run();
};

}  // namespace

bool fake_record(std::function<void()> work) {
  if (!recorded) return false;
  recorded->add(std::make_shared<Node>());
  recorded->nodes.back()->other = std::move(work);
  return true;
}
bool fake_recording() { return recorded != nullptr; }

FAKE(cuModuleLoadData)(ModuleHandle* module, const void* image) {
  ENTER("cuModuleLoadData");
  const char* bytes = static_cast<const char*>(image);
  void* library = nullptr;
  if (is_host_library(bytes) && !(library = open_image(bytes))) return 200;
  *module = reinterpret_cast<ModuleHandle>(new Module{library});
  return kSuccess;
}
FAKE(cuModuleUnload)(ModuleHandle module) {
  ENTER("cuModuleUnload");
  delete reinterpret_cast<Module*>(module);
  return kSuccess;
}
FAKE(cuModuleGetFunction)(FunctionHandle* function, ModuleHandle module, const char* name) {
  ENTER("cuModuleGetFunction");
  void* library = reinterpret_cast<Module*>(module)->library;
  // A cubin of the real NVRTC cannot run here, so it must not be taken for the interpreter of kernels.
  if (!library && std::strcmp(name, "lutra_interpreter") == 0) return kNotFound;
  auto* f = new Function{nullptr, nullptr};
  if (library) {
    const std::string text = name;
    f->run = reinterpret_cast<decltype(f->run)>(dlsym(library, ("shim_launch_" + text).c_str()));
    f->size = reinterpret_cast<decltype(f->size)>(dlsym(library, ("shim_size_" + text).c_str()));
    if (!f->run || !f->size) return delete f, kNotFound;
  }
  *function = reinterpret_cast<FunctionHandle>(f);
  return kSuccess;
}
FAKE(cuFuncGetAttribute)(int* value, int, FunctionHandle) {
  ENTER("cuFuncGetAttribute");
  *value = 0;
  return kSuccess;
}
FAKE(cuFuncSetAttribute)(FunctionHandle, int, int) {
  ENTER("cuFuncSetAttribute");
  return kSuccess;
}
FAKE(cuLaunchKernel)
(FunctionHandle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
 StreamHandle, void** params, void**) {
  ENTER("cuLaunchKernel");
  FakeGpu& g = fake_gpu();
  g.launches++;
  if (g.kernel) g.kernel(params);
  auto* f = reinterpret_cast<Function*>(function);
  if (!f || !f->run) return kSuccess;
  // A device's limits.
  if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx * by * bz > 1024 || bx * by * bz == 0) return kInvalidValue;
  const auto node = std::make_shared<Node>();
  node->function = f, node->shared_bytes = shared;
  for (int i = 0; i < 3; i++) node->grid[i] = std::array{gx, gy, gz}[size_t(i)];
  for (int i = 0; i < 3; i++) node->block[i] = std::array{bx, by, bz}[size_t(i)];
  node->set(params);
  if (recorded) {
    recorded->add(node);
  } else {
    node->run();
  }
  return kSuccess;
}

// -- graphs

FAKE(cuStreamBeginCapture_v2)(StreamHandle, int) {
  ENTER("cuStreamBeginCapture_v2");
  fresh = std::make_unique<Graph>();
  recorded = fresh.get();
  return kSuccess;
}
FAKE(cuStreamBeginCaptureToGraph)
(StreamHandle, GraphHandle graph, const GraphNode* after, const void*, size_t count, int) {
  ENTER("cuStreamBeginCaptureToGraph");
  if (recorded) return kInvalidValue;
  recorded = reinterpret_cast<Graph*>(graph);
  recorded->current.clear();
  for (size_t i = 0; i < count; i++) recorded->current.push_back(reinterpret_cast<Node*>(after[i]));
  return kSuccess;
}
FAKE(cuStreamEndCapture)(StreamHandle, GraphHandle* graph) {
  ALONE;
  std::unique_ptr<Graph> lost = std::move(fresh);  // it is over, whatever is answered
  Graph* const made = std::exchange(recorded, nullptr);
  ENTER("cuStreamEndCapture");
  if (!made) return kInvalidValue;
  (void)lost.release();
  *graph = reinterpret_cast<GraphHandle>(made);
  return kSuccess;
}
FAKE(cuGraphConditionalHandleCreate)(uint64_t* handle, GraphHandle graph, ContextHandle, unsigned, unsigned) {
  ENTER("cuGraphConditionalHandleCreate");
  auto& all = reinterpret_cast<Graph*>(graph)->conditions;
  all.push_back(std::make_unique<unsigned>(0));
  *handle = reinterpret_cast<uintptr_t>(all.back().get());
  return kSuccess;
}
FAKE(cuGraphAddNode)
(GraphNode* node, GraphHandle graph, const GraphNode* after, size_t count, ConditionalNodeParams* p) {
  ENTER("cuGraphAddNode");
  if (p->type != 13 || p->size != 1 || p->kind > 1 || !p->context) return kInvalidValue;
  const auto made = std::make_shared<Node>();
  made->conditional = true, made->loops = p->kind == 1;
  made->condition = reinterpret_cast<const unsigned*>(uintptr_t(p->handle));
  made->bodies[0] = reinterpret_cast<GraphHandle>(new Graph);
  for (size_t i = 0; i < count; i++) made->after.push_back(reinterpret_cast<Node*>(after[i]));
  p->graphs = made->bodies;
  *node = reinterpret_cast<GraphNode>(made.get());
  reinterpret_cast<Graph*>(graph)->nodes.push_back(made);
  return kSuccess;
}
FAKE(cuStreamGetCaptureInfo_v2)
(StreamHandle, int* status, uint64_t*, GraphHandle* graph, const GraphNode** nodes, size_t* count) {
  ENTER("cuStreamGetCaptureInfo_v2");
  *status = recorded != nullptr;
  *graph = reinterpret_cast<GraphHandle>(recorded);
  *nodes = recorded ? reinterpret_cast<const GraphNode*>(recorded->current.data()) : nullptr;
  *count = recorded ? recorded->current.size() : 0;
  return kSuccess;
}
FAKE(cuStreamUpdateCaptureDependencies)(StreamHandle, GraphNode* nodes, size_t count, unsigned flags) {
  ENTER("cuStreamUpdateCaptureDependencies");
  if (!recorded) return kInvalidValue;
  if (flags) recorded->current.clear();
  for (size_t i = 0; i < count; i++) recorded->current.push_back(reinterpret_cast<Node*>(nodes[i]));
  return kSuccess;
}
FAKE(cuGraphGetNodes)(GraphHandle graph, GraphNode* nodes, size_t* count) {
  ENTER("cuGraphGetNodes");
  const auto& all = reinterpret_cast<Graph*>(graph)->nodes;
  *count = all.size();
  for (size_t i = 0; nodes && i < all.size(); i++) nodes[i] = reinterpret_cast<GraphNode>(all[i].get());
  return kSuccess;
}
FAKE(cuGraphNodeGetType)(GraphNode node, int* type) {
  ENTER("cuGraphNodeGetType");
  const auto* n = reinterpret_cast<Node*>(node);
  *type = n->conditional ? 13 : n->function ? 0 : 1;
  return kSuccess;
}
FAKE(cuGraphKernelNodeGetParams_v2)(GraphNode node, KernelNodeParams* p) {
  ENTER("cuGraphKernelNodeGetParams_v2");
  auto* n = reinterpret_cast<Node*>(node);
  *p = {};
  p->func = reinterpret_cast<FunctionHandle>(n->function);
  for (int i = 0; i < 3; i++) p->grid[i] = n->grid[i], p->block[i] = n->block[i];
  p->shared_bytes = n->shared_bytes;
  p->params = n->pointers.data();
  return kSuccess;
}
// An edge that lets a launch begin early is one for the order as well: a launch that waits by itself comes after.
FAKE(cuGraphGetEdges_v2)(GraphHandle graph, GraphNode* from, GraphNode* to, GraphEdge* edges, size_t* count) {
  ENTER("cuGraphGetEdges_v2");
  size_t n = 0;
  for (const auto& node : reinterpret_cast<Graph*>(graph)->nodes) {
    for (Node* before : node->after) {
      if (from) {
        from[n] = reinterpret_cast<GraphNode>(before), to[n] = reinterpret_cast<GraphNode>(node.get());
        edges[n] = {};
        edges[n].type = edges[n].from_port = node->early.count(before) > 0;
      }
      n++;
    }
  }
  *count = n;
  return kSuccess;
}
FAKE(cuGraphRemoveDependencies_v2)
(GraphHandle, const GraphNode* from, const GraphNode* to, const GraphEdge* edges, size_t count) {
  ENTER("cuGraphRemoveDependencies_v2");
  for (size_t i = 0; i < count; i++) {
    Node *before = reinterpret_cast<Node*>(from[i]), *node = reinterpret_cast<Node*>(to[i]);
    const auto at = std::find(node->after.begin(), node->after.end(), before);
    if (at == node->after.end() || node->early.count(before) != edges[i].type) return kInvalidValue;
    node->after.erase(at), node->early.erase(before);
  }
  return kSuccess;
}
FAKE(cuGraphAddDependencies_v2)
(GraphHandle, const GraphNode* from, const GraphNode* to, const GraphEdge* edges, size_t count) {
  ENTER("cuGraphAddDependencies_v2");
  for (size_t i = 0; i < count; i++) {
    Node *before = reinterpret_cast<Node*>(from[i]), *node = reinterpret_cast<Node*>(to[i]);
    const bool early = edges[i].type == 1;
    if (early != (edges[i].from_port == 1) || (early && (!before->function || !node->function))) return kInvalidValue;
    node->after.push_back(before);
    if (early) node->early.insert(before);
  }
  return kSuccess;
}
// An order that is hard on who forgot an edge: of what may run, what was recorded last and first by turns.
std::vector<Node*> hard_order(const Graph& graph) {
  std::vector<Node*> order;
  std::set<Node*> done;
  const size_t count = graph.nodes.size();
  while (order.size() < count) {
    for (size_t i = 0; i < count; i++) {
      Node* n = graph.nodes[order.size() % 2 ? i : count - 1 - i].get();
      const auto is_done = [&](Node* before) { return done.count(before) > 0; };
      if (is_done(n) || !std::all_of(n->after.begin(), n->after.end(), is_done)) continue;
      order.push_back(n), done.insert(n);
      break;
    }
  }
  return order;
}
namespace {
Exec::Exec(const Graph& graph) : order(hard_order(graph)) {
  for (const auto& c : graph.conditions) conditions.push_back(c.get());
  for (const auto& node : graph.nodes) {
    auto copy = std::make_shared<Node>(*node);
    if (copy->function) copy->set(node->pointers.data());
    if (node->conditional) bodies[node.get()] = std::make_unique<Exec>(*reinterpret_cast<Graph*>(node->bodies[0]));
    nodes[node.get()] = copy;
  }
}
void Exec::run() {
  for (unsigned* c : conditions) *c = 0;
  for (Node* node : order) {
    if (!node->conditional) {
      nodes[node]->run();
      continue;
    }
    while (*node->condition) {
      bodies[node]->run();
      if (!node->loops) break;
    }
  }
}
}  // namespace
FAKE(cuGraphInstantiateWithFlags)(GraphExec* exec, GraphHandle graph, unsigned long long) {
  ENTER("cuGraphInstantiateWithFlags");
  *exec = reinterpret_cast<GraphExec>(new Exec(*reinterpret_cast<Graph*>(graph)));
  return kSuccess;
}
FAKE(cuGraphExecKernelNodeSetParams_v2)(GraphExec exec, GraphNode node, const KernelNodeParams* p) {
  ENTER("cuGraphExecKernelNodeSetParams_v2");
  Node& n = *reinterpret_cast<Exec*>(exec)->nodes[reinterpret_cast<Node*>(node)];
  n.function = reinterpret_cast<Function*>(p->func);
  for (int i = 0; i < 3; i++) n.grid[i] = p->grid[i], n.block[i] = p->block[i];
  n.shared_bytes = p->shared_bytes;
  n.set(p->params);
  return kSuccess;
}
FAKE(cuGraphLaunch)(GraphExec exec, StreamHandle) {
  ENTER("cuGraphLaunch");
  reinterpret_cast<Exec*>(exec)->run();
  return kSuccess;
}
FAKE(cuGraphDestroy)(GraphHandle graph) {
  ENTER("cuGraphDestroy");
  delete reinterpret_cast<Graph*>(graph);
  return kSuccess;
}
FAKE(cuGraphExecDestroy)(GraphExec exec) {
  ENTER("cuGraphExecDestroy");
  delete reinterpret_cast<Exec*>(exec);
  return kSuccess;
}

}  // namespace lutra::cuda
