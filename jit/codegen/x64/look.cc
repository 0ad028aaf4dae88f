// The functions that generated code calls to look. They keep all registers. The flags tell whether to leave the kernel.
#include "jit/loop/look.h"
#include "jit/codegen/x64/code.h"

#ifdef __x86_64__

extern "C" {
// used by the assembly below only
[[gnu::used, gnu::visibility("hidden")]] int lutra_look_in_kernel() { return lutra::look_in_kernel(); }
}

namespace lutra::x64 {
namespace {

// For the register allocator a call to these is one instruction. So no register is spilled around it, and loops are the
// same as without looks.
// clang-format off
#define LUTRA_ENTER                                                                                                    \
  "pushq %rbp\n movq %rsp, %rbp\n pushq %rax\n pushq %rcx\n pushq %rdx\n pushq %rsi\n pushq %rdi\n"                    \
  "pushq %r8\n pushq %r9\n pushq %r10\n pushq %r11\n subq $0x900, %rsp\n andq $-64, %rsp\n"
// The instructions after the test leave the flags unchanged.
#define LUTRA_CALL "call lutra_look_in_kernel\n testl %eax, %eax\n"
#define LUTRA_LEAVE                                                                                                    \
  "movq -8(%rbp), %rax\n movq -16(%rbp), %rcx\n movq -24(%rbp), %rdx\n movq -32(%rbp), %rsi\n"                         \
  "movq -40(%rbp), %rdi\n movq -48(%rbp), %r8\n movq -56(%rbp), %r9\n movq -64(%rbp), %r10\n"                          \
  "movq -72(%rbp), %r11\n movq %rbp, %rsp\n popq %rbp\n ret\n"
// Repeats text for \n in [0, to).
#define LUTRA_EACH(name, to, text)                                                                                     \
  ".altmacro\n .macro lutra_" name " n\n" text "\n.endm\n .set i, 0\n"                                                 \
  ".rept " #to "\n lutra_" name " %i\n .set i, i+1\n .endr\n .noaltmacro\n"

[[gnu::naked]] void look_avx2() {
  asm(LUTRA_ENTER
      LUTRA_EACH("keep_ymm", 16, "vmovups %ymm\\n, 32*\\n(%rsp)")
      LUTRA_CALL
      LUTRA_EACH("load_ymm", 16, "vmovups 32*\\n(%rsp), %ymm\\n")
      LUTRA_LEAVE);
}

[[gnu::naked]] void look_avx512() {
  asm(LUTRA_ENTER
      LUTRA_EACH("keep_zmm", 32, "vmovups %zmm\\n, 64*\\n(%rsp)")
      LUTRA_EACH("keep_mask", 8, "kmovq %k\\n, 2048+8*\\n(%rsp)")
      LUTRA_CALL
      LUTRA_EACH("load_zmm", 32, "vmovups 64*\\n(%rsp), %zmm\\n")
      LUTRA_EACH("load_mask", 8, "kmovq 2048+8*\\n(%rsp), %k\\n")
      LUTRA_LEAVE);
}
// clang-format on

}  // namespace

LookFn* look_entry() { return has_avx512() ? look_avx512 : look_avx2; }

}  // namespace lutra::x64

#else

namespace lutra::x64 {
LookFn* look_entry() { return nullptr; }
}  // namespace lutra::x64

#endif
