// Compiles kernels, and says which kernels the processor can run.
#include "jit/codegen/x64/code.h"

#include <asmjit/x86.h>

#include "jit/codegen/machine/compile_native.h"
#include "jit/codegen/x64/emitter.h"
#include "ops/core/error.h"

namespace lutra::x64 {
namespace {

// Checks that every instruction belongs to AVX2. This machine may have more, and would run others without an error.
void check_features(x86::Compiler& cc, const std::string& kernel) {
  for (asmjit::BaseNode* n = cc.firstNode(); n; n = n->next()) {
    if (!n->isInst()) continue;
    const auto* in = n->as<asmjit::InstNode>();
    asmjit::CpuFeatures needed;
    if (in->id() == 0 || asmjit::InstAPI::queryFeatures(cc.arch(), in->baseInst(), in->operands(), in->opCount(),
                                                        &needed) != asmjit::kErrorOk) {
      continue;
    }
    const asmjit::CpuFeatures::X86& x = needed.x86();
    if (x.hasAVX512_F() || x.hasAVX512_BW() || x.hasAVX512_DQ() || x.hasAVX512_VL()) {
      fail_internal("codegen: kernel ", kernel, ": instruction ", in->id(), " needs AVX-512");
    }
  }
}

bool is_x64() { return asmjit::Environment::host().isFamilyX86(); }

}  // namespace

bool has_avx512() {
  const asmjit::CpuFeatures::X86& f = asmjit::CpuInfo::host().features().x86();
  return is_x64() && f.hasAVX512_F() && f.hasAVX512_DQ() && f.hasAVX512_BW() && f.hasAVX512_VL() && f.hasAVX512_CDI() &&
         f.hasBMI2() && f.hasFMA();
}

bool has_avx2() {
  const asmjit::CpuFeatures::X86& f = asmjit::CpuInfo::host().features().x86();
  return is_x64() && f.hasAVX2() && f.hasFMA() && f.hasF16C() && f.hasBMI2();
}

std::shared_ptr<Code> compile(const loop::Kernel& kernel, Isa isa, bool listing, int look_after) {
  return compile_native<x86::Compiler>(kernel, listing, [&](x86::Compiler& cc) {
#ifdef LUTRA_DEBUG
    cc.addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler |
                            asmjit::DiagnosticOptions::kValidateIntermediate);
#endif
    KernelEmitter(cc, kernel, isa, look_after).emit();
    if (listing && isa == Isa::kAvx2) check_features(cc, kernel.name);
  });
}

}  // namespace lutra::x64
