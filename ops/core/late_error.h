// Errors that are reported later than they happen.
#pragma once
#include "ops/core/error.h"

namespace lutra {

// The error of a GPU launch, raised when the host next waits. It names the op that failed, not the op that runs now.
struct LateError : Error {
  explicit LateError(const Error& error) : Error(error) {}
};

}  // namespace lutra
