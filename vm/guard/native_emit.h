// A guard program in, its machine code out.
#pragma once
#include <memory>
#include <vector>

#include "jit/codegen/machine/published_code.h"
#include "vm/guard/program.h"
#include "vm/mirror/mirror.h"

namespace lutra {

struct FieldRows;

struct EmittedGuards {
  EmittedGuards();
  EmittedGuards(EmittedGuards&&) noexcept;
  EmittedGuards& operator=(EmittedGuards&&) noexcept;
  ~EmittedGuards();

  PublishedCode code;                                   // int64_t (*)(GuardRun*)
  bool asks_strings = false;                            // for the metatable of strings
  bool asks_prototypes = false;                         // of functions
  bool asks_weak = false;                               // for objects of the weak table
  std::vector<std::unique_ptr<mirror::TValue[]>> keys;  // the code reads them
  std::vector<std::unique_ptr<FieldRows>> rows;         // likewise
};
// Empty code: the witness must run the program.
EmittedGuards emit_guards(const GuardProgram& program, const mirror::Tab* constants);

}  // namespace lutra
