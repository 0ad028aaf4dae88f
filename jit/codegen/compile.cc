// A verified kernel and the name of an instruction set in; code out. The one place where instruction sets are chosen.
#include "jit/codegen/cuda/code.h"
#include "jit/codegen/kernel.h"
#include "jit/codegen/x64/code.h"
#include "jit/loop/interp.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

// The interpreter as code: the exact one serves machines that no code generator fits, and is the witness in tests,
// where the wide one judges tolerances.
struct InterpretedCode : Code {
  InterpretedCode(const loop::Kernel& k, bool wide) : kernel(k), wide(wide) {}
  void run_block(void* block) const override { kernel.run(block, wide); }
  loop::DecodedKernel kernel;
  const bool wide;
};

}  // namespace

std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing) {
  const std::string& isa = target.isa;
  const std::string wrong = loop::verify(kernel);
  if (!wrong.empty()) fail_internal("kernel ", kernel.name, ": ", wrong, "\n", print(kernel));
  if (target.device.type == DeviceType::kCUDA)
    return cuda::compile(kernel, target.hints, target.several, target.at_once, target.device, listing);
  if (isa == "interp" || isa == "wide") {
    auto code = std::make_shared<InterpretedCode>(kernel, isa == "wide");
    if (listing) code->listing = print(kernel);
    return code;
  }
  if (isa == "avx512") {
    if (!x64::has_avx512()) fail("isa: this machine has no avx512");
    return x64::compile(kernel, x64::Isa::kAvx512, listing);
  }
  if (isa == "avx2") {
    if (!x64::has_avx2()) fail("isa: this machine has no avx2 with fma and f16c");
    return x64::compile(kernel, x64::Isa::kAvx2, listing);
  }
  fail("isa: \"", isa, "\" is not one of avx512, avx2, interp, wide");
}

std::string target_key(const loop::Kernel& kernel, const KernelTarget& target) {
  if (target.device.type == DeviceType::kCPU) return target.isa;
  return to_string(target.device) + " " + cuda::mapping_class(kernel, target.hints) +
         (target.several ? " several" : "");
}

const char* best_isa() { return x64::has_avx512() ? "avx512" : x64::has_avx2() ? "avx2" : "interp"; }

}  // namespace lutra
