// Tests the kernels that the scheduler makes of graphs on a GPU: as CUDA source they give the exact interpreter's bits.
#include <filesystem>

#include "jit/schedule/schedule.h"
#include "tests/cuda_codegen/shim_library.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"

namespace lutra {
namespace {

constexpr int64_t kMaxElements = 1 << 16;

// False where the launch is too large for a test.
bool add_launch(const Plan& plan, const KernelLaunch& launch, uint64_t seed, ShimLibrary& library,
                std::vector<Run>& runs) {
  const std::vector<SymExpr>& env = plan.exprs;
  Case c(clone(launch.kernel));
  std::mt19937_64 rng(seed);
  for (int32_t b : launch.buffers) {
    const auto& buffer = plan.buffers[size_t(b)];
    const int64_t elements = env[size_t(buffer.elements)].i;
    if (elements > kMaxElements) return false;
    c.buffer(buffer.dtype, size_t(elements));
    // Indices lie within what they index, mostly.
    fill(*c.buffers.back(), rng, 0.02);
    if (is_float(buffer.dtype)) continue;
    for (int64_t i = 0; i < elements; i++) {
      const int64_t v = buffer.dtype == DType::kBool ? int64_t(rng() % 2) : int64_t(rng() % 3);
      memcpy(c.buffers.back()->data + size_t(i) * size_of(buffer.dtype), &v, size_of(buffer.dtype));
    }
  }
  for (ExprId e : launch.ints) c.ints.push_back(env[size_t(e)].i);
  for (ExprId e : launch.scalars) c.scalars.push_back(env[size_t(e)].d);
  c.end = launch.extent ? env[size_t(launch.extent)].i : 0;
  std::vector<int64_t> hints = c.ints;
  if (seed % 4 == 3) hints.assign(hints.size(), 300);
  const size_t kernel = library.add(launch.kernel, hints);
  runs.push_back({kernel, std::move(c)});
  return true;
}

void add_graph(Graph& graph, uint64_t seed, ShimLibrary& library, std::vector<Run>& runs) {
  move_to(graph, {DeviceType::kCUDA, 0});
  const Plan plan = schedule(graph);
  CHECK(plan.device.type == DeviceType::kCUDA);
  for (const Launch& l : plan.launches) {
    if (const auto* kernel = std::get_if<KernelLaunch>(&l)) add_launch(plan, *kernel, seed++, library, runs);
  }
}

void check_launches(ShimLibrary& library, std::vector<Run>& runs) {
  library.build();
  for (Run& r : runs) {
    LaunchFault fault;
    r.c.run("interp", &fault);
    if (!fault.set) library.check(r.kernel, r.c);
  }
}

}  // namespace

TEST_CASE("kernels of scheduled graphs as CUDA source", "[cuda]") {
  ShimLibrary library;
  std::vector<Run> runs;
  uint64_t seed = 1;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/schedule"))) {
    if (entry.path().extension() != ".graph") continue;
    auto graph = lowered_graph(*parse_graph(read_text("tests/schedule/" + entry.path().filename().string())));
    add_graph(*graph, seed += 10, library, runs);
  }
  add_graph(*lowered_graph(*train_step_graph(20, 16, 10, 12)), 1, library, runs);
  add_graph(*lowered_graph(*train_step_graph(100, 64, 10, 100)), 1, library, runs);
  CHECK(runs.size() > 20);
  check_launches(library, runs);
}

TEST_CASE("kernels of random graphs as CUDA source", "[cuda]") {
  const auto [first, last] = seeds(40);
  for (uint64_t begin = first; begin <= last; begin += 40) {
    ShimLibrary library;
    std::vector<Run> runs;
    for (uint64_t seed = begin; seed <= std::min(begin + 39, last); seed++) {
      if (const auto graph = lowered_if_allowed(*random_graph(uint32_t(seed))))
        add_graph(*graph, uint32_t(seed), library, runs);
    }
    check_launches(library, runs);
  }
}

}  // namespace lutra
