// The texts at the head of generated kernels, embedded when Lutra is built (cmake/embed_text.cmake).
#pragma once

namespace lutra::cuda {
extern const char* const device_scalars;
extern const char* const device_reduce;
extern const char* const device_math;
extern const char* const device_random;
extern const char* const device_interpreter;
extern const char* const loop_math;       // jit/loop/math.h
extern const char* const loop_functions;  // jit/loop/functions.h
}  // namespace lutra::cuda
