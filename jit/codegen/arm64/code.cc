// Runs the emitter and asmjit's back end, and publishes the code.
#include "jit/codegen/arm64/code.h"

#include "jit/codegen/arm64/emitter.h"
#include "jit/codegen/machine/native_code.h"
#include "jit/codegen/machine/publish.h"
#include "jit/loop/walk.h"
#include "ops/core/error.h"

namespace lutra::arm64 {
bool runs_here() { return asmjit::Environment::host().isFamilyAArch64(); }

std::string refusal(const loop::Kernel& kernel) {
  std::string why;
  loop::for_each_inst(kernel.body, [&](const Inst& in) {
    if (form_of(in.type) == Form::kNone) why = str("no code for ", name(in.op), ".", info(in.type).ir_name);
  });
  loop::for_each_loop(kernel.body, [&](const Loop& l) {
    for (const Accumulator& a : l.accs) {
      if (a.lanes > loop::kMaxCpuLanes) why = str("reductions of ", a.lanes, " lanes");
    }
  });
  return why;
}

std::shared_ptr<Code> compile(const loop::Kernel& kernel, bool listing) {
  auto result = std::make_shared<NativeCode>();
  asmjit::CodeHolder code;
  check_step(code.init(asmjit::Environment::host()), kernel.name);
  a64::Compiler cc;
  attach(code, cc, kernel.name);
  CompileErrors errors;
  code.setErrorHandler(&errors);
  asmjit::StringLogger logger;
  if (listing) code.setLogger(&logger);
  KernelEmitter(cc, kernel).emit();
  const asmjit::Error finalized = cc.finalize();
  if (!errors.message.empty()) fail_internal("codegen: kernel ", kernel.name, ": ", errors.message);
  check_step(finalized, kernel.name);
  PublishedCode published;
  check_step(publish(code, &published), kernel.name);
  result->set(std::move(published));
  if (listing) result->listing.assign(logger.data(), logger.dataSize());
  return result;
}

}  // namespace lutra::arm64
