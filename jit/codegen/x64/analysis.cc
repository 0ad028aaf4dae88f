// Finds types, vector length and costs of a verified kernel.
#include "jit/codegen/x64/analysis.h"

#include <algorithm>

#include "ops/core/error.h"

namespace lutra::x64 {

using namespace loop;

bool is_small(DType t) { return size_of(t) < 4; }

Analysis::Analysis(const Kernel& k, int most_lanes)
    : types(size_t(k.values), DType::kNone),
      loops(size_t(k.loops)),
      lanes(most_lanes),
      wide_lanes_(most_lanes / 2),
      lane_index_(size_t(k.values), false),
      computed_with_(size_t(k.values), false),
      defined_in_(size_t(k.values)) {
  std::vector<const Loop*> nest;
  find_tiles(k.body, nest);
  for_each_loop(k.body, [&](const Loop& l) {
    if (l.mode == LoopMode::kVector) find_lane_indices(l);
  });
  walk(k.body, nullptr);
}

// Returns true if the access has unit stride in loop `outer`, and a stride other than 0 and 1 in the vector loop.
static bool along(const Access& a, const Loop& outer, const Loop& vector_loop) {
  int rows = 0, columns = 0;
  for (const Access::Term& t : a.terms) {
    if (t.is_value) return false;
    if (t.id == outer.id) rows += t.stride == Coef::of(1) ? 1 : 2;
    if (t.id == vector_loop.id) columns += t.stride == Coef::of(0) || t.stride == Coef::of(1) ? 2 : 1;
  }
  return rows == 1 && columns == 1;
}

// Returns the loop of the nest (serial loops, then a vector loop) along which all those loads go that are neither rows
// nor uniform in the vector loop. Returns null if there is none, or if a gather is needed all the same.
const Loop* Analysis::tiling(const std::vector<const Loop*>& nest) const {
  const Loop& inner = *nest.back();
  const Loop* along_loop = nullptr;
  for (const Stmt& s : inner.body) {
    const Inst* in = std::get_if<Inst>(&s);
    if (!in || in->op == Op::kAccum || in->op == Op::kCheck) return nullptr;
    if (!has_access(in->op) || !gathered(*in, inner)) continue;
    if (in->op != Op::kLoad) return nullptr;
    for (size_t d = 0; d + 1 < nest.size() && !along_loop; d++) {
      if (along(in->access, *nest[d], inner)) along_loop = nest[d];
    }
    if (!along_loop || !along(in->access, *along_loop, inner)) return nullptr;
  }
  return along_loop;
}

// nest: the enclosing loops, from the outermost one on whose body has only instructions without effect and the next
// loop.
void Analysis::find_tiles(const std::vector<Stmt>& body, std::vector<const Loop*>& nest) {
  size_t loops_here = 0;
  bool effects = false;
  for (const Stmt& s : body) {
    if (const Inst* in = std::get_if<Inst>(&s))
      effects |= has_effect(in->op);
    else
      loops_here++;
  }
  const bool last = !body.empty() && std::holds_alternative<std::unique_ptr<Loop>>(body.back());
  if (loops_here != 1 || effects || !last) nest.clear();
  for (const Stmt& s : body) {
    const auto* p = std::get_if<std::unique_ptr<Loop>>(&s);
    if (!p) continue;
    const Loop& l = **p;
    std::vector<const Loop*> within = nest;
    if (!l.accs.empty()) within.clear();
    within.push_back(&l);
    if (l.mode == LoopMode::kSerial) {
      if (!l.accs.empty()) within.clear();
      find_tiles(l.body, within);
    } else if (l.mode == LoopMode::kVector && within.size() > 1) {
      const Loop* tile = tiling(within);
      if (!tile) continue;
      tiles_.emplace_back(&l, tile);
      for (const Stmt& inner : l.body) {
        const Inst& in = std::get<Inst>(inner);
        if (in.op == Op::kLoad && gathered(in, l)) columns_.push_back(&in);
      }
    }
  }
}

const Loop* Analysis::tile_loop(const Loop& vector_loop) const {
  for (const auto& t : tiles_) {
    if (t.first == &vector_loop) return t.second;
  }
  return nullptr;
}

bool Analysis::is_column(const Inst& in) const {
  return std::find(columns_.begin(), columns_.end(), &in) != columns_.end();
}

static bool takes(const Inst& in, int32_t id) {
  const int32_t operands[] = {in.a, in.b, in.c};
  for (int i = 0; i < info(in.op).operands; i++) {
    if (operands[i] == id) return true;
  }
  for (const Access::Term& t : in.access.terms) {
    if (has_access(in.op) && t.is_value && t.id == id) return true;
  }
  return false;
}

void Analysis::find_lane_indices(const Loop& l) {
  std::vector<bool> inside(lane_index_.size(), false);
  std::vector<int32_t> indices;
  const auto define = [&](int32_t id) {
    if (id >= 0) inside[size_t(id)] = true;
  };
  for_each_inst(l.body, [&](const Inst& in) {
    define(in.id);
    if (in.op == Op::kIndex && in.arg == l.id) indices.push_back(in.id);
  });
  for_each_loop(l.body, [&](const Loop& inner) {
    for (const Accumulator& a : inner.accs) define(a.id);
  });
  for (const int32_t id : indices) {
    bool only = true;
    for_each_inst(l.body, [&](const Inst& in) {
      if (!takes(in, id)) return;
      const bool compares = info(in.op).rule == TypeRule::kCompare;
      only = only && compares && !inside[size_t(in.a == id ? in.b : in.a)];
    });
    lane_index_[size_t(id)] = only;
  }
}

bool Analysis::compares_lanes(const Inst& in) const {
  return info(in.op).rule == TypeRule::kCompare && (is_lane_index(in.a) || is_lane_index(in.b));
}

void Analysis::walk(const std::vector<Stmt>& body, const Loop* vector_loop) {
  for (const Stmt& s : body) {
    if (const auto* p = std::get_if<std::unique_ptr<Loop>>(&s)) {
      const Loop& l = **p;
      loops[size_t(l.id)] = &l;
      for (const Accumulator& a : l.accs) {
        const bool position = is_position(a.op);
        types[size_t(a.id)] = position ? DType::kInt64 : a.type;
        defined_in_[size_t(a.id)] = vector_loop;
      }
      walk(l.body, l.mode == LoopMode::kSerial ? vector_loop : &l);
    } else {
      inst(std::get<Inst>(s), vector_loop);
    }
  }
}

void Analysis::inst(const Inst& in, const Loop* vector_loop) {
  if (in.id >= 0) {
    types[size_t(in.id)] = in.type;
    defined_in_[size_t(in.id)] = vector_loop;
  }
  if (in.op == Op::kScalar || in.op == Op::kIntArg) {
    const bool known = std::any_of(parameters.begin(), parameters.end(), [&](const Inst* p) {
      return p->op == in.op && p->arg == in.arg && p->type == in.type;
    });
    if (!known) parameters.push_back(&in);
  }
  const int32_t operands[] = {in.a, in.b, in.c};
  for (int i = 0; i < info(in.op).operands && in.op != Op::kStore; i++) computed_with_[size_t(operands[i])] = true;
  if (!vector_loop || is_lane_index(in.id) || compares_lanes(in)) return;
  bool wide = size_of(in.type) == 8;
  for (int i = 0; i < info(in.op).operands; i++) wide |= size_of(types[size_t(operands[i])]) == 8;
  const bool doubles = in.op == Op::kPow || in.op == Op::kErfc;
  wide |= doubles && is_float(in.type);
  const bool divides = in.op == Op::kDiv || in.op == Op::kRem || in.op == Op::kFloorDiv;
  wide |= divides && !is_float(in.type) && !is_small(in.type);
  if (in.op == Op::kAccum) wide |= size_of(types[size_t(in.arg)]) == 8;
  if (has_access(in.op)) wide |= gathered(in, *vector_loop);
  if (wide) lanes = wide_lanes_;
}

bool Analysis::gathered(const Inst& in, const Loop& vector_loop) const {
  if (is_column(in)) return false;
  int units = 0;
  for (const Access::Term& t : in.access.terms) {
    if (t.is_value) {
      if (defined_in_[size_t(t.id)] == &vector_loop) return true;
    } else if (t.id == vector_loop.id && !(t.stride == Coef::of(0))) {
      if (!(t.stride == Coef::of(1))) return true;
      units++;
    }
  }
  return units > 1;
}

bool Analysis::gathers(const Loop& l) const {
  bool found = false;
  for_each_inst(l.body, [&](const Inst& in) { found |= has_access(in.op) && gathered(in, l); });
  return found;
}

int Analysis::cost(const Loop& l) const {
  int total = 0;
  for_each_inst(l.body, [&](const Inst& in) { total += loop::cost(in.op, in.type); });
  return total;
}

}  // namespace lutra::x64
