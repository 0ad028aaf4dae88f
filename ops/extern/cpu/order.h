// Converts elements to unsigned keys with the order of sort: ascending, -0 equal to 0, NaNs equal and last.
#pragma once
#include <vector>

#include "ops/extern/cpu/elements.h"
#include "ops/extern/extern.h"

namespace lutra {

namespace order {

template <class Bits>
constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(Bits) - 1));

template <class Bits>
Bits float_key(Bits b, Bits infinity) {
  using Signed = std::make_signed_t<Bits>;
  const auto rest = Signed(b & Bits(~kSign<Bits>));  // signed, because vectors compare signed
  const auto below = Bits(-Signed(Signed(b) < 0)), nan = Bits(-Signed(rest > Signed(infinity)));
  const auto some = Bits(-Signed(rest != 0));
  return Bits((((b ^ below) & some) | (kSign<Bits> & Bits(~below | ~some))) | nan);
}

inline uint8_t key(Bool8 v) { return v.v != 0; }
inline uint8_t key(uint8_t v) { return v; }
inline uint8_t key(int8_t v) { return uint8_t(v) ^ 0x80; }
inline uint16_t key(int16_t v) { return uint16_t(uint16_t(v) ^ 0x8000); }
inline uint32_t key(int32_t v) { return uint32_t(v) ^ 0x80000000; }
inline uint64_t key(int64_t v) { return uint64_t(v) ^ kSign<uint64_t>; }
inline uint16_t key(Half v) { return float_key<uint16_t>(v.bits, 0x7c00); }
inline uint16_t key(BFloat16 v) { return float_key<uint16_t>(v.bits, 0x7f80); }
inline uint32_t key(float v) { return float_key<uint32_t>(std::bit_cast<uint32_t>(v), 0x7f800000); }
inline uint64_t key(double v) { return float_key<uint64_t>(std::bit_cast<uint64_t>(v), 0x7ff0000000000000); }

template <class T>
using Key = decltype(key(T()));

}  // namespace order

// Returns the positions of a vector's elements in sorted order. Equal elements keep their order.
std::vector<uint32_t> stable_order(const ExternView& vector, ParallelFor parallel);

}  // namespace lutra
