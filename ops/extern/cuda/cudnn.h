// cuDNN's convolutions. The library is found at run time.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Returns whether the library was found. The answer never changes within a process. If not, one message tells why.
bool cudnn_available();

enum class CudnnPass { kForward, kInput, kWeight };

// One convolution between images x, weights w and maps y of one dtype. All are row-major, or all have channels
// innermost.
struct CudnnConvolution {
  CudnnPass pass;
  bool channels_last, tf32;
  ExternView x, w, y;
  int padding[2], stride[2], dilation[2], groups;
};
// Dims from innermost to outermost, indexed by channels_last.
inline constexpr int kCudnnOrder[2][4] = {{3, 2, 1, 0}, {1, 3, 2, 0}};
// Returns whether the library's heuristics name a deterministic algorithm. The first such algorithm is used. It is a
// function of the GPU, the library's version, and everything but pointers and strides.
bool cudnn_finds(Launcher& l, const CudnnConvolution& c);
// Computes y, x or w from the others by that algorithm.
void cudnn_convolve(Launcher& l, const CudnnConvolution& c);

}  // namespace lutra::cuda
