// Returns the message of the error that a call throws, or "no error".
#pragma once
#include <string>

#include "ops/core/error.h"

namespace lutra {

template <class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace lutra
