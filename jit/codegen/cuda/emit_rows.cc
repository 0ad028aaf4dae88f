// Loops that the threads of a group share: packs of elements, rows that stay in registers, partial results.
#include <algorithm>
#include <bit>

#include "jit/codegen/cuda/writer.h"

namespace lutra::cuda {

using namespace loop;

namespace {
constexpr size_t kMaxShared = 40 * 1024, kMaxSlots = 8 * 1024;  // together the 48 KB that each block may have
constexpr int kMaxUnrolled = 32;                                // partials of a thread that are in registers
size_t partial_bytes(const Accumulator& a) {
  const size_t value = size_of(a.type) < 4 && is_float(a.type) ? 4 : size_of(a.type);
  return is_position(a.op) ? 16 : value;
}
}  // namespace

std::string Writer::bound(const Loop& l) const { return str("m", l.id); }

// Returns the number of lanes that may hold something. Resident rows are short, and halving steps with an empty upper
// half return the lower half (except for a sum of -0, see finish_accumulators).
int Writer::lanes(const Accumulator& a) const {
  if (folded_ && a.lanes > 1) return m_.threads * m_.elements;
  const unsigned most = unsigned(m_.threads * m_.elements * std::max(m_.resident, 1));
  return fast_ && a.lanes > 1 ? std::min(a.lanes, int(std::bit_ceil(most))) : a.lanes;
}

// Returns the partials of one thread.
int Writer::partials(const Accumulator& a) const { return lanes(a) / m_.threads; }

// Returns how many packs of a thread make a step of all lanes.
int Writer::phases(const Loop& l) const {
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (!in || in->op != Op::kAccum || l.mode != LoopMode::kLanes) continue;
    return lanes(*accs_[size_t(in->arg)]) / (m_.threads * m_.elements);
  }
  return 1;
}

// Declares the packs for the elements of l, and loads them before the elements.
void Writer::load_packs(const Loop& l, bool resident) {
  const std::vector<bool> inside = defined_in(k_, l.body);
  const std::string c = str("c", l.id), array = resident ? str("[", rounds_.count, "]") : "",
                    at = resident ? "[r]" : "";
  std::vector<std::string> loads;
  packs_.clear();
  once_.clear();
  for_each_own_inst(l.body, [&](const Inst& in) {
    if (!is_packed(in, l, inside)) return;
    const std::string key = place_key(in.access, l.id);
    const std::string type = str("Pack<", memory_type(in.type), ", ", m_.elements, ">");
    if (in.op == Op::kStore) {
      if (resident && dead_.count(&in) && !wanted_.count(&in)) return;
      const std::string name = str("y", names_++);
      const bool keep = resident && wanted_.count(&in);
      line(str(type, " ", name, keep ? array : "", ";"));
      packs_[&in] = name + (keep ? at : "");
      return;
    }
    const auto kept = kept_.find(key);
    if (kept != kept_.end()) {
      packs_[&in] = kept->second.name + at;
      return;
    }
    const std::string name = str("x", in.id);
    const bool constant = is_constant(k_.params[size_t(in.access.ptr)]);
    std::string text = str(constant ? "read_pack<" : "load_pack<", m_.elements, ">(p", in.access.ptr, " + (",
                           address(in.access, l.id, c), "))");
    if (guarded(in)) text = str("ok ? ", text, " : ", type, "{}");
    packs_[&in] = name + at;
    kept_[key] = {name, in.access.ptr};
    if (resident && (!fast_ || reads_[key] > 1)) {
      line(str(type, " ", name, array, ";"));
      loads.push_back(str(name, at, " = ", text, ";"));
    } else if (resident) {
      packs_[&in] = name;
      kept_.erase(key);
      once_.push_back(str("const ", type, " ", name, " = ", text, ";"));
    } else {
      line(str("const ", type, " ", name, " = ", text, ";"));
    }
  });
  if (!resident || loads.empty()) return;
  open_rounds(l);
  for (const std::string& text : loads) line(text);
  close_rounds();
}

// Opens a loop over the packs of a thread, unrolled.
void Writer::open_rounds(const Loop& l) {
  line("#pragma unroll");
  open(str("for (int r = 0; r < ", rounds_.count, "; r++) {"));
  open_round(l);
}
void Writer::open_round(const Loop& l) {
  if (!rounds_.from.empty()) {
    line(str("const i64 c", l.id, " = ", rounds_.from, " + r * ", m_.threads * m_.elements, ";"));
    return;
  }
  line(str("const int c", l.id, " = (r * ", m_.threads, " + t) * ", m_.elements, ";"));
  const std::string within = str("c", l.id, " < ", bound(l));
  if (rounds_.guarded) open(str("if (", m_.exact ? "live" : within, ") {"));
}

void Writer::close_rounds() {
  if (rounds_.guarded) close();
  close();
}

// Runs the rounds of a loop. All loads come first, so that they are in flight together, then the elements.
void Writer::run_rounds(const Loop& l) {
  load_packs(l, true);
  const int k = phases(l);
  Style style{true, true, ""};
  if (k > 1) style.phase = m_.elements > 1 ? str("r % ", k, " * ", m_.elements) : str("r % ", k);
  const bool once = feeds_divide_blocks(l, rounds_.count / k);
  if (once) begin_feeds(l, rounds_.count / k, "");
  line("#pragma unroll");
  open(str("for (int r = 0; r < ", rounds_.count, "; r++) {"));
  const std::string reached = rounds_.from.empty() ? str("r * ", m_.threads * m_.elements, " < ", bound(l)) : "true";
  if (!once) begin_feeds(l, 1, k > 1 ? str("r % ", k, " == 0 && ", reached) : reached);
  open_round(l);
  for (const std::string& text : once_) line(text);
  elements(l, style);
  close_rounds();
}

// Writes the V elements of a thread, from c<id> on. With packs, these are loaded and stored as a whole.
void Writer::elements(const Loop& l, const Style& style) {
  const std::string c = str("c", l.id), i = str("i", l.id);
  if (!style.packed) packs_.clear();
  if (style.packed && !style.resident) {
    kept_.clear();
    load_packs(l, false);
  }
  const std::string phase = style.phase;
  if (m_.elements > 1) {
    const bool rare = m_.resident > 0 && !fast_;  // rows of another length than the likely one get little code
    line(style.packed || (l.mode == LoopMode::kLanes && !rare) ? "#pragma unroll" : "#pragma unroll 1");
    open(str("for (int j = 0; j < ", m_.elements, "; j++) {"));
    line(str("const i64 ", i, " = ", c, " + j;"));
    phase_ = phase.empty() ? "j" : phase + " + j";
    if (!style.packed) open(str("if (", i, " < ", bound(l), ") {"));
  } else {
    open("{");
    line(str("const i64 ", i, " = ", c, ";"));
    if (style.packed) line("constexpr int j = 0;");
    phase_ = phase.empty() ? "0" : phase;
    if (!style.packed) open(str("if (", i, " < ", bound(l), ") {"));
  }
  shared_ = &l;
  stack_.push_back(&l);
  thread_body(l.body);
  stack_.pop_back();
  shared_ = nullptr;
  if (!style.packed) close();
  close();
  if (!style.packed) return;
  for_each_own_inst(l.body, [&](const Inst& in) {
    if (in.op != Op::kStore || !packs_.count(&in) || (style.resident && dead_.count(&in))) return;
    line(str(guarded(in) ? "if (ok) " : "", "store_pack(p", in.access.ptr, " + (", address(in.access, l.id, c), "), ",
             packs_[&in], ");"));
  });
}

// Unrolls each thread's rows. The loads of all rounds come first.
void Writer::rows_resident(const Loop& l) {
  rounds_ = {m_.resident, "", !m_.exact || !m_.groups_fill};
  run_rounds(l);
  const std::vector<bool> inside = defined_in(k_, l.body);
  for_each_inst(l.body, [&](const Inst& in) {
    if (in.op != Op::kStore) return;
    const std::string key = is_packed(in, l, inside) ? place_key(in.access, l.id) : "";
    std::erase_if(kept_, [&](const auto& row) { return row.second.ptr == in.access.ptr; });
    if (!wanted_.count(&in)) return;
    const std::string& pack = packs_[&in];
    kept_[key] = {pack.substr(0, pack.find('[')), in.access.ptr};
  });
}

// Rows of any length: whole steps use packs, the rest goes element by element.
void Writer::rows_plain(const Loop& l) {
  const int k = phases(l), step = m_.threads * m_.elements * k, apart = m_.threads * m_.elements;
  const std::string s = str("s", l.id), c = str("c", l.id);
  const bool ahead = m_.resident == 0 && !m_.reread;
  const std::string own = m_.threads > 1 ? str("t", m_.elements > 1 ? str(" * ", m_.elements) : "") : "0";
  line(str("i64 ", s, " = ", own, ";"));
  auto step_of = [&](const Style& style) {
    if (k == 1) {
      line(str("const i64 ", c, " = ", s, ";"));
      elements(l, style);
      return;
    }
    line(k * m_.elements > kMaxUnrolled || m_.resident ? "#pragma unroll 1" : "#pragma unroll");
    open(str("for (int h = 0; h < ", k, "; h++) {"));
    line(str("const i64 ", c, " = ", s, " + h * ", apart, ";"));
    elements(l, {style.packed, false, m_.elements > 1 ? str("h * ", m_.elements) : "h"});
    close();
  };
  if (ahead) {
    if (m_.elements > 1) open("if (packed) {");
    // As many rounds of whole steps as fit in 16 registers for the loaded values.
    int loads = 0, widest = 1;
    const std::vector<bool> inside = defined_in(k_, l.body);
    for_each_own_inst(l.body, [&](const Inst& in) {
      if (in.op != Op::kLoad || !is_packed(in, l, inside)) return;
      loads++, widest = std::max(widest, int(size_of(in.type)));
    });
    const int held = 64 / std::clamp(loads ? widest : 4, 1, 4);
    const int count = std::min(m_.batch, held / m_.elements / int(std::bit_ceil(unsigned(std::max(loads, 1)))));
    const int rounds = std::max({k, count, 1});
    rounds_ = {rounds, s, false};
    open(str("for (; ", s, " + ", (rounds - 1) * apart + m_.elements, " <= ", bound(l), "; ", s, " += ", rounds * apart,
             ") {"));
    kept_.clear();
    run_rounds(l);
    kept_.clear();
    close();
    if (m_.elements > 1) close();
  }
  line("#pragma unroll 1");
  open(str("for (; ", s, " < ", bound(l), "; ", s, " += ", step, ") {"));
  begin_feeds(l, 1, "");
  step_of({false, false, ""});
  close();
  // A feed for which this thread had no element.
  if (l.accs.empty() && m_.threads > 1) begin_feeds(l, 1, str(s, " - ", own, " < ", bound(l)));
}

// Returns true if a thread has more partials than registers. The accumulators must belong to the loop, so that not all
// partials are needed at a time.
bool Writer::folds(const Loop& l) const {
  if (l.mode != LoopMode::kLanes || l.accs.empty() || fast_) return false;
  return phases(l) * m_.elements > kMaxUnrolled;
}

// Runs the phases in the order in which the halving tree takes them: bits reversed, lower half first. Completed
// subtrees are kept by level, like the digits of a binary counter.
void Writer::rows_folded(const Loop& l, int k) {
  const int v = m_.elements, levels = std::countr_zero(unsigned(k)), apart = m_.threads * v;
  const std::string c = str("c", l.id), all = str("for (int j = 0; j < ", v, "; j++) ");
  for (const Accumulator& a : l.accs) line(str(op_type(a), "::A f", a.id, "[", levels + 1, "][", v, "];"));
  line("#pragma unroll 1");
  open(str("for (unsigned h = 0; h < ", k, "; h++) {"));
  for (const Accumulator& a : l.accs) {
    line(str(all, "a", a.id, "[j] = ", op_type(a), "::none();"));
    if (a.block) line(str(all, "e", a.id, "[j] = {};")), line(str("left", a.id, " = ", a.block, ";"));
  }
  line(str("const i64 s", l.id, " = i64(__brev(h) >> ", 32 - levels, ") * ", apart, " + t * ", v, ";"));
  line("#pragma unroll 1");
  open(str("for (i64 ", c, " = s", l.id, "; ", c, " < ", bound(l), "; ", c, " += ", apart * k, ") {"));
  begin_feeds(l, 1, "");
  elements(l, {false, false, ""});
  close();
  for (const Accumulator& a : l.accs) end_blocks(a);
  line("int level = 0;");
  open("for (; h >> level & 1; level++) {");
  for (const Accumulator& a : l.accs) {
    line(str(all, "a", a.id, "[j] = ", op_type(a), "::of(f", a.id, "[level][j], a", a.id, "[j]);"));
  }
  close();
  for (const Accumulator& a : l.accs) line(str(all, "f", a.id, "[level][j] = a", a.id, "[j];"));
  close();
}

void Writer::shared_loop(const Loop& l) {
  const bool resident = fast_ && m_.resident > 0;
  std::vector<Touch> own;
  for_each_inst(l.body, [&](const Inst& in) {
    if (!has_access(in.op) || !k_.params[size_t(in.access.ptr)].written) return;
    if (resident && dead_.count(&in)) return;
    own.push_back({in.access.ptr, place_key(in.access, l.id), in.op != Op::kLoad, true});
  });
  if (conflicts(touched_, own)) barrier();
  touched_.insert(touched_.end(), own.begin(), own.end());
  const bool fold = folds(l);
  const int k = phases(l);
  folded_ = fold;
  declare_accumulators(l);
  const std::string n = coef(l.size);
  line(str("const i64 ", bound(l), " = ", m_.groups_fill ? n : str("live ? ", n, " : 0"), ";"));
  if (resident)
    rows_resident(l);
  else if (fold)
    rows_folded(l, k);
  else
    rows_plain(l);
  packs_.clear();
  // Several loops may feed one accumulator, so positions continue.
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (in && in->op == Op::kAccum && is_position(accs_[size_t(in->arg)]->op)) line(str("q", in->arg, " += ", n, ";"));
  }
  finish_accumulators(l);
  folded_ = false;
}

void Writer::declare_accumulators(const Loop& l) {
  for (const Accumulator& a : l.accs) {
    reduce_ = true;
    const std::string op = op_type(a), none = op + "::none()";
    if (is_position(a.op)) line(str("i64 q", a.id, " = 0;"));
    const std::string earlier = str("Earlier<", value_type(a.type), "> e", a.id);
    if (a.lanes == 1) {
      line(str(op, "::A a", a.id, " = ", none, ";"));
      if (!a.block) continue;
      line(earlier + ";");
      if (serial_block(l) != a.block) line(str("int left", a.id, " = ", a.block, ";"));
      continue;
    }
    const int count = partials(a);
    line(str(op, "::A a", a.id, "[", count, "];"));
    line(count > kMaxUnrolled ? "#pragma unroll 1" : "#pragma unroll");
    line(str("for (int j = 0; j < ", count, "; j++) a", a.id, "[j] = ", none, ";"));
    if (a.block && !one_block(l, a)) {
      line(str(earlier, "[", count, "];"));
      line(str("int left", a.id, " = ", a.block, ";"));
    }
  }
}

// Adds a partial that took nothing, since that turns -0 into 0.
std::string Writer::whole(const Accumulator& a, const std::string& text) const {
  const bool sum = fast_ && a.op == RedOp::kSum && is_float(a.type) && lanes(a) < a.lanes;
  return sum ? str(op_type(a), "::of(", text, ", ", op_type(a), "::none())") : text;
}

// Turns partials into values.
void Writer::finish_accumulators(const Loop& l) {
  const int v = m_.elements;
  std::vector<const Accumulator*> apart;
  for (const Accumulator& a : l.accs) {
    const std::string op = op_type(a), result = is_position(a.op) ? ".at" : "", type = value_type(types_[size_t(a.id)]);
    const std::string into = str("const ", type, " v", a.id, " = ");
    if (!folded_ && (a.lanes == 1 || !one_block(l, a))) end_blocks(a);
    if (a.lanes == 1) {
      line(str(into, "a", a.id, result, ";"));
      continue;
    }
    const int count = partials(a);
    if (m_.threads == 1) {
      line(str("halve<", op, ", ", count, ", 1>(a", a.id, ");"));
      line(str(into, whole(a, str("a", a.id, "[0]")), result, ";"));
      continue;
    }
    if (count > v) line(str("halve<", op, ", ", count, ", ", v, ">(a", a.id, ");"));
    if (m_.columns || m_.threads > 32)
      apart.push_back(&a);
    else
      line(str(into, whole(a, str("of_warp<", op, ", ", m_.threads, ", ", v, ">(a", a.id, ", t)")), result, ";"));
  }
  // Handles as many at a time as fit in shared memory.
  const size_t most = kMaxSlots / slot_bytes();
  while (!apart.empty()) {
    size_t bytes = 0, count = 0;
    const size_t each = size_t(m_.block) * size_t(v);
    const auto fits = [&](const Accumulator& a) {
      return count == 0 || (count < most && bytes + each * partial_bytes(a) <= kMaxShared);
    };
    while (count < apart.size() && fits(*apart[count])) bytes += each * partial_bytes(*apart[count++]);
    finish_in_block({apart.begin(), apart.begin() + long(count)});
    apart.erase(apart.begin(), apart.begin() + long(count));
  }
}

// Combines partials through shared memory: all threads store theirs, one warp for each accumulator combines them, all
// threads read the result.
void Writer::finish_in_block(const std::vector<const Accumulator*>& accs) {
  const int v = m_.elements, warps = m_.block / 32;
  size_t at = 0;
  for (size_t i = 0; i < accs.size(); i++) {
    const std::string id = str(accs[i]->id), op = op_type(*accs[i]);
    line(str(op, "::A* const area", id, " = reinterpret_cast<", op, "::A*>(shared + ", at, ");"));
    line(str(op, "::A* const slot", id, " = reinterpret_cast<", op, "::A*>(slots + ", i * slot_bytes(), ");"));
    if (m_.columns)
      line(str("area", id, "[threadIdx.y * 32 + threadIdx.x] = a", id, "[0];"));
    else
      line(str("park<", m_.threads, ", ", v, ">(area", id, ", a", id, ", t);"));
    at += (size_t(m_.block) * size_t(v) * partial_bytes(*accs[i]) + 15) / 16 * 16;
  }
  shared_bytes_ = std::max(shared_bytes_, at);
  slots_ = std::max(slots_, accs.size() * slot_bytes());
  barrier();
  for (size_t i = 0; i < accs.size(); i++) {
    const std::string id = str(accs[i]->id), op = op_type(*accs[i]), warp = str(i % size_t(warps));
    if (m_.columns) {
      line(str("if (threadIdx.y == ", warp, ") slot", id, "[threadIdx.x] = of_column<", op, ", ", m_.threads, ">(area",
               id, ", threadIdx.x);"));
      continue;
    }
    open(str("if (t / 32 == ", warp, ") {"));
    line(str("const ", op, "::A r = of_block<", op, ", ", m_.threads, ", ", v, ">(area", id, ", t % 32);"));
    line(str("if (t % 32 == 0) *slot", id, " = ", whole(*accs[i], "r"), ";"));
    close();
  }
  barrier();
  for (const Accumulator* a : accs) {
    const std::string slot = m_.columns ? str("slot", a->id, "[threadIdx.x]") : str("slot", a->id, "[0]");
    line(str("const ", value_type(types_[size_t(a->id)]), " v", a->id, " = ", slot, is_position(a->op) ? ".at" : "",
             ";"));
  }
}

// Finds the stores whose packs are read again, and the stores that are overwritten before anything else reads them.
void Writer::plan_residency(const Stmts& body) {
  struct Use {
    const Inst* in;
    std::string key;  // empty: not a pack
  };
  std::vector<Use> uses;
  for (const Stmt& s : body) {
    if (const Inst* in = std::get_if<Inst>(&s)) {
      if (has_access(in->op)) uses.push_back({in, ""});
      continue;
    }
    const Loop& l = *std::get<std::unique_ptr<Loop>>(s);
    const std::vector<bool> inside = defined_in(k_, l.body);
    for_each_inst(l.body, [&](const Inst& in) {
      const bool pack = is_shared(l) && is_packed(in, l, inside);
      if (has_access(in.op)) uses.push_back({&in, pack ? place_key(in.access, l.id) : ""});
      if (pack && in.op == Op::kLoad) reads_[uses.back().key]++;
    });
  }
  for (size_t i = 0; i < uses.size(); i++) {
    if (uses[i].in->op != Op::kStore || uses[i].key.empty()) continue;
    bool read = false, needed = false, over = false;
    for (size_t n = i + 1; n < uses.size() && !over; n++) {
      if (uses[n].in->access.ptr != uses[i].in->access.ptr) continue;
      const bool same = uses[n].key == uses[i].key;
      if (uses[n].in->op == Op::kLoad) {
        read |= same;
        needed |= !same;
      } else {
        over = true;
        if (same && !needed) dead_[uses[i].in] = true;
      }
    }
    if (read) wanted_[uses[i].in] = true;
  }
}

}  // namespace lutra::cuda
