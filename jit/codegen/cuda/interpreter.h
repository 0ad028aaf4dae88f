// Kernels as programs for the interpreter, the one GPU kernel that runs any program (device/interpreter.cuh). So a
// kernel can be launched while NVRTC is still compiling it.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/codegen/cuda/code.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

inline constexpr const char* kInterpreter = "lutra_interpreter";  // the __global__ function's name
inline constexpr size_t kInterpreterWords = 508;                  // words of 8 bytes in its parameter

// Returns the interpreter as CUDA C++, a whole translation unit.
std::string interpreter_source();
// The interpreter as tools/lutra_ptx.cc compiled it in Lutra's build, compressed by zlib. There are no images if the
// build had no NVRTC.
struct InterpreterImage {
  int arch;
  bool ptx;  // false: a cubin
  const unsigned char* bytes;
  size_t size, whole;  // compressed and uncompressed
};
extern const InterpreterImage* const interpreter_images;
extern const size_t interpreter_image_count;
// Returns the interpreter on a GPU: a cubin from the build, or one from the disk cache. If there is none, or the driver
// refuses it, the background compiles the PTX or uses this machine's NVRTC. Until that is done, returns null, or waits
// if `wait` is set.
FunctionHandle interpreter(Context& c, bool wait);

class Interpreted {
 public:
  // Returns null if the interpreter cannot run the kernel.
  static std::unique_ptr<Interpreted> make(const loop::Kernel& kernel, std::span<const int64_t> hints,
                                           const Machine& machine);
  // Computes the grid. Returns false if there is nothing to do. block: see jit/loop/abi.h.
  bool grid(const int64_t* ints, Grid& out) const;
  // The approximate time of a launch, in instructions: of the GPU as a whole, and of one thread.
  struct Cost {
    double total = 0, thread = 0;
  };
  Cost cost(const int64_t* ints) const;
  // Writes the interpreter's parameter for a block.
  void fill(const void* block, uint64_t (&words)[kInterpreterWords]) const;

 private:
  friend class Encoder;
  struct Size {
    loop::Coef n;
    int64_t of(const int64_t* ints) const { return n.arg >= 0 ? ints[n.arg] : n.literal; }
  };
  // A loop of the body, or the body itself. Each time it costs its own instructions and those of its loops.
  struct Work {
    Size size;
    int threads = 1;  // that share its iterations
    double own = 0;
    int parent = -1;
  };
  std::vector<uint64_t> code_;
  size_t block_words_ = 0;
  std::vector<Size> nest_;
  std::vector<Work> work_;  // parents first
  bool flat_ = true, checks_ = false;
  unsigned threads_ = 128, shared_bytes_ = 0;
};

}  // namespace lutra::cuda
