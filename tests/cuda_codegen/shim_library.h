// In: kernels. Out: a library of their CUDA source, built by the host's compiler. Compares their runs with the exact
// interpreter.
#pragma once
#include <string>
#include <vector>

#include "jit/codegen/cuda/code.h"
#include "tests/codegen/support.h"

namespace lutra {

// A case of a kernel of a library.
struct Run {
  size_t kernel;
  Case c;
};

class ShimLibrary {
 public:
  ~ShimLibrary();
  // Numbered from 0; hints choose the mapping.
  size_t add(const loop::Kernel& kernel, const std::vector<int64_t>& hints);
  const std::string& text(size_t i) const { return sources_[i]->text; }
  void build();
  // Every buffer of the case as the kernel leaves it; the case's kernel is the i-th.
  std::vector<std::unique_ptr<Bytes>> run(size_t i, const Case& c, LaunchFault* fault = nullptr) const;
  // The kernel and the exact interpreter write the same.
  void check(size_t i, const Case& c) const;

 private:
  std::vector<std::unique_ptr<cuda::KernelSource>> sources_;
  std::string folder_;
  void* library_ = nullptr;
};

}  // namespace lutra
