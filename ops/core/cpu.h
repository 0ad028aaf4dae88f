// What this processor is: whether x86-64, and what it has of that family's extensions. Only here and in files that are
// named after an instruction set (CMakeLists.txt compiles those for their family alone) does code ask.
#pragma once

namespace lutra::cpu {

#ifdef __x86_64__
inline constexpr bool kX64 = true, kArm64 = false;
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
inline bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
inline bool has_f16c() { return __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx"); }
inline void pause() { __builtin_ia32_pause(); }
#else
inline constexpr bool kX64 = false;
#ifdef __aarch64__
inline constexpr bool kArm64 = true;
inline void pause() { asm volatile("yield"); }
#else
inline constexpr bool kArm64 = false;
inline void pause() {}
#endif
constexpr bool has_avx2() { return false; }
constexpr bool has_avx512() { return false; }
constexpr bool has_f16c() { return false; }
#endif

}  // namespace lutra::cpu
