// Random numbers from Philox words, after jit/loop/math.h.
inline double uniform_double(const lutra::loop::Words<uint64_t>& w) {
  return lutra::loop::unit_double<double>(w.w[0], w.w[1]);
}
// unit_single in floats: 24 bits are exact in them.
inline float uniform_single(const lutra::loop::Words<uint64_t>& w) {
  return float(uint32_t(w.w[0]) >> 8) * 5.9604644775390625e-8f;
}
