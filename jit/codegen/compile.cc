// Compiles a verified kernel for an instruction set. This is the only place that chooses between code generators.
#include <cstdio>
#include <mutex>
#include <set>

#include "jit/codegen/arm64/code.h"
#include "jit/codegen/kernel.h"
#include "jit/codegen/machine/native_code.h"
#include "jit/codegen/machine/publish.h"
#include "jit/codegen/x64/code.h"
#include "jit/loop/interp.h"
#include "ops/core/error.h"

namespace lutra {
namespace {

// The interpreter as code. The exact mode serves machines without a code generator, and is the reference in tests. The
// wide mode judges tolerances there.
struct InterpretedCode : Code {
  InterpretedCode(const loop::Kernel& k, bool wide, int look_after) : kernel(k), wide(wide), look_after(look_after) {}
  void run_block(void* block) const override { kernel.run(block, wide, look_after); }
  loop::DecodedKernel kernel;
  const bool wide;
  const int look_after;
};

std::shared_ptr<Code> interpreted(const loop::Kernel& kernel, bool wide, bool listing, int look_after) {
  auto code = std::make_shared<InterpretedCode>(kernel, wide, look_after);
  if (listing) code->listing = print(kernel);
  return code;
}

// Returns scalar code, or the interpreter; prints each reason for the interpreter once.
std::shared_ptr<Code> compile_arm64(const loop::Kernel& kernel, bool listing, int look_after) {
  const std::string why = arm64::refusal(kernel);
  if (why.empty()) return arm64::compile(kernel, listing);
  static std::mutex mutex;
  static std::set<std::string> reported;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (reported.insert(why).second) {
      std::fprintf(stderr, "lutra: arm64: kernel %s and its like are interpreted: %s\n", kernel.name.c_str(),
                   why.c_str());
    }
  }
  return interpreted(kernel, false, listing, look_after);
}

}  // namespace

std::shared_ptr<Code> compile_kernel(const loop::Kernel& kernel, const KernelTarget& target, bool listing) {
  const std::string& isa = target.isa;
  const std::string wrong = loop::verify(kernel);
  if (!wrong.empty()) fail_internal("kernel ", kernel.name, ": ", wrong, "\n", print(kernel));
  if (isa == "interp" || isa == "wide") return interpreted(kernel, isa == "wide", listing, target.look_after);
  if (isa == "avx512") {
    if (!x64::has_avx512()) fail("isa: this machine has no avx512");
    return x64::compile(kernel, x64::Isa::kAvx512, listing, target.look_after);
  }
  if (isa == "avx2") {
    if (!x64::has_avx2()) fail("isa: this machine has no avx2 with fma and f16c");
    return x64::compile(kernel, x64::Isa::kAvx2, listing, target.look_after);
  }
  if (isa == "arm64") {
    if (!arm64::runs_here()) fail("isa: this machine is no AArch64");
    return compile_arm64(kernel, listing, target.look_after);
  }
  fail("isa: \"", isa, "\" is not one of avx512, avx2, arm64, interp, wide");
}

LookFn* look_entry() { return x64::look_entry(); }

std::string image_of(const Code& code) {
  const auto* native = dynamic_cast<const NativeCode*>(&code);
  return native ? std::string(native->memory.as<const char*>(), native->memory.bytes()) : "";
}

std::shared_ptr<Code> load_kernel(std::string_view image) {
  PublishedCode published;
  check_step(publish(image, &published), str("of ", image.size(), " bytes"));
  auto code = std::make_shared<NativeCode>();
  code->set(std::move(published));
  return code;
}

const char* best_isa() {
  if (arm64::runs_here()) return "arm64";
  return x64::has_avx512() ? "avx512" : x64::has_avx2() ? "avx2" : "interp";
}

}  // namespace lutra
