// Tests that NVRTC compiles generated kernels of all kinds for sm_80 to sm_100, which needs no GPU: the golden ones,
// those of graphs' plans, and random ones (only for sm_80 and sm_90). tests/cuda_extern/machine.cc tests the kernels of
// ops/extern/cuda.
#include <atomic>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <thread>

#include "jit/codegen/cuda/code.h"
#include "jit/device/cuda/machine.h"
#include "jit/schedule/schedule.h"
#include "ops/cuda/loaded_module.h"
#include "tests/codegen/random_kernel.h"
#include "tests/cuda_codegen/cubins.h"
#include "tests/golden.h"
#include "tests/schedule/graphs.h"

namespace lutra {
namespace {

void add_plan(const Graph& graph, std::set<std::string>& sources) {
  const Plan plan = schedule(graph);
  for (const Launch& l : plan.launches) {
    const auto* k = std::get_if<KernelLaunch>(&l);
    if (!k) continue;
    std::vector<int64_t> hints;
    for (ExprId e : k->ints) hints.push_back(plan.exprs[size_t(e)].i);
    sources.insert(cuda::generate(k->kernel, hints, cuda::stated_machine())->text);
  }
}

void check_compiles(const std::set<std::string>& sources, size_t least, bool everywhere) {
  if (!cuda::has_nvrtc()) {
    WARN("skipped: " << cuda::nvrtc_problem());
    return;
  }
  CHECK(sources.size() >= least);
  CHECK((everywhere ? compile_problems(sources, all_archs()) : compile_problems(sources)) == "");
}

}  // namespace

std::vector<int> all_archs() {
  std::vector<int> known = {80, 86, 89, 90};
  // CUDA 12.8 was the first to know it.
  const std::string nothing = "extern \"C\" __global__ void nothing() {}";
  if (compile_problems({nothing}, {100}).empty()) known.push_back(100);
  return known;
}

std::string compile_problems(const std::set<std::string>& sources, const std::vector<int>& archs) {
  const std::vector<std::string> all(sources.begin(), sources.end());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::string problems;
  const auto work = [&] {
    for (size_t i; (i = next++) < all.size() * archs.size();) {
      std::string problem;
      try {
        if (cuda::compile_fresh_cubin(all[i / archs.size()], archs[i % archs.size()]).substr(0, 4) != "\177ELF")
          problem = "no cubin\n";
      } catch (const Error& e) {
        problem = e.what();
      }
      const std::lock_guard lock(mutex);
      problems += problem;
    }
  };
  std::vector<std::thread> others;
  for (unsigned t = 1; t < std::thread::hardware_concurrency(); t++) others.emplace_back(work);
  work();
  for (std::thread& t : others) t.join();
  return problems;
}

TEST_CASE("golden kernels compile to cubins", "[nvrtc]") {
  std::set<std::string> sources;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/cuda_codegen"))) {
    if (entry.path().extension() != ".kernel") continue;
    const std::string text = read_text("tests/cuda_codegen/" + entry.path().filename().string());
    const size_t line = text.find('\n');
    std::istringstream first(text.substr(1, line));
    std::vector<int64_t> hints;
    for (int64_t n; first >> n;) hints.push_back(n);
    sources.insert(cuda::generate(loop::parse_kernel(text.substr(line + 1)), hints, cuda::stated_machine())->text);
  }
  check_compiles(sources, 6, true);
}

TEST_CASE("kernels of graphs' plans compile to cubins", "[nvrtc]") {
  std::set<std::string> sources;
  const Device gpu{DeviceType::kCUDA, 0};
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/schedule"))) {
    if (entry.path().extension() != ".graph") continue;
    auto graph = lowered_graph(*parse_graph(read_text("tests/schedule/" + entry.path().filename().string())));
    move_to(*graph, gpu);
    add_plan(*graph, sources);
  }
  auto step = lowered_graph(*train_step_graph(100, 64, 10, 100));
  move_to(*step, gpu);
  add_plan(*step, sources);
  for (uint32_t seed = 1; seed <= rounds(10); seed++) {
    if (const auto graph = lowered_if_allowed(*random_graph(seed, gpu))) add_plan(*graph, sources);
  }
  check_compiles(sources, 30, true);
}

// The reductions of a loop combine their partials in one block's shared memory, of 48 KB.
TEST_CASE("kernels of many reductions compile to cubins", "[nvrtc]") {
  std::set<std::string> sources;
  constexpr int kCount = 27;
  for (const char* type : {"f32", "f64"}) {
    std::string accs, sums, stores;
    for (int i = 1; i <= kCount; i++) {
      accs += str(i > 1 ? ", %" : "%", i, ": sum.", type, " x32");
      sums += str("accum.", type, " %", i, ", %0\n");
      stores += str("store.", type, " p1[", i - 1, " + i0*", kCount, "], %", i, "\n");
    }
    const std::string text = str("kernel @k(p0: ", type, " in, p1: ", type, " out; n0, n1;) {\n",
                                 "for i0 in n0 parallel vector {\nfor i1 in n1 lanes acc(", accs, ") {\n%0 = load.",
                                 type, " p0[i1*n0 + i0]\n", sums, "}\n", stores, "} }");
    const std::vector<int64_t> hints{512, 8192};
    sources.insert(cuda::generate(loop::parse_kernel(text), hints, cuda::stated_machine())->text);
  }
  check_compiles(sources, 2, false);
}

TEST_CASE("random kernels compile to cubins", "[nvrtc]") {
  std::set<std::string> sources;
  for (uint64_t seed = 1; seed <= rounds(24); seed++) {
    const Case c = KernelGenerator(seed, true).run();
    sources.insert(cuda::generate(c.kernel, c.ints, cuda::stated_machine())->text);
  }
  check_compiles(sources, rounds(20), false);
}

}  // namespace lutra
