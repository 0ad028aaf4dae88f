// Compiles kernels, and says which kernels the processor can run.
#include "jit/codegen/arm64/code.h"

#include "jit/codegen/arm64/emitter.h"
#include "jit/codegen/machine/compile_native.h"
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
  return compile_native<a64::Compiler>(kernel, listing, [&](a64::Compiler& cc) { KernelEmitter(cc, kernel).emit(); });
}

}  // namespace lutra::arm64
