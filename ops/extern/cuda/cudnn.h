// cuDNN's convolutions, found at run time.
#pragma once
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {

// Whether the library was found; the answer never changes within a process. A message says once why not.
bool cudnn_available();

enum class CudnnPass { kForward, kInput, kWeight };

// One convolution between images x, weights w and maps y of one dtype; all row-major or all with channels innermost.
struct CudnnConvolution {
  CudnnPass pass;
  bool channels_last, tf32;
  ExternView x, w, y;
  int padding[2], stride[2], dilation[2], groups;
};
// Dims from the innermost outwards, by channels_last.
inline constexpr int kCudnnOrder[2][4] = {{3, 2, 1, 0}, {1, 3, 2, 0}};
// Whether the library's heuristics name a deterministic algorithm; the first is the one. It is a function of everything
// but pointers and strides, of the GPU and of the library's version.
bool cudnn_finds(Launcher& l, const CudnnConvolution& c);
// Computes y, x or w from the others by that algorithm.
void cudnn_convolve(Launcher& l, const CudnnConvolution& c);

}  // namespace lutra::cuda
