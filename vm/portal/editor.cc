// Inserts blocks of code into a prototype in two passes: it places all instructions, then it fixes the jumps.
#include "vm/portal/editor.h"

#include <algorithm>

#include "ops/core/error.h"
#include "vm/bytecode/analysis.h"
#include "vm/portal/emit.h"

namespace lutra {

using bc::Ins;
using bc::Op;
using bc::Pc;

unsigned Block::jump(Op op, unsigned a, JumpTarget target) {
  fixes_.push_back({size(), target});
  add(bc::ins_ad(op, a, 0x8000));
  return size() - 1;
}

void Block::bind(unsigned jump_index) {
  for (Fix& f : fixes_) {
    if (f.index == jump_index) f.target = {JumpTarget::Kind::kLocal, size()};
  }
}

Editor::Editor(const bc::Proto& proto) : proto_(proto), live_top_(proto.size() + 1, 0) {
  const bc::Liveness live = bc::liveness(proto);
  for (Pc pc = 1; pc < proto.size(); ++pc) {
    for (unsigned s = 0; s < live.before[pc].size(); ++s) {
      if (live.before[pc][s]) live_top_[pc] = s + 1;
    }
  }
}

void Editor::place(const Block& block, Result& out, Pc line_of) const {
  bc::Proto& p = out.proto;
  for (const Site& s : block.sites_) out.sites.push_back({p.size() + s.return_pc, s.id});
  for (const Stand& s : block.stands_) out.stands.push_back({p.size() + s.return_pc, s.pc});
  if (p.has_debug) {
    place_variables(out, p.size(), block);
    for (const Pc pc : block.as_) p.lines.push_back(proto_.line(pc ? pc : line_of));
  }
  const Pc at = p.size();
  p.code.insert(p.code.end(), block.code_.begin(), block.code_.end());
  out.old_pc.resize(p.code.size(), 0);
  for (const auto& [index, text] : block.strings_) {
    Ins& i = p.code[at + index];
    i = bc::ins_ad(bc::op(i), bc::op_a(i), unsigned(p.kgc.size()));
    p.kgc.push_back(text);
  }
}

// Adds the variables of a block placed at `at`: a copy of each variable in scope for each run of instructions that
// stand for one pc.
void Editor::place_variables(Result& out, Pc at, const Block& block) const {
  for (unsigned i = 0, end; i < block.size(); i = end) {
    for (end = i; end < block.size() && block.as_[end] == block.as_[i];) ++end;
    if (block.as_[i] == 0) continue;
    for (const bc::Var& v : proto_.vars) {
      if (v.start > block.as_[i] || block.as_[i] >= v.end) continue;
      if (v.start == 0 && &block == &entry_) continue;  // parameters are already in scope there
      bc::Var copy = v;
      copy.start = at + i, copy.end = at + end;
      out.variables.push_back(std::move(copy));
    }
  }
}

void Editor::fix(const Block& block, Pc at, Result& out, const std::vector<Pc>& start,
                 const std::map<Pc, Pc>& tails) const {
  for (const Block::Fix& f : block.fixes_) {
    const Pc pc = at + f.index;
    Pc target = at + f.target.at;
    if (f.target.kind == JumpTarget::Kind::kStart) target = start[f.target.at];
    if (f.target.kind == JumpTarget::Kind::kTail) target = tails.at(f.target.at);
    if (f.target.kind == JumpTarget::Kind::kInstruction) target = out.moved[f.target.at];
    if (!bc::jump_fits(pc, target)) throw JumpTooFar();
    Ins& i = out.proto.code[pc];
    unsigned a = bc::op_a(i);
    if (a == kFrameEnd) {
      const bool fused = f.index > 0 && bc::has(block.code_[f.index - 1], bc::kCompare);
      const bool old = f.target.kind == JumpTarget::Kind::kStart || f.target.kind == JumpTarget::Kind::kInstruction;
      a = old && !fused ? live_top_[f.target.at] : out.proto.framesize;
    }
    i = bc::ins_jump(bc::op(i), a, pc, target);
  }
}

// Fixes the jumps of the original instructions.
void Editor::fix_jumps(Result& out, const std::vector<Pc>& start) const {
  for (Pc pc = 1; pc < proto_.size(); ++pc) {
    const Ins i = proto_.code[pc];
    if (bc::info(i).c != bc::Mode::Jump || replace_.count(pc)) continue;
    const Pc at = out.moved[pc], target = start[bc::jump_target(pc, i)];
    if (!bc::jump_fits(at, target)) throw JumpTooFar();
    out.proto.code[at] = bc::ins_jump(bc::op(i), bc::op_a(i), at, target);
  }
}

Editor::Result Editor::finish(unsigned framesize) const {
  Result out;
  bc::Proto& p = out.proto;
  p = proto_;
  p.framesize = static_cast<uint8_t>(framesize);
  p.code.resize(1);
  p.code[0] = bc::ins_ad(bc::op(p.code[0]), framesize, 0);
  if (p.has_debug) p.lines.resize(1);
  out.old_pc.assign(1, 0);
  const Pc n = proto_.size();
  std::vector<Pc> start(n + 1, 0);
  out.moved.assign(n + 1, 0);
  place(entry_, out, 1);
  for (Pc pc = 1; pc < n; ++pc) {
    start[pc] = p.size();
    if (auto b = before_.find(pc); b != before_.end()) place(b->second, out, pc);
    out.moved[pc] = p.size();
    if (auto r = replace_.find(pc); r != replace_.end()) {
      place(r->second, out, pc);
    } else {
      p.code.push_back(proto_.code[pc]);
      out.old_pc.push_back(0);
      if (p.has_debug) p.lines.push_back(proto_.lines[pc]);
    }
    out.old_pc[out.moved[pc]] = pc;
  }
  start[n] = out.moved[n] = p.size();
  std::map<Pc, Pc> tails;
  for (const auto& [pc, block] : tail_) {
    tails[pc] = p.size();
    place(block, out, pc);
  }
  fix_jumps(out, start);
  fix(entry_, 1, out, start, tails);
  for (const auto& [pc, block] : before_) fix(block, start[pc], out, start, tails);
  for (const auto& [pc, block] : replace_) fix(block, out.moved[pc], out, start, tails);
  for (const auto& [pc, block] : tail_) fix(block, tails[pc], out, start, tails);
  for (bc::Var& v : p.vars) {
    if (v.start >= 1 && v.start <= n) v.start = start[v.start];
    if (v.end >= 1 && v.end <= n) v.end = start[v.end];
  }
  p.vars.insert(p.vars.end(), out.variables.begin(), out.variables.end());
  std::stable_sort(p.vars.begin(), p.vars.end(), [](const bc::Var& a, const bc::Var& b) { return a.start < b.start; });
  return out;
}

}  // namespace lutra
