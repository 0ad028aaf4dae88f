// Inserts blocks of new code into a prototype, and adapts its jumps, lines and names of variables.
//
// Invariant: LuaJIT's JIT treats the slots from operand A of a JMP on as dead; for a JMP after a compare, on both
// branches. A plain JMP to an old pc gets the end of the live slots there, any other jump the framesize.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/error.h"
#include "vm/bytecode/dump.h"
#include "vm/portal/patch.h"

namespace lutra {

// The error when the function is so long that a jump offset of the new code does not fit into its instruction.
struct JumpTooFar : Error {
  JumpTooFar() : Error(ErrorKind::kUser, "patch: a jump is too far") {}
};

struct JumpTarget {
  enum class Kind : uint8_t {
    kStart,        // the target of jumps to old pc `at`: the block before it, if there is one
    kInstruction,  // old pc `at` itself
    kLocal,        // index `at` of the same block
    kTail,         // the tail block of old pc `at`
  } kind;
  uint32_t at;
};

// New code. The targets of its jumps are known only when all blocks are placed.
class Block {
 public:
  unsigned size() const { return static_cast<unsigned>(code_.size()); }
  void add(bc::Ins i) {
    code_.push_back(i);
    as_.push_back(as_pc_);
  }
  // Gives the instructions that are added from here on the line of old pc `pc` and the variables that are in scope
  // there. 0: the line of the block's position, no variables.
  void as(bc::Pc pc) { as_pc_ = pc; }
  // Adds a jump and returns its index, for bind.
  unsigned jump(bc::Op op, unsigned a, JumpTarget target = {JumpTarget::Kind::kLocal, 0});
  void bind(unsigned jump_index);                     // sets the jump's target to the current end of the block
  void global(unsigned dst, std::string_view name) {  // reads a global; the prototype gets its name as a constant
    strings_.push_back({size(), std::string(name)});
    add(bc::ins_ad(bc::Op::GGET, dst, 0));
  }
  void stands_for(bc::Pc pc) { stands_.push_back({size(), pc}); }  // the last call added stands for the one at `pc`
  void site(int id) { sites_.push_back({size(), id}); }            // the last call added is the call of portal `id`

 private:
  friend class Editor;
  struct Fix {
    unsigned index;
    JumpTarget target;
  };
  std::vector<bc::Ins> code_;
  std::vector<bc::Pc> as_;  // parallel to code_
  bc::Pc as_pc_ = 0;
  std::vector<Fix> fixes_;
  std::vector<std::pair<unsigned, std::string>> strings_;
  std::vector<Site> sites_;
  std::vector<Stand> stands_;
};

class Editor {
 public:
  explicit Editor(const bc::Proto& proto);
  unsigned live_top(bc::Pc pc) const { return live_top_[pc]; }  // slots from here on are dead before pc
  Block& entry() { return entry_; }                             // runs once, at the function's start
  Block& before(bc::Pc pc) { return before_[pc]; }              // runs on every path to pc
  Block& replace(bc::Pc pc) { return replace_[pc]; }            // replaces the instruction at pc
  Block& tail(bc::Pc pc) { return tail_[pc]; }                  // placed after the function's end, with pc's line
  struct Result {
    bc::Proto proto;
    std::vector<Site> sites;
    std::vector<Stand> stands;
    std::vector<bc::Pc> moved;       // moved[old pc] = new pc of the instruction
    std::vector<bc::Pc> old_pc;      // old_pc[new pc], 0 for added instructions
    std::vector<bc::Var> variables;  // variables of added instructions
  };
  Result finish(unsigned framesize) const;

 private:
  void place(const Block& block, Result& out, bc::Pc line_of) const;
  void place_variables(Result& out, bc::Pc at, const Block& block) const;
  void fix_jumps(Result& out, const std::vector<bc::Pc>& start) const;
  void fix(const Block& block, bc::Pc at, Result& out, const std::vector<bc::Pc>& start,
           const std::map<bc::Pc, bc::Pc>& tails) const;

  const bc::Proto& proto_;
  std::vector<unsigned> live_top_;
  Block entry_;
  std::map<bc::Pc, Block> before_, replace_, tail_;
};

// Replaces the dump's function by the result, and verifies it.
Patched finish_patch(const bc::Dump& dump, Editor::Result&& result);

}  // namespace lutra
