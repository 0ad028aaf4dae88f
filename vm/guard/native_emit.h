// In: a guard program. Out: its machine code.
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
  bool asks_strings = false;                            // needs GuardRun::string_meta
  bool asks_thread = false;                             // needs GuardRun::thread
  bool asks_prototypes = false;                         // needs GuardRun::prototypes
  bool asks_weak = false;                               // needs GuardRun::weak
  std::vector<std::unique_ptr<mirror::TValue[]>> keys;  // the code reads them
  std::vector<std::unique_ptr<FieldRows>> rows;         // likewise
};
// Compiles the program. If the code is empty, the witness must run the program.
EmittedGuards emit_guards(const GuardProgram& program, const mirror::Tab* constants);

}  // namespace lutra
