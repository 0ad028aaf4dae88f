// The settings of precision.h.
#include "ops/extern/precision.h"

#include <atomic>

namespace lutra {
namespace {

std::atomic<MatmulPrecision> precision{MatmulPrecision::kHighest};
std::atomic<bool> convolutions{true};

}  // namespace

MatmulPrecision matmul_precision() { return precision.load(std::memory_order_relaxed); }
void set_matmul_precision(MatmulPrecision p) { precision.store(p, std::memory_order_relaxed); }
bool convolution_tf32() { return convolutions.load(std::memory_order_relaxed); }
void set_convolution_tf32(bool allowed) { convolutions.store(allowed, std::memory_order_relaxed); }

}  // namespace lutra
