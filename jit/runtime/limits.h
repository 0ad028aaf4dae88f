// What the machine can do at most: rates of memory and arithmetic, measured.
#pragma once
#include <cstddef>
#include <string>

namespace lutra {

// Bytes per second that `threads` threads read from, or copy within (bytes read plus written), memory of so many bytes
// each.
double read_rate(int threads, size_t bytes);
double copy_rate(int threads, size_t bytes);
// Floating-point operations per second (float32) of multiply-adds in registers.
double fma_rate(int threads);
std::string cpu_name();

}  // namespace lutra
