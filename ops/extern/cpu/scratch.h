// Working memory of the library kernels. A slot gives memory of this thread, aligned to 64 bytes and kept between
// calls. It grows and is never cleared.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/core/error.h"

namespace lutra {

// Slots. Memory that is in use at the same time must have different slots.
enum class Scratch {
  kMatmulA,
  kMatmulB,
  kMatmulOut,
  kMatmulSums,
  kMatmulParts,
  kConvImage,
  kConvMap,
  kConvWeight,
  kConvPartial,
  kConvRows,
  kAttention,
  kWeightRows,
  kWeightInput,
  kWeightScales,
  kWeightWide,
  kWeightOut,
  kCount,
};

// `who` is the op that the out-of-memory message names.
void* scratch(Scratch slot, size_t bytes, const char* who);

template <class T>
T* scratch(Scratch slot, int64_t elements, const char* who) {
  if (elements < 0 || size_t(elements) > SIZE_MAX / 2 / sizeof(T)) {
    throw Error(ErrorKind::kMemory, str(who, ": out of memory"));
  }
  return static_cast<T*>(scratch(slot, size_t(elements) * sizeof(T), who));
}

}  // namespace lutra
