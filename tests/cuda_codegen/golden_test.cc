// Golden texts: what becomes of each kind of kernel. What all sources begin with is left out.
#include <filesystem>

#include "jit/codegen/cuda/code.h"
#include "jit/device/cuda/machine.h"
#include "tests/codegen/support.h"
#include "tests/golden.h"

namespace lutra {

// tests/cuda_codegen/<name>.kernel: the likely arguments in a comment of the first line, then the kernel.
TEST_CASE("CUDA source of each kind of kernel", "[cuda]") {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/cuda_codegen"))) {
    if (entry.path().extension() != ".kernel") continue;
    const std::string stem = entry.path().stem();
    INFO(stem);
    const std::string text = read_text("tests/cuda_codegen/" + stem + ".kernel");
    const size_t line = text.find('\n');
    std::istringstream first(text.substr(1, line));
    std::vector<int64_t> hints;
    for (int64_t n; first >> n;) hints.push_back(n);
    const loop::Kernel k = loop::parse_kernel(text.substr(line + 1));
    REQUIRE(verify(k) == "");
    const auto source = cuda::generate(k, hints, cuda::stated_machine());
    check_golden("cuda_codegen/" + stem + ".cu", "// " + cuda::mapping_class(k, hints, cuda::stated_machine()) + "\n" +
                                                     source->text.substr(source->text.find("struct Block {")));
    count++;
  }
  CHECK(count >= 6);
}

}  // namespace lutra
