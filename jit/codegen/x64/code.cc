// Runs the emitter and asmjit's back end and copies the code into memory that is never writable and executable at once.
#include "jit/codegen/x64/code.h"

#include <asmjit/x86.h>

#include "jit/codegen/x64/emitter.h"
#include "ops/core/error.h"

namespace lutra::x64 {
namespace {

using asmjit::JitAllocator;

// One for the process, never destroyed: code may outlive other statics. Its methods are safe to call from any thread.
JitAllocator& allocator() {
  static JitAllocator* const a = [] {
    JitAllocator::CreateParams params{};
    params.options = asmjit::JitAllocatorOptions::kUseDualMapping;
    params.blockSize = 1 << 18;
    return new JitAllocator(&params);
  }();
  return *a;
}

struct NativeCode : Code {
  ~NativeCode() override {
    if (memory) allocator().release(memory);
  }
  void* memory = nullptr;
};

// Keeps the first message: throwing through asmjit would leave it in no state at all.
struct Errors : asmjit::ErrorHandler {
  void handleError(asmjit::Error, const char* text, asmjit::BaseEmitter*) override {
    if (message.empty()) message = text;
  }
  std::string message;
};

void check(asmjit::Error e, const std::string& kernel) {
  if (e != asmjit::kErrorOk) fail_internal("codegen: kernel ", kernel, ": ", asmjit::DebugUtils::errorAsString(e));
}

// Every instruction must be one of AVX2: this machine may have more and would not complain.
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

}  // namespace

bool has_avx512() {
  const asmjit::CpuFeatures::X86& f = asmjit::CpuInfo::host().features().x86();
  return f.hasAVX512_F() && f.hasAVX512_DQ() && f.hasAVX512_BW() && f.hasAVX512_VL() && f.hasAVX512_CDI() &&
         f.hasBMI2() && f.hasFMA();
}

bool has_avx2() {
  const asmjit::CpuFeatures::X86& f = asmjit::CpuInfo::host().features().x86();
  return f.hasAVX2() && f.hasFMA() && f.hasF16C() && f.hasBMI2();
}

std::shared_ptr<Code> compile(const loop::Kernel& kernel, Isa isa, bool listing) {
  auto result = std::make_shared<NativeCode>();
  asmjit::CodeHolder code;
  check(code.init(asmjit::Environment::host()), kernel.name);
  Errors errors;
  code.setErrorHandler(&errors);
  asmjit::StringLogger logger;
  if (listing) code.setLogger(&logger);
  x86::Compiler cc(&code);
#ifdef LUTRA_DEBUG
  cc.addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler |
                          asmjit::DiagnosticOptions::kValidateIntermediate);
#endif
  KernelEmitter(cc, kernel, isa).emit();
  if (listing && isa == Isa::kAvx2) check_features(cc, kernel.name);
  const asmjit::Error finalized = cc.finalize();
  if (!errors.message.empty()) fail_internal("codegen: kernel ", kernel.name, ": ", errors.message);
  check(finalized, kernel.name);
  check(code.flatten(), kernel.name);
  check(code.resolveUnresolvedLinks(), kernel.name);
  const size_t size = code.codeSize();
  void* writable = nullptr;
  check(allocator().alloc(&result->memory, &writable, size), kernel.name);
  check(code.relocateToBase(uint64_t(uintptr_t(result->memory))), kernel.name);
  check(code.copyFlattenedData(writable, size, asmjit::CopySectionFlags::kPadSectionBuffer), kernel.name);
  result->bytes = code.codeSize();
  result->entry = reinterpret_cast<KernelFn>(result->memory);
  if (listing) result->listing.assign(logger.data(), logger.dataSize());
  return result;
}

}  // namespace lutra::x64
