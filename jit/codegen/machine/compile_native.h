// Runs a kernel's emitter and asmjit's back end, and publishes the code.
#pragma once
#include "jit/codegen/machine/native_code.h"
#include "jit/codegen/machine/publish.h"
#include "jit/loop/loop.h"
#include "ops/core/error.h"

namespace lutra {

// emit(cc) emits the kernel by an asmjit compiler. Throws if it, asmjit or the machine's memory fails.
template <class Compiler, class Emit>
std::shared_ptr<Code> compile_native(const loop::Kernel& kernel, bool listing, const Emit& emit) {
  auto result = std::make_shared<NativeCode>();
  asmjit::CodeHolder code;
  check_step(code.init(asmjit::Environment::host()), kernel.name);
  Compiler cc;
  attach(code, cc, kernel.name);
  CompileErrors errors;
  code.setErrorHandler(&errors);
  asmjit::StringLogger logger;
  if (listing) code.setLogger(&logger);
  emit(cc);
  const asmjit::Error finalized = cc.finalize();
  if (!errors.message.empty()) fail_internal("codegen: kernel ", kernel.name, ": ", errors.message);
  check_step(finalized, kernel.name);
  PublishedCode published;
  check_step(publish(code, &published), kernel.name);
  result->set(std::move(published));
  if (listing) result->listing.assign(logger.data(), logger.dataSize());
  return result;
}

}  // namespace lutra
