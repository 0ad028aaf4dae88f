// What the error says that a call raises, "no error" where it raises none.
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
