// Publishes code that asmjit assembled, in memory that is never writable and executable at once.
#pragma once
#include <asmjit/core.h>

#include <new>
#include <string>
#include <string_view>

#include "jit/codegen/machine/published_code.h"

namespace lutra {

// Keeps the first message. It does not throw: an exception through asmjit would leave asmjit in an unusable state.
struct FirstError : asmjit::ErrorHandler {
  void handleError(asmjit::Error, const char* text, asmjit::BaseEmitter*) override {
    if (message.empty()) message = text;
  }
  std::string message;
};

// When memory is exhausted, asmjit returns null pointers. So this throws; the code emitted so far is dropped.
struct CompileErrors : FirstError {
  void handleError(asmjit::Error e, const char* text, asmjit::BaseEmitter* emitter) override {
    if (e == asmjit::kErrorOutOfMemory) throw std::bad_alloc();
    FirstError::handleError(e, text, emitter);
  }
};

// Throws if a step of compiling a kernel failed.
void check_step(asmjit::Error e, const std::string& kernel);
// Attaches the emitter. Call it before code has a CompileErrors: asmjit attaches within a noexcept function.
void attach(asmjit::CodeHolder& code, asmjit::BaseEmitter& emitter, const std::string& kernel);

asmjit::Error publish(asmjit::CodeHolder& code, PublishedCode* out);
// Publishes position-independent code that was published before, perhaps by another process.
asmjit::Error publish(std::string_view image, PublishedCode* out);

}  // namespace lutra
