// What asmjit assembled in, published code out: memory that is never writable and executable at once.
#pragma once
#include <asmjit/core.h>

#include <string>
#include <string_view>

#include "jit/codegen/machine/published_code.h"

namespace lutra {

// Keeps the first message: throwing through asmjit would leave it in no state at all.
struct FirstError : asmjit::ErrorHandler {
  void handleError(asmjit::Error, const char* text, asmjit::BaseEmitter*) override {
    if (message.empty()) message = text;
  }
  std::string message;
};

asmjit::Error publish(asmjit::CodeHolder& code, PublishedCode* out);
// Of position-independent code that was published before, perhaps by another process.
asmjit::Error publish(std::string_view image, PublishedCode* out);

}  // namespace lutra
