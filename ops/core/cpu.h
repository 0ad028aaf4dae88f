// Features of this processor: whether it is x86-64, and which extensions it has. Only this file asks, beside files
// named after an instruction set, which CMakeLists.txt compiles for that family alone.
#pragma once

namespace lutra::cpu {

#ifdef __x86_64__
inline constexpr bool kX64 = true, kArm64 = false;
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
inline bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
inline bool has_f16c() { return __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx"); }
// Returns whether AMX's tiles of bfloat16 and int8, with AVX-512 for bfloat16, may be used. The first call asks the
// system for the right to use tiles, which the process then keeps (cpu_x64.cc).
bool has_amx();
inline void pause() { __builtin_ia32_pause(); }
inline unsigned float_mode() { return __builtin_ia32_stmxcsr(); }
inline void set_float_mode(unsigned mode) { __builtin_ia32_ldmxcsr(mode); }
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
constexpr bool has_amx() { return false; }
constexpr unsigned float_mode() { return 0; }
inline void set_float_mode(unsigned) {}
#endif

// A scope in which denormal operands and results of this thread's floats are zeros of their sign, if `flushes` is true.
// It has an effect on x86-64 only.
class FlushDenormals {
 public:
  explicit FlushDenormals(bool flushes) : flushes_(flushes), before_(float_mode()) {
    if (flushes_) set_float_mode(before_ | kBoth);
  }
  ~FlushDenormals() {
    if (flushes_) set_float_mode(before_ | (float_mode() & kSeen));
  }
  FlushDenormals(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kBoth = 0x8040, kSeen = 0x3f;
  const bool flushes_;
  const unsigned before_;
};

}  // namespace lutra::cpu
