// Writes, compiles and opens a library of generated kernels.
#include "tests/cuda_codegen/shim_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "jit/codegen/cuda/device_text.h"
#include "jit/device/cuda/machine.h"
#include "ops/cuda/loaded_module.h"
#include "tests/golden.h"

namespace lutra {

ShimLibrary::~ShimLibrary() {
  if (library_) dlclose(library_);
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

size_t ShimLibrary::add(const loop::Kernel& kernel, const std::vector<int64_t>& hints) {
  sources_.push_back(cuda::generate(kernel, hints, cuda::stated_machine()));
  return sources_.size() - 1;
}

void ShimLibrary::build() {
  std::string path = (std::filesystem::temp_directory_path() / "lutra-shim-XXXXXX").string();
  REQUIRE(mkdtemp(path.data()));
  folder_ = path;
  const std::string source = folder_ + "/kernels.cc", library = folder_ + "/kernels.so";
  {
    // Writes the common beginning of all sources once.
    std::ofstream out(source);
    out << "#include \"" << source_path("tests/cuda_codegen/shim.h") << "\"\n"
        << cuda::kDependentLaunch << cuda::device_scalars << cuda::device_math << cuda::loop_math
        << cuda::loop_functions << cuda::device_random << cuda::device_reduce;
    for (size_t i = 0; i < sources_.size(); i++) {
      const std::string& text = sources_[i]->text;
      out << "namespace k" << i << " {\n#define " << sources_[i]->entry << " kernel" << i << "\n"
          << text.substr(text.find("struct Block {")) << "#undef " << sources_[i]->entry << "\n}\n"
          << "extern \"C\" void run" << i << "(const void* block, const unsigned* grid, const unsigned* threads) {\n"
          << "  k" << i << "::Block b;\n  memcpy(&b, block, sizeof b);\n"
          << "  shim::launch([](void* p) { k" << i << "::kernel" << i << "(*static_cast<k" << i
          << "::Block*>(p)); }, &b, grid, threads);\n}\n";
    }
  }
  const char* compiler = getenv("CXX");
  const std::string command = str(compiler ? compiler : "c++", " -std=c++20 -w -O0 -ffp-contract=off -fPIC -shared -o ",
                                  library, " ", source, " 2>&1");
  REQUIRE(std::system(command.c_str()) == 0);
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  INFO((library_ ? "" : dlerror()));
  REQUIRE(library_);
}

std::vector<std::unique_ptr<Bytes>> ShimLibrary::run(size_t i, const Case& c, LaunchFault* fault) const {
  std::vector<std::unique_ptr<Bytes>> copies;
  for (auto& b : c.buffers) copies.push_back(std::make_unique<Bytes>(*b));
  std::vector<uint64_t> block = c.block(copies, fault);
  cuda::Grid grid;
  if (!sources_[i]->grid(c.ints.data(), grid)) return copies;
  using Run = void (*)(const void*, const unsigned*, const unsigned*);
  Run f = reinterpret_cast<Run>(dlsym(library_, str("run", i).c_str()));
  REQUIRE(f);
  f(block.data(), grid.blocks, grid.threads);
  return copies;
}

void ShimLibrary::check(size_t i, const Case& c) const {
  const std::string d = difference(c.run("interp"), run(i, c));
  if (d.empty()) return;
  INFO(print(c.kernel));
  INFO(text(i).substr(text(i).find("struct Block {")));
  INFO("ints " << [&] {
    std::string s;
    for (int64_t n : c.ints) s += std::to_string(n) + " ";
    return s;
  }());
  FAIL_CHECK("exact and CUDA source differ: " << d);
}

}  // namespace lutra
