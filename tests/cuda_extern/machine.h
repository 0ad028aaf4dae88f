// A machine without a GPU that runs this folder's kernels. The host's compiler compiles their source; the threads of a
// block are fibers. If NVRTC is installed, it must accept the sources, too, for sm_80 and sm_90.
#pragma once
#include <map>
#include <set>
#include <string>

#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

class HostMachine : public Emulator {
 public:
  HostMachine();
  ~HostMachine() override;
  void launch(const std::string& text, const char* name, const ExternGrid& grid, unsigned block,
              void** params) override;
  // Launches so far, by kernel.
  std::map<std::string, int> launches;

 private:
  std::string folder_;
  std::map<std::string, void*> loaded_;
  std::set<std::string> texts_;
};

}  // namespace lutra::cuda
