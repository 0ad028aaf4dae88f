// Measures the rates of memory and arithmetic that this machine can reach.
#pragma once
#include <cstddef>
#include <string>

namespace lutra {

// Bytes per second at which `threads` threads read memory of `bytes` bytes each, or copy within it (bytes read plus
// written).
double read_rate(int threads, size_t bytes);
double copy_rate(int threads, size_t bytes);
// Floating-point operations per second (float32) of multiply-adds in registers.
double fma_rate(int threads);
std::string cpu_name();

}  // namespace lutra
