// The measured work for x86-64 (limits_x64.cc): sums of n floats; multiply-adds, whose number is returned.
#pragma once
#include <cstddef>

namespace lutra {

float sum_avx2(const float* p, size_t n);
float sum_avx512(const float* p, size_t n);
double fma_avx2();
double fma_avx512();

}  // namespace lutra
