// Tests the source of each kind of kernel by golden texts. The common beginning of all sources is left out.
#include <filesystem>
#include <set>

#include "jit/codegen/cuda/analysis.h"
#include "jit/codegen/cuda/code.h"
#include "jit/device/cuda/machine.h"
#include "tests/codegen/support.h"
#include "tests/golden.h"

namespace lutra {
namespace {

// tests/cuda_codegen/<name>.kernel: the likely arguments in a comment of the first line, then the kernel.
std::pair<loop::Kernel, std::vector<int64_t>> kernel_of(const std::string& stem) {
  const std::string text = read_text("tests/cuda_codegen/" + stem + ".kernel");
  const size_t line = text.find('\n');
  std::istringstream first(text.substr(1, line));
  std::vector<int64_t> hints;
  for (int64_t n; first >> n;) hints.push_back(n);
  return {loop::parse_kernel(text.substr(line + 1)), hints};
}

}  // namespace

TEST_CASE("CUDA source of each kind of kernel", "[cuda]") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/cuda_codegen"))) {
    if (entry.path().extension() != ".kernel") continue;
    const std::string stem = entry.path().stem();
    INFO(stem);
    const auto [k, hints] = kernel_of(stem);
    REQUIRE(verify(k) == "");
    const auto source = cuda::generate(k, hints, cuda::stated_machine());
    check_golden("cuda_codegen/" + stem + ".cu", "// " + cuda::mapping_class(k, hints, cuda::stated_machine()) + "\n" +
                                                     source->text.substr(source->text.find("struct Block {")));
    count++;
  }
  CHECK(count >= 6);
}

// The choices of the mapping for the same kernels, on two machines.
TEST_CASE("what the mapping weighs is golden", "[cuda]") {
  std::set<std::string> stems;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/cuda_codegen"))) {
    if (entry.path().extension() == ".kernel") stems.insert(entry.path().stem());
  }
  std::string told;
  for (const std::string& stem : stems) {
    const auto [k, hints] = kernel_of(stem);
    for (int arch : {90, 75}) {
      told += stem + ", sm_" + std::to_string(arch) + "\n";
      cuda::map_kernel(k, hints, cuda::stated_machine(arch), &told);
    }
  }
  check_golden("cuda_codegen/mapping.txt", told);
}

}  // namespace lutra
