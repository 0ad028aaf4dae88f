// Maps a kernel: which loops become threads, how many elements a thread takes, and what stays in registers.
#include "jit/codegen/cuda/analysis.h"

#include <algorithm>
#include <bit>
#include <map>

#include "jit/device/cost.h"
#include "ops/core/error.h"

namespace lutra::cuda {

using namespace loop;

namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxResident = 8;
constexpr int kMaxPartials = 32;  // of an accumulator, in registers of one thread
constexpr int kPrefixInstructions = 12;
constexpr size_t kMaxTileBytes = 40 * 1024;
constexpr int kShortPrefix = 96;  // instructions that are repeated rather than leave multiprocessors idle
constexpr int kApart = 4;
constexpr int64_t kBlocks[] = {64, 128, 256};  // threads

class Mapper {
 public:
  Mapper(const Kernel& k, std::span<const int64_t> hints, const Machine& machine, std::string* log)
      : k_(k), hints_(hints), machine_(machine), log_(log), busy_(busy_threads(machine)) {
    for (const Param& p : k.params) written_.push_back(p.written);
  }
  Mapping run();

 private:
  int64_t hint(const Coef& c) const {
    if (c.arg < 0) return c.literal;
    return size_t(c.arg) < hints_.size() ? hints_[size_t(c.arg)] : 4096;
  }
  bool prefix_of(const std::vector<Stmt>& body, const Loop*& inner);
  void find_nest();
  void map_flat();
  bool find_tile();
  void map_group();
  void narrow(const std::vector<const Loop*>& loops);
  void narrow_by(const Inst& in, const Loop& l);
  void choose_group_threads(const std::vector<const Loop*>& shared, int64_t most, int64_t groups, int64_t fewest);
  void choose_resident(const std::vector<const Loop*>& shared, int64_t most);
  void choose_batch(int64_t most);
  void choose_apart(double total, bool loops);
  void choose_blocks(int registers);
  bool crosses_threads(const Loop& l) const;
  // Returns the threads of each multiprocessor if there are `threads` in all.
  double of_each(double threads) const { return threads / double(machine_.processors); }
  template <class... Parts>
  void tell(const Parts&... parts) {
    if (log_) *log_ += str("map ", k_.name, ": ", parts..., "\n");
  }

  const Kernel& k_;
  std::span<const int64_t> hints_;
  const Machine& machine_;
  std::string* const log_;  // a line for each choice
  const int64_t busy_;      // threads of a multiprocessor that keep its share of memory busy
  std::vector<bool> written_;
  Mapping m_;
};

int64_t pow2_up(int64_t n) { return int64_t(std::bit_ceil(uint64_t(std::max<int64_t>(n, 1)))); }

}  // namespace

Along along(const Access& a, int32_t loop_id, const std::vector<bool>& depends) {
  int units = 0;
  for (const Access::Term& t : a.terms) {
    if (t.is_value) {
      if (depends[size_t(t.id)]) return Along::kOther;
    } else if (t.id == loop_id && !(t.stride == Coef::of(0))) {
      if (!(t.stride == Coef::of(1))) return Along::kOther;
      units++;
    }
  }
  return units > 1 ? Along::kOther : units ? Along::kUnit : Along::kUniform;
}

std::vector<bool> defined_in(const Kernel& kernel, const std::vector<Stmt>& body) {
  std::vector<bool> in_body(size_t(kernel.values), false);
  for_each_inst(body, [&](const Inst& in) {
    if (in.id >= 0) in_body[size_t(in.id)] = true;
  });
  for_each_loop(body, [&](const Loop& l) {
    for (const Accumulator& a : l.accs) in_body[size_t(a.id)] = true;
  });
  return in_body;
}

bool is_packed(const Inst& in, const Loop& l, const std::vector<bool>& inside) {
  return (in.op == Op::kLoad || in.op == Op::kStore) && along(in.access, l.id, inside) == Along::kUnit;
}

bool is_shared(const Loop& l) {
  bool lanes = false;
  for_each_loop(l.body, [&](const Loop& inner) { lanes |= inner.mode == LoopMode::kLanes; });
  return l.mode != LoopMode::kSerial && !lanes;
}

std::vector<const Loop*> shared_loops(const std::vector<Stmt>& body) {
  std::vector<const Loop*> out;
  for (const Stmt& s : body) {
    const auto* p = std::get_if<std::unique_ptr<Loop>>(&s);
    if (!p) continue;
    if (is_shared(**p)) {
      out.push_back(p->get());
    } else {
      for (const Loop* l : shared_loops((*p)->body)) out.push_back(l);
    }
  }
  return out;
}

int lanes_of(const Kernel& kernel, const Loop& l) {
  int lanes = 0;
  for (const Stmt& s : l.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (!in || in->op != Op::kAccum) continue;
    auto find = [&](const Loop& around) {
      for (const Accumulator& a : around.accs) {
        if (a.id == in->arg) lanes = a.lanes;
      }
    };
    for_each_loop(kernel.body, find);
  }
  return lanes;
}

std::string place_key(const Access& a, int32_t loop_id) {
  auto coef = [](const Coef& c) { return c.arg >= 0 ? str("n", c.arg) : str(c.literal); };
  std::vector<std::string> terms;
  for (const Access::Term& t : a.terms) {
    const std::string of = t.is_value ? str("%", t.id) : t.id == loop_id ? std::string("@") : str("i", t.id);
    terms.push_back(str(of, "*", coef(t.stride)));
  }
  std::sort(terms.begin(), terms.end());
  std::string key = str("p", a.ptr, "+", coef(a.offset));
  for (const std::string& t : terms) key += "+" + t;
  return key;
}

bool is_transposed(const Inst& in, const Mapping& m, size_t d) {
  if (in.op != Op::kLoad) return false;
  int along_tile = 0;
  bool inner = false;
  for (const Access::Term& t : in.access.terms) {
    if (t.is_value) return false;
    if (t.id == m.nest[d]->id && !(t.stride == Coef::of(0))) along_tile += t.stride == Coef::of(1) ? 1 : 2;
    if (t.id == m.nest.back()->id && !(t.stride == Coef::of(0))) inner = !(t.stride == Coef::of(1));
  }
  return along_tile == 1 && inner;
}

namespace {

// Returns true if the body is instructions without effect, cheap enough for every thread, followed by one loop.
bool Mapper::prefix_of(const std::vector<Stmt>& body, const Loop*& inner) {
  if (body.empty() || !std::holds_alternative<std::unique_ptr<Loop>>(body.back())) return false;
  int cost = 0;
  for (size_t i = 0; i + 1 < body.size(); i++) {
    const Inst* in = std::get_if<Inst>(&body[i]);
    if (!in || (has_effect(in->op) && in->op != Op::kCheck)) return false;
    if (in->op == Op::kLoad && written_[size_t(in->access.ptr)]) return false;
    cost += is_heavy(in->op) ? kPrefixInstructions : in->op != Op::kConst && in->op != Op::kScalar;
  }
  inner = std::get<std::unique_ptr<Loop>>(body.back()).get();
  double around = 1;
  for (const Loop* l : m_.nest) around *= double(hint(l->size));
  const bool fills = occupancy(machine_, around) >= 0.5;
  const int most = fills ? kPrefixInstructions : kShortPrefix;
  if (!m_.nest.empty() && inner->accs.empty() && (inner->parallel || inner->mode == LoopMode::kVector)) {
    tell("threads along i", inner->id, ": ", cost, " instructions before it by every thread; ", int(of_each(around)),
         " threads a multiprocessor without; ", cost <= most ? "taken" : str("refused: more than ", most));
  }
  return cost <= most && inner->accs.empty();
}

void Mapper::find_nest() {
  m_.body = &k_.body;
  const Loop* inner = nullptr;
  while (prefix_of(*m_.body, inner) && (inner->parallel || inner->mode == LoopMode::kVector)) {
    for (const Stmt& s : *m_.body) {
      const Inst* in = std::get_if<Inst>(&s);
      if (!in) continue;
      m_.prefix.push_back(in);
      m_.prefix_checks |= in->op == Op::kCheck && !m_.nest.empty();
    }
    m_.nest.push_back(inner);
    m_.body = &inner->body;
    if (inner->mode == LoopMode::kVector) break;
  }
}

// Halves V until the access consists of whole packs for the likely arguments.
void Mapper::narrow_by(const Inst& in, const Loop& l) {
  auto divides = [&](int64_t n) { return n % m_.elements == 0; };
  bool whole = divides(hint(in.access.offset));
  for (const Access::Term& t : in.access.terms) whole &= (!t.is_value && t.id == l.id) || divides(hint(t.stride));
  if (!whole) {
    m_.elements /= 2;
    narrow_by(in, l);
  }
}

// Chooses V: 16 bytes of the widest packed element, less if sizes are not multiples.
void Mapper::narrow(const std::vector<const Loop*>& loops) {
  size_t widest = 0;
  for (const Loop* l : loops) {
    const std::vector<bool> inside = defined_in(k_, l->body);
    for_each_own_inst(l->body, [&](const Inst& in) {
      if (is_packed(in, *l, inside)) widest = std::max(widest, size_of(in.type));
    });
  }
  m_.elements = widest ? int(std::min<size_t>(8, 16 / widest)) : 1;
  for (const Loop* l : loops) {
    const std::vector<bool> inside = defined_in(k_, l->body);
    // A load that sees a store of its own iteration must not be moved before the other iterations.
    std::vector<bool> stored(k_.params.size(), false);
    for_each_inst(l->body, [&](const Inst& in) {
      if (in.op == Op::kLoad && stored[size_t(in.access.ptr)]) m_.reread = true;
      if (in.op == Op::kStore || in.op == Op::kStoreAdd) stored[size_t(in.access.ptr)] = true;
    });
    for_each_own_inst(l->body, [&](const Inst& in) {
      if (m_.elements > 1 && is_packed(in, *l, inside)) narrow_by(in, *l);
    });
  }
}

// Finds a loop of the nest along which loads go that do not go along the innermost one, if both are long enough. Large
// tiles take fewer steps an element; they must keep all multiprocessors busy.
bool Mapper::find_tile() {
  if (m_.prefix_checks || hint(m_.nest.back()->size) < kTileWidth / 2) return false;
  double work = 1;
  for (const Loop* l : m_.nest) work *= double(hint(l->size));
  for (size_t d = 0; d + 1 < m_.nest.size(); d++) {
    bool effects = false;
    size_t element_bytes = 0;  // of all loads along d
    for_each_own_inst(*m_.body, [&](const Inst& in) {
      if (in.op == Op::kStore || in.op == Op::kLoad) effects |= in.op == Op::kLoad && written_[size_t(in.access.ptr)];
      if (is_transposed(in, m_, d)) element_bytes += size_of(in.type);
    });
    if (!element_bytes) continue;
    const int64_t shorter = std::min(hint(m_.nest[d]->size), hint(m_.nest.back()->size));
    const auto bytes_of = [&](int side) { return element_bytes * size_t(side) * size_t(side + 1); };
    const auto fits = [&](int side) {
      const double blocks = work / (double(side) * side), enough = 8 * double(machine_.processors);
      return bytes_of(side) <= kMaxTileBytes && shorter >= side && blocks >= enough;
    };
    const int side = fits(2 * kTileWidth) ? 2 * kTileWidth : kTileWidth;
    if (effects || bytes_of(side) > kMaxTileBytes || hint(m_.nest[d]->size) < kTileWidth / 2) {
      tell("tiles along i", m_.nest[d]->id, ": refused: ",
           effects                          ? "it reads what it writes"
           : bytes_of(side) > kMaxTileBytes ? str(bytes_of(side), " bytes of shared memory")
                                            : str("a side of ", hint(m_.nest[d]->size)));
      continue;
    }
    m_.tile = int(d), m_.tile_side = side;
    m_.block = kTileWidth * kTileRows;
    tell("tiles of ", side, " x ", side, " along i", m_.nest[d]->id, ": ", bytes_of(side),
         " bytes of shared memory; taken");
    return true;
  }
  return false;
}

void Mapper::map_flat() {
  m_.flat = true;
  m_.threads = 1;
  bool loops = false;
  for_each_loop(*m_.body, [&](const Loop&) { loops = true; });
  double total = 1;
  for (const Loop* l : m_.nest) total *= double(hint(l->size));
  if (!loops && find_tile()) return;
  if (!loops) {
    narrow({m_.nest.back()});
    if (m_.reread) m_.elements = 1;
    while (m_.elements > 1 && m_.nest.size() > 1 && hint(m_.nest.back()->size) % m_.elements) m_.elements /= 2;
    for (; m_.elements > 1 && of_each(total / m_.elements) < double(busy_); m_.elements /= 2) {
      tell(m_.elements, " elements a thread: refused: ", int(of_each(total / m_.elements)),
           " threads a multiprocessor, memory is busy from ", busy_);
    }
  }
  const double chunks = of_each(total / m_.elements);
  m_.block = int(kBlocks[(chunks >= double(busy_)) + (chunks >= double(4 * busy_))]);
  tell(m_.elements, " elements a thread, blocks of ", m_.block, ": ", int(chunks), " threads a multiprocessor; taken");
  choose_apart(total, loops);
  // If blocks do not cross long rows, their indices need no division.
  const int64_t row = ceil_div(hint(m_.nest.back()->size), m_.elements * m_.apart), parts = ceil_div(row, m_.block);
  if (m_.nest.size() > 1 && row >= 64) {
    m_.by_rows = true;
    m_.block = int(ceil_div(ceil_div(row, parts), 32) * 32);
  }
}

// Gives a thread several elements that are apart. Single elements keep too little memory traffic in flight.
void Mapper::choose_apart(double total, bool loops) {
  if (m_.elements != 1 || loops || m_.prefix_checks) return;
  int cost = 0;
  for_each_inst(*m_.body, [&](const Inst& in) { cost += is_heavy(in.op) ? kPrefixInstructions : 1; });
  const bool large = occupancy(machine_, total / kApart) >= 1;
  const bool taken = large && cost <= 2 * kPrefixInstructions;
  if (taken) m_.apart = kApart;
  tell(kApart, " elements apart: ",
       taken   ? "taken"
       : large ? str("refused: ", cost, " instructions each")
               : "refused: threads would be missing");
}

// Returns true if an iteration may read what another one has stored. Such a lanes loop stays on one thread.
bool Mapper::crosses_threads(const Loop& l) const {
  bool crosses = false;
  for_each_inst(l.body, [&](const Inst& store) {
    if (store.op != Op::kStore && store.op != Op::kStoreAdd) return;
    for_each_inst(l.body, [&](const Inst& in) {
      if (!has_access(in.op) || in.access.ptr != store.access.ptr) return;
      crosses |= place_key(in.access, l.id) != place_key(store.access, l.id);
    });
  });
  return crosses;
}

void Mapper::choose_group_threads(const std::vector<const Loop*>& shared, int64_t most, int64_t groups,
                                  int64_t fewest) {
  int64_t lanes = kMaxThreads * 16;
  bool alone = shared.empty();
  for (const Loop* l : shared) {
    if (l->mode != LoopMode::kLanes) continue;
    if (const int of = lanes_of(k_, *l)) lanes = std::min<int64_t>(lanes, of);
    alone |= crosses_threads(*l);
  }
  if (m_.columns || alone || m_.reread) m_.elements = 1;
  while (m_.elements > lanes) m_.elements /= 2;
  const int64_t chunks = ceil_div(most, m_.elements);
  // True if groups that each keep their share of memory busy fill the machine.
  const bool many = occupancy(machine_, double(groups * busy_)) >= 1;
  int64_t threads = m_.columns ? 32 : kMaxThreads, useful = pow2_up(chunks);
  if (m_.columns) {
    // Eight rows for each thread, or more threads if there are few columns. If there are many columns, blocks are
    // small, so that one block loads while another one combines.
    useful = std::max(pow2_up(ceil_div(chunks, 8)),
                      std::min(useful, pow2_up(machine_.processors * machine_.threads / 2 / groups)));
    useful = std::min(useful, std::max<int64_t>(8, pow2_up(machine_.processors * busy_ * 16 / groups)));
  } else if (many) {
    useful = std::max(pow2_up(ceil_div(chunks, 4)), std::min<int64_t>(useful, 8));
  }
  threads = std::min({threads, lanes / m_.elements, std::max(useful, fewest)});
  m_.threads = alone ? 1 : int(threads);
  m_.columns &= m_.threads > 1;  // otherwise the threads are adjacent as they are
  if (m_.columns) {
    m_.block = 32 * m_.threads;
  } else if (m_.threads > 32) {
    m_.block = m_.threads;
  } else {
    const int64_t wanted = pow2_up(ceil_div(groups * m_.threads, machine_.processors * 2));
    m_.block = int(std::clamp<int64_t>(wanted, 32, 256));
  }
  m_.groups_fill = !m_.columns && (m_.groups() == 1);
  tell(m_.threads, " threads a row of ", most, ", ", m_.elements, " elements each: ", groups, " rows; blocks of ",
       m_.block, "; taken");
}

// Keeps rows in registers if all shared loops have the same length and are not nested.
void Mapper::choose_resident(const std::vector<const Loop*>& shared, int64_t most) {
  if (m_.reread || shared.empty()) return;
  for (const Stmt& s : *m_.body) {
    const auto* p = std::get_if<std::unique_ptr<Loop>>(&s);
    if (p && !is_shared(**p) && !shared_loops((*p)->body).empty()) return;
  }
  for (const Loop* l : shared) {
    if (!(l->size == shared[0]->size)) return;
    bool straight = true;
    for_each_loop(l->body, [&](const Loop&) { straight = false; });
    if (!straight) return;
  }
  const int64_t rounds = ceil_div(most, int64_t(m_.threads) * m_.elements);
  if (rounds > kMaxResident || pow2_up(rounds) * m_.elements > kMaxPartials) {
    return tell("rows in registers: refused: ", rounds * m_.elements, " elements a thread");
  }
  m_.resident = int(std::max<int64_t>(rounds, 1));
  m_.exact = rounds * m_.threads * m_.elements == most;
  // Counts the registers for places that are read more than once.
  std::map<std::string, int> reads;
  int registers = 0;
  for (const Loop* l : shared) {
    const std::vector<bool> inside = defined_in(k_, l->body);
    for_each_own_inst(l->body, [&](const Inst& in) {
      if (!is_packed(in, *l, inside) || ++reads[place_key(in.access, l->id)] != 2) return;
      registers += int(rounds) * m_.elements * int(size_of(in.type)) / 4;
    });
  }
  choose_blocks(registers);
}

// Kept values may take 9/16 of a thread's registers. Addresses and values being computed need the rest.
void Mapper::choose_blocks(int registers) {
  int64_t threads = kMaxThreads;
  while (threads > 256 && registers > int64_t(machine_.registers) / threads * 9 / 16) threads /= 2;
  m_.blocks = int(std::max<int64_t>(1, threads / m_.block));
  tell("rows in registers: ", registers, " a thread; ", m_.blocks, " blocks of ", m_.block, " a multiprocessor; taken");
}

// Chooses a batch that leaves little of the likely row, since the rest goes element by element.
void Mapper::choose_batch(int64_t most) {
  m_.batch = 8;
  while (m_.batch > 1 && most % (int64_t(m_.batch) * m_.threads * m_.elements) * 8 > most) m_.batch /= 2;
}

void Mapper::map_group() {
  const std::vector<const Loop*> shared = shared_loops(*m_.body);
  m_.columns = !m_.nest.empty() && m_.nest.back()->mode == LoopMode::kVector;
  narrow(shared);
  int64_t most = 1, groups = 1;
  for (const Loop* l : m_.nest) groups *= std::max<int64_t>(hint(l->size), 1);
  for (const Loop* l : shared) {
    most = std::max(most, hint(l->size));
    const std::vector<bool> inside = defined_in(k_, l->body);
    bool packs = false;
    for_each_own_inst(l->body, [&](const Inst& in) { packs |= is_packed(in, *l, inside); });
    while (packs && m_.elements > 1 && hint(l->size) % m_.elements) m_.elements /= 2;
  }
  const int widest = m_.elements;
  const bool columns = m_.columns;
  choose_group_threads(shared, most, groups, 1);
  choose_resident(shared, most);
  if (m_.resident) return;
  if (columns) return choose_batch(most);
  // Without this, all partials of a thread would be in use.
  int lanes = 1;
  for (const Loop* l : shared) lanes = std::max(lanes, l->mode == LoopMode::kLanes ? lanes_of(k_, *l) : 1);
  m_.elements = widest;
  choose_group_threads(shared, most, groups, lanes / kMaxPartials);
  choose_batch(most);
}

Mapping Mapper::run() {
  find_nest();
  if (!m_.nest.empty() && shared_loops(*m_.body).empty())
    map_flat();
  else
    map_group();
  return std::move(m_);
}

}  // namespace

Mapping map_kernel(const Kernel& kernel, std::span<const int64_t> hints, const Machine& machine, std::string* log) {
  return Mapper(kernel, hints, machine, log).run();
}

}  // namespace lutra::cuda
