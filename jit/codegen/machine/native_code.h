// A kernel's machine code.
#pragma once
#include "jit/codegen/machine/published_code.h"
#include "jit/loop/abi.h"

namespace lutra {

struct NativeCode : Code {
  void set(PublishedCode published) {
    memory = std::move(published);
    bytes = memory.bytes();
    entry = memory.as<KernelFn>();
  }
  PublishedCode memory;
};

}  // namespace lutra
