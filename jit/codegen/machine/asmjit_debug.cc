// Replaces asmjit's debug functions. Debian's libasmjit.a refers to stderr in a way that only executables may. Its
// object file with these three functions would make it impossible to link liblutra.so.
#include <asmjit/core.h>

#include <cstdio>
#include <cstdlib>

ASMJIT_BEGIN_NAMESPACE

const char* DebugUtils::errorAsString(Error error) noexcept {
  switch (error) {
    case kErrorOk: return "no error";
    case kErrorOutOfMemory: return "out of memory";
    case kErrorInvalidArgument: return "invalid argument";
    case kErrorInvalidState: return "invalid state";
    case kErrorInvalidInstruction: return "invalid instruction";
    case kErrorInvalidOperandSize: return "invalid operand size";
    case kErrorInvalidAddress: return "invalid address";
    case kErrorInvalidDisplacement: return "invalid displacement";
    case kErrorInvalidPhysId: return "invalid physical register";
    case kErrorInvalidVirtId: return "invalid virtual register";
    case kErrorInvalidUseOfGpq: return "invalid use of a 64-bit register";
    case kErrorInvalidLabel: return "invalid label";
    case kErrorLabelAlreadyBound: return "label bound twice";
    case kErrorTooManyVirtRegs: return "too many virtual registers";
    case kErrorConsecutiveRegsAllocation: return "consecutive registers cannot be allocated";
    default: return "asmjit error (see asmjit's ErrorCode)";
  }
}

void DebugUtils::debugOutput(const char* str) noexcept { std::fputs(str, stderr); }

void DebugUtils::assertionFailed(const char* file, int line, const char* msg) noexcept {
  std::fprintf(stderr, "asmjit: assertion failed at %s:%d: %s\n", file, line, msg);
  std::abort();
}

#ifndef LUTRA_DEBUG
// Debian's library asserts this after each instruction, over all registers. It takes half of the time to compile a
// large kernel. It is inline there, so this definition takes precedence.
class RAAssignment {
 public:
  bool verify() noexcept;
};
bool RAAssignment::verify() noexcept { return true; }
#endif

ASMJIT_END_NAMESPACE
