// Sums "by B" (invariant 4 of jit/loop/loop.h): the code for the end of a block of partial results.
//
// A partial a<id> is of the present block, e<id> is the sum of the earlier ones, and left<id> counts the block's
// remaining feeds.
#include <algorithm>

#include "jit/codegen/cuda/writer.h"

namespace lutra::cuda {

using namespace loop;

namespace {
bool has(const Loop& l, const Accumulator& a) {
  return std::any_of(l.accs.begin(), l.accs.end(), [&](const Accumulator& b) { return b.id == a.id; });
}
}  // namespace

// Returns the accumulators with blocks that a lanes loop feeds.
std::vector<const Accumulator*> Writer::blocked(const Loop& l) const {
  std::vector<const Accumulator*> out;
  if (l.mode != LoopMode::kLanes) return out;
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (in && in->op == Op::kAccum && accs_[size_t(in->arg)]->block) out.push_back(accs_[size_t(in->arg)]);
  }
  return out;
}

// Returns true if the loop alone feeds the accumulator and keeps its rows in registers: they are one block then.
bool Writer::one_block(const Loop& l, const Accumulator& a) const {
  return l.mode == LoopMode::kLanes && has(l, a) && fast_ && m_.resident > 0 && m_.resident <= a.block * phases(l);
}

// Returns true if blocks end only at multiples of `feeds` feeds of loop l.
bool Writer::feeds_divide_blocks(const Loop& l, int feeds) const {
  const auto accs = blocked(l);
  return rounds_.from.size() && std::all_of(accs.begin(), accs.end(),
                                            [&](const Accumulator* a) { return has(l, *a) && a->block % feeds == 0; });
}

// Emits code before `feeds` feeds of loop l, under the condition `when` (empty: always). It ends a full block.
void Writer::begin_feeds(const Loop& l, int feeds, const std::string& when) {
  for (const Accumulator* a : blocked(l)) {
    if (one_block(l, *a)) continue;
    const std::string id = str(a->id), left = "left" + id;
    if (!when.empty()) open(str("if (", when, ") {"));
    open(str("if (", left, " == 0) {"));
    line("#pragma unroll");
    line(str("for (int j = 0; j < ", partials(*a), "; j++) end_block(a", id, "[j], e", id, "[j]);"));
    line(str(left, " = ", a->block, ";"));
    close();
    line(str(left, " -= ", feeds, ";"));
    if (!when.empty()) close();
  }
}

// Returns the feeds of a block if each iteration of loop l is one feed of its sums; otherwise 0.
int Writer::serial_block(const Loop& l) const {
  int block = 0;
  for (const Accumulator& a : l.accs) {
    if (!a.block) continue;
    int direct = 0, all = 0;
    const auto feeds = [&](const Inst& in) { return in.op == Op::kAccum && in.arg == a.id; };
    for_each_own_inst(l.body, [&](const Inst& in) { direct += feeds(in); });
    for_each_inst(l.body, [&](const Inst& in) { all += feeds(in); });
    if (a.lanes > 1 || direct != 1 || all != 1 || (block && a.block != block)) return 0;
    block = a.block;
  }
  return block;
}

// Opens a loop that runs in order. `unroll` is a pragma for the loop that repeats.
void Writer::open_serial(const Loop& l, const std::string& unroll) {
  const std::string i = str("i", l.id), n = coef(l.size);
  const int block = serial_block(l);
  if (!block) {
    if (!unroll.empty()) line(unroll);
    return open(str("for (i64 ", i, " = 0; ", i, " < ", n, "; ", i, "++) {"));
  }
  const std::string end = str("z", l.id);
  open(str("for (i64 ", i, " = 0; ", i, " < ", n, ";) {"));
  for (const Accumulator& a : l.accs) {
    if (!a.block) continue;
    counted_[size_t(a.id)] = true;
    line(str("end_block(a", a.id, ", e", a.id, ");"));
  }
  line(str("const i64 ", end, " = ", n, " - ", i, " < ", block, " ? ", n, " : ", i, " + ", block, ";"));
  if (!unroll.empty()) line(unroll);
  open(str("for (; ", i, " < ", end, "; ", i, "++) {"));
}
void Writer::close_serial(const Loop& l) {
  close();
  if (serial_block(l)) close();
}

// Emits code before a feed of an accumulator with one partial, if no loop counts the feeds.
void Writer::begin_feed(const Accumulator& a) {
  if (!a.block || counted_[size_t(a.id)]) return;
  const std::string left = str("left", a.id);
  line(str("if (", left, "-- == 0) end_block(a", a.id, ", e", a.id, "), ", left, " = ", a.block - 1, ";"));
}

// Replaces a partial by the sum of its blocks.
void Writer::end_blocks(const Accumulator& a) {
  if (!a.block) return;
  const std::string id = str(a.id);
  if (a.lanes == 1) return line(str("a", id, " = of_blocks(a", id, ", e", id, ");"));
  line("#pragma unroll");
  line(str("for (int j = 0; j < ", partials(a), "; j++) a", id, "[j] = of_blocks(a", id, "[j], e", id, "[j]);"));
}

}  // namespace lutra::cuda
