// A prototype and blocks of new code for places in it; the prototype with those blocks in place, jumps, lines and names
// of variables following, out.
//
// Invariant: LuaJIT's JIT takes operand A of a JMP as "slots from A on are dead", of a JMP after a compare on both of
// its ways. A plain JMP to an old pc gets the end of what is live there, any other jump the framesize.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/error.h"
#include "vm/bytecode/dump.h"
#include "vm/portal/patch.h"

namespace lutra {

// The function is so long that a jump of the new code does not fit into its instruction.
struct JumpTooFar : Error {
  JumpTooFar() : Error(ErrorKind::kUser, "patch: a jump is too far") {}
};

struct JumpTarget {
  enum class Kind : uint8_t {
    kStart,        // where jumps to old pc `at` go: the block before it, if there is one
    kInstruction,  // old pc `at` itself
    kLocal,        // index `at` of the same block
    kTail,         // the tail block of old pc `at`
  } kind;
  uint32_t at;
};

// New code, with jumps whose targets are known only when all blocks are in place.
class Block {
 public:
  unsigned size() const { return static_cast<unsigned>(code_.size()); }
  void add(bc::Ins i) {
    code_.push_back(i);
    as_.push_back(as_pc_);
  }
  // What is added from here on stands for old pc `pc`: its line and the variables that are in scope there. 0: the line
  // of the block's place, no variables.
  void as(bc::Pc pc) { as_pc_ = pc; }
  // Returns the jump's index, for bind.
  unsigned jump(bc::Op op, unsigned a, JumpTarget target = {JumpTarget::Kind::kLocal, 0});
  void bind(unsigned jump_index);                     // its target is the block's end as it is now
  void global(unsigned dst, std::string_view name) {  // reads a global by a constant that the prototype gets
    strings_.push_back({size(), std::string(name)});
    add(bc::ins_ad(bc::Op::GGET, dst, 0));
  }
  void stands_for(bc::Pc pc) { stands_.push_back({size(), pc}); }  // the call just added does
  void site(int id) { sites_.push_back({size(), id}); }            // the call just added is a portal's

 private:
  friend class Editor;
  struct Fix {
    unsigned index;
    JumpTarget target;
  };
  std::vector<bc::Ins> code_;
  std::vector<bc::Pc> as_;  // beside code_
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
  Block& entry() { return entry_; }                             // runs first, and never again
  Block& before(bc::Pc pc) { return before_[pc]; }              // on every way to pc
  Block& replace(bc::Pc pc) { return replace_[pc]; }            // instead of the instruction at pc
  Block& tail(bc::Pc pc) { return tail_[pc]; }                  // behind the function's end, with pc's line
  struct Result {
    bc::Proto proto;
    std::vector<Site> sites;
    std::vector<Stand> stands;
    std::vector<bc::Pc> moved;       // moved[old pc] = new pc of the instruction
    std::vector<bc::Pc> old_pc;      // old_pc[new pc], 0 for added instructions
    std::vector<bc::Var> variables;  // of added instructions
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

// The dump with its function replaced, verified.
Patched finish_patch(const bc::Dump& dump, Editor::Result&& result);

}  // namespace lutra
