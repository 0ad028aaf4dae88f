// The precision of float32 products on devices with tensor cores. These are settings of the process.
#pragma once
#include <cstdint>

namespace lutra {

// PyTorch's: "highest" is float32; "high" and "medium" let tensor cores round operands to TF32.
enum class MatmulPrecision : uint8_t { kHighest, kHigh, kMedium };
MatmulPrecision matmul_precision();
void set_matmul_precision(MatmulPrecision precision);
// Returns whether convolutions may use TF32. The default is true, as in PyTorch (torch.backends.cudnn.allow_tf32).
bool convolution_tf32();
void set_convolution_tf32(bool allowed);

}  // namespace lutra
