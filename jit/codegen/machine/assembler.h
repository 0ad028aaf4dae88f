// A portable assembler: instructions on a few registers make a function. Guards are written in it. x64/assembler.cc and
// arm64/assembler.cc implement it.
//
// Invariants:
// 1. Registers hold 64 bits. Comparisons leave no flags behind.
// 2. A call overwrites all registers except the kept ones. Its result is in kT0, which may not be an argument's
//    register.
#pragma once
#include <cstdint>

#include "jit/codegen/machine/published_code.h"

namespace lutra {

// Scratch registers, arguments of a call, registers that calls keep.
enum class Reg : uint8_t { kT0, kT1, kT2, kArg0, kArg1, kArg2, kKept0, kKept1, kKept2, kKept3 };

enum class Condition : uint8_t { kEqual, kNotEqual, kBelow, kBelowEqual, kAbove, kAboveEqual, kLessEqual };
// kBelow .. kAboveEqual compare without a sign.

struct Memory {
  Reg base;
  int32_t offset;     // in bytes
  uint8_t bytes = 8;  // 1, 4 or 8
};

class Assembler {
 public:
  struct Label {
    uint32_t id;
  };
  virtual ~Assembler() = default;

  // The function's beginning and end. It has one argument, in kArg0, and returns kT0.
  virtual void enter() = 0;
  virtual void leave() = 0;
  virtual Label label() = 0;
  virtual void bind(Label at) = 0;

  virtual void set(Reg to, uint64_t value) = 0;
  virtual void move(Reg to, Reg from) = 0;
  virtual void load(Reg to, Memory from) = 0;  // fewer than 8 bytes are zero-extended
  virtual void store(Memory to, Reg from) = 0;
  virtual void bit_and(Reg to, Reg with) = 0;
  virtual void bit_and(Reg to, uint32_t with) = 0;
  virtual void bit_or(Reg to, Reg with) = 0;
  virtual void add(Reg to, int32_t value) = 0;
  virtual void add_scaled(Reg to, Reg base, Reg index, int shift) = 0;  // to = base + (index << shift), shift <= 3
  virtual void shift_right_signed(Reg to, Reg from, int bits) = 0;

  virtual void jump(Label to) = 0;
  virtual void branch(Condition when, Reg a, Reg b, Label to) = 0;
  virtual void branch(Condition when, Reg a, int32_t b, Label to) = 0;
  virtual void branch(Condition when, Memory a, Reg b, Label to) = 0;  // of 8 bytes
  virtual void branch(Condition when, Memory a, int32_t b, Label to) = 0;
  virtual void call(const void* function) = 0;

  // Returns the code, ready to run; empty if the machine has no memory for it. Emit nothing after it.
  virtual PublishedCode finish() = 0;
};

}  // namespace lutra
