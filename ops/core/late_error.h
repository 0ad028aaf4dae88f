// Errors told later than they happened.
#pragma once
#include "ops/core/error.h"

namespace lutra {

// What a launch on a GPU met, raised where the host next waits: it names the op that met it, whichever runs now.
struct LateError : Error {
  explicit LateError(const Error& error) : Error(error) {}
};

}  // namespace lutra
