// What asmjit assembled in, published code out: memory that is never writable and executable at once.
#pragma once
#include <asmjit/core.h>

#include <new>
#include <string>
#include <string_view>

#include "jit/codegen/machine/published_code.h"

namespace lutra {

// Keeps the first message: throwing through asmjit would leave it in no state to go on.
struct FirstError : asmjit::ErrorHandler {
  void handleError(asmjit::Error, const char* text, asmjit::BaseEmitter*) override {
    if (message.empty()) message = text;
  }
  std::string message;
};

// Where memory is out asmjit gives null: nothing is emitted from there on, and all that was is dropped.
struct CompileErrors : FirstError {
  void handleError(asmjit::Error e, const char* text, asmjit::BaseEmitter* emitter) override {
    if (e == asmjit::kErrorOutOfMemory) throw std::bad_alloc();
    FirstError::handleError(e, text, emitter);
  }
};

// A step of compiling a kernel.
void check_step(asmjit::Error e, const std::string& kernel);
// Before code has a CompileErrors: asmjit attaches below noexcept.
void attach(asmjit::CodeHolder& code, asmjit::BaseEmitter& emitter, const std::string& kernel);

asmjit::Error publish(asmjit::CodeHolder& code, PublishedCode* out);
// Of position-independent code that was published before, perhaps by another process.
asmjit::Error publish(std::string_view image, PublishedCode* out);

}  // namespace lutra
