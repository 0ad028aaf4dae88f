// A kernel as a program for the one kernel that runs any (device/interpreter.cuh): what launches it at once, while
// NVRTC still compiles its own.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/codegen/cuda/code.h"
#include "ops/cuda/context.h"

namespace lutra::cuda {

inline constexpr const char* kInterpreter = "lutra_interpreter";  // the __global__ function's name
inline constexpr size_t kInterpreterWords = 508;                  // of 8 bytes, that its parameter has

// The interpreter as CUDA C++, a whole translation unit.
std::string interpreter_source();
// What tools/lutra_ptx.cc made of it when Lutra was built, compressed by zlib; nothing where there was no NVRTC.
struct InterpreterImage {
  int arch;
  bool ptx;  // else a cubin
  const unsigned char* bytes;
  size_t size, whole;  // compressed and not
};
extern const InterpreterImage* const interpreter_images;
extern const size_t interpreter_image_count;
// The interpreter on a GPU: a cubin made when Lutra was built, else one of the disk cache. Where there is neither, or
// the driver refuses it, the background makes one of the PTX or by this machine's NVRTC; null until then, or wait.
FunctionHandle interpreter(Context& c, bool wait);

class Interpreted {
 public:
  // Null for a kernel that it cannot hold.
  static std::unique_ptr<Interpreted> make(const loop::Kernel& kernel, std::span<const int64_t> hints,
                                           const Machine& machine);
  // False where nothing is to be done. block: as jit/loop/abi.h has it.
  bool grid(const int64_t* ints, Grid& out) const;
  // About how long a launch takes, in instructions: of the GPU as a whole and of one thread.
  struct Cost {
    double total = 0, thread = 0;
  };
  Cost cost(const int64_t* ints) const;
  // The interpreter's parameter for a block.
  void fill(const void* block, uint64_t (&words)[kInterpreterWords]) const;

 private:
  friend class Encoder;
  struct Size {
    loop::Coef n;
    int64_t of(const int64_t* ints) const { return n.arg >= 0 ? ints[n.arg] : n.literal; }
  };
  // A loop of the body, or the body: what it costs is its own instructions and its loops', each time.
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
