// Builds the tree of a kernel: numbers values, hoists instructions, merges loops.
#include "jit/lower/body.h"

#include <algorithm>
#include <cstring>

#include "jit/device/cost.h"
#include "ops/core/error.h"
#include "ops/core/half.h"

namespace lutra {
namespace {

std::string key_of(const loop::Inst& in) {
  std::string key("i");
  append_bytes(key, in.op), append_bytes(key, in.type);
  for (int32_t v : {in.a, in.b, in.c, in.arg}) append_bytes(key, v);
  append_bytes(key, in.imm), append_bytes(key, in.iimm);
  return key;
}

void drop_loop(Affine& at, int32_t id) {
  for (size_t i = 0; i < at.terms.size(); i++) {
    if (!at.terms[i].is_value && at.terms[i].id == id) return at.terms.erase(i);
  }
}

void drop_loop(std::vector<BodyStmt>& body, int32_t id) {
  for (BodyStmt& s : body) {
    if (s.loop) {
      drop_loop(s.loop->body, id);
    } else {
      drop_loop(s.inst.at, id);
    }
  }
}

}  // namespace

int32_t Body::open(SymInt size, loop::LoopMode mode, bool joined) {
  Scope s;
  s.loop = std::make_unique<BodyLoop>();
  s.loop->id = loops_++;
  s.loop->size = size;
  s.loop->mode = mode;
  s.loop->joined = joined;
  s.trips = scopes_.back().trips * double(size.hint);
  int32_t id = s.loop->id;
  scopes_.push_back(std::move(s));
  return id;
}

void Body::close() {
  LUTRA_CHECK(depth() > 0, "no loop is open");
  Scope s = std::move(scopes_.back());
  scopes_.pop_back();
  s.loop->body = std::move(s.body);
  for (const loop::Accumulator& a : s.loop->accs)
    values_[size_t(a.id)].depth = values_[size_t(a.id)].address_depth = depth();
  scopes_.back().body.push_back({{}, std::move(s.loop)});
}

int32_t Body::new_value(DType type, size_t depth) {
  values_.push_back({type, depth, depth});
  return int32_t(values_.size() - 1);
}

int32_t Body::pair(DType type, int32_t re, int32_t im) {
  const int32_t id = new_value(type, std::max(depth_of(re), depth_of(im)));
  values_[size_t(id)].parts[0] = re, values_[size_t(id)].parts[1] = im;
  return id;
}

int32_t Body::accumulator(size_t depth, loop::RedOp op, DType type, int32_t lanes, int32_t block) {
  bool position = is_position(op);
  int32_t id = new_value(position ? DType::kInt64 : type, this->depth());
  scopes_[depth].loop->accs.push_back({op, type, id, lanes, block});
  return id;
}

void Body::accum(int32_t acc, int32_t value) {
  BodyInst in{{loop::Op::kAccum, type(value)}};
  in.inst.a = value, in.inst.arg = acc;
  count(in.inst, depth());
  scopes_.back().body.push_back({std::move(in), nullptr});
}

void Body::count(const loop::Inst& in, size_t depth) {
  const int cost = loop::cost(in.op, in.type);
  instructions_ += std::max(1, cost / 4);
  additions_ += trips(depth) * cost;
  if (size_of(in.type) < 8) return;
  for (size_t d = 1; d <= depth; d++) {
    if (scopes_[d].loop->mode != loop::LoopMode::kSerial) return;
  }
  index_additions_ += trips(depth) * cost;
}

size_t Body::depth_of_terms(const Affine& at) const {
  size_t d = 0;
  for (const Affine::Term& t : at.terms) {
    if (t.is_value) {
      d = std::max(d, values_[size_t(t.id)].address_depth);
      continue;
    }
    size_t level = depth();
    while (level > 0 && scopes_[level].loop->id != t.id) level--;
    LUTRA_CHECK(level > 0, "an index over a loop that is not open");
    d = std::max(d, level);
  }
  return d;
}

int32_t Body::recall(const std::string& key) const {
  for (size_t d = scopes_.size(); d-- > 0;) {
    auto it = scopes_[d].known.find(key);
    if (it != scopes_[d].known.end()) return it->second;
  }
  return -1;
}

void Body::remember(const std::string& key, int32_t value) { scopes_[depth_of(value)].known.emplace(key, value); }

int32_t Body::place(size_t depth, const std::string& key, BodyInst in) {
  in.inst.id = new_value(in.inst.type, depth);
  int32_t id = in.inst.id;
  count(in.inst, depth);
  scopes_[depth].known.emplace(key, id);
  scopes_[depth].body.push_back({std::move(in), nullptr});
  return id;
}

int32_t Body::op(loop::Op op, DType type, int32_t a, int32_t b, int32_t c, int32_t arg) {
  if (is_complex(type)) {
    LUTRA_CHECK(op == loop::Op::kSelect, "arithmetic on a complex element");
    const DType t = info(type).carrier;
    return pair(type, this->op(op, t, a, part(b, 0), part(c, 0)), this->op(op, t, a, part(b, 1), part(c, 1)));
  }
  BodyInst in{{op, info(type).carrier}};
  in.inst.a = a, in.inst.b = b, in.inst.c = c, in.inst.arg = arg;
  std::string key = key_of(in.inst);
  int32_t known = recall(key);
  if (known >= 0) return known;
  size_t d = 0;
  for (int32_t v : {a, b, c}) {
    if (v >= 0) d = std::max(d, depth_of(v));
  }
  return place(d, key, std::move(in));
}

int32_t Body::constant(DType type, double v) {
  if (is_complex(type)) return pair(type, constant(info(type).carrier, v), constant(info(type).carrier, 0));
  type = info(type).carrier;
  if (!is_float(type)) return constant_int(type, int64_t(v));
  BodyInst in{{loop::Op::kConst, type}};
  in.inst.imm = v;
  std::string key = key_of(in.inst);
  int32_t known = recall(key);
  return known >= 0 ? known : place(0, key, std::move(in));
}

int32_t Body::constant_int(DType type, int64_t v) {
  if (is_complex(type)) return constant(type, double(v));
  type = info(type).carrier;
  if (is_float(type)) return constant(type, double(v));
  BodyInst in{{loop::Op::kConst, type}};
  in.inst.iimm = v;
  std::string key = key_of(in.inst);
  int32_t known = recall(key);
  return known >= 0 ? known : place(0, key, std::move(in));
}

int32_t Body::scalar(int32_t expr, DType type) {
  std::string key("x");
  append_bytes(key, expr), append_bytes(key, type);
  int32_t known = recall(key);
  if (known >= 0) return known;
  BodyInst in{{loop::Op::kScalar, type}};
  in.expr = expr;
  return place(0, key, std::move(in));
}

int32_t Body::int_value(SymInt v) {
  int32_t expr = v.to_expr();
  std::string key("n");
  append_bytes(key, expr);
  int32_t known = recall(key);
  if (known >= 0) return known;
  BodyInst in{{loop::Op::kIntArg, DType::kInt64}};
  in.expr = expr;
  return place(0, key, std::move(in));
}

int32_t Body::cast_parts(int32_t value, DType to) {
  const bool two = is_complex(type(value));
  const int32_t re = two ? part(value, 0) : value, im = two ? part(value, 1) : -1;
  if (is_bool(to)) return op(loop::Op::kOr, to, cast(re, to), cast(im, to));
  if (!is_complex(to)) return cast(re, to);
  const DType t = info(to).carrier;
  return pair(to, cast(re, t), two ? cast(im, t) : constant(t, 0));
}

int32_t Body::cast(int32_t value, DType to) {
  if (type(value) == to) return value;
  if (is_complex(to) || is_complex(type(value))) return cast_parts(value, to);
  to = info(to).carrier;
  if (type(value) == to) return value;
  if (is_bool(to)) {
    return op(loop::Op::kNe, DType::kBool, value, constant(type(value), 0));
  }
  // A value that was rounded to a half type is not rounded again. Other casts to a wider float and back stay, since
  // they make a signalling NaN quiet.
  const int32_t rounded = values_[size_t(value)].widened;
  if (rounded >= 0 && type(rounded) == to) return rounded;
  const int32_t result = op(loop::Op::kCast, to, value);
  ValueInfo& made = values_[size_t(result)];
  made.rounds = is_half(to);
  if (values_[size_t(value)].rounds && is_float(to) && !is_half(to)) made.widened = value;
  return result;
}

int32_t Body::index(const Affine& at) {
  if (at.terms.empty()) return int_value(at.offset);
  std::string key("a");
  append_key(key, at);
  int32_t known = recall(key);
  if (known >= 0) return known;
  BodyInst in{{loop::Op::kIndex, DType::kInt64}};
  in.at = at;
  return place(depth_of_terms(at), key, std::move(in));
}

int32_t Body::load_one(int32_t buffer, DType type, const Affine& at) {
  std::string key("l");
  append_bytes(key, buffer);
  append_key(key, at);
  int32_t known = recall(key);
  if (known >= 0) return known;
  BodyInst in{{loop::Op::kLoad, info(type).carrier}};
  in.buffer = buffer;
  in.at = at;
  return place(depth_of_terms(at), key, std::move(in));
}

// Counts the two parts of a complex element as one use: they are adjacent, and belong to no other element.
int32_t Body::load(int32_t buffer, DType type, const Affine& at) {
  const size_t before = values_.size();
  const Affine first = is_complex(type) ? at * 2 : at;
  int32_t v = load_one(buffer, type, first);
  if (values_.size() > before) uses_.push_back({buffer, first, false, type, elements_of(first), step_of(first, type)});
  return is_complex(type) ? pair(type, v, load_one(buffer, type, first + Affine::constant(1))) : v;
}

void Body::store_one(loop::Op op, int32_t buffer, const Affine& at, int32_t value) {
  BodyInst in{{op, type(value)}};
  in.inst.a = value;
  in.buffer = buffer;
  in.at = at;
  count(in.inst, depth());
  scopes_.back().body.push_back({std::move(in), nullptr});
}

void Body::store(loop::Op op, int32_t buffer, const Affine& at, int32_t value) {
  const bool pairs = is_complex(type(value));
  LUTRA_CHECK(!pairs || op == loop::Op::kStore, "arithmetic on a complex element");
  const Affine first = pairs ? at * 2 : at;
  uses_.push_back({buffer, first, true, type(value), elements_of(first), step_of(first, type(value))});
  store_one(op, buffer, first, pairs ? part(value, 0) : value);
  if (pairs) store_one(op, buffer, first + Affine::constant(1), part(value, 1));
}

void Body::check(int32_t value, SymInt bound, int32_t fault) {
  std::string key("c");
  append_bytes(key, value), append_bytes(key, fault);
  // A check stays inside the outermost loop, since a parallel loop must be the only statement.
  size_t d = std::max(depth_of(value), std::min<size_t>(depth(), 1));
  bool known = false;
  for (size_t level = 0; level <= depth() && !known; level++) {
    known = scopes_[level].known.count(key);
    if (known) d = level;
  }
  // Addresses that contain the value are computed in the scope of the check. After that scope is closed, another check
  // is made.
  values_[size_t(value)].address_depth = std::max(depth_of(value), d);
  if (known) return;
  BodyInst in{{loop::Op::kCheck, DType::kInt64}};
  in.inst.a = value;
  in.bound = bound;
  in.fault = fault;
  count(in.inst, d);
  scopes_[d].body.push_back({std::move(in), nullptr});
  scopes_[d].known.emplace(key, value);
}

std::vector<uint64_t> Body::hoisted() const {
  std::vector<uint64_t> hashes;
  for (const auto& [key, value] : scopes_[0].known) {
    if (std::strchr("ixna", key[0])) hashes.push_back(std::hash<std::string>()(key));
  }
  std::sort(hashes.begin(), hashes.end());
  return hashes;
}

// An address that contains a value is a new one in each iteration of the loops around it.
double Body::elements_of(const Affine& at) const {
  double n = 1;
  for (const Affine::Term& t : at.terms) {
    if (t.is_value) return trips(depth_of_terms(at));
    for (size_t d = depth(); d > 0; d--) {
      if (scopes_[d].loop->id == t.id) n *= double(scopes_[d].loop->size.hint);
    }
  }
  return n;
}

double Body::step_of(const Affine& at, DType type) const {
  if (depth() == 0) return 0;
  return std::abs(double(at.coef_of(scopes_.back().loop->id).hint)) * double(size_of(type));
}

bool Body::linear(const std::vector<BodyStmt>& body, const BodyLoop& outer, const BodyLoop& inner) {
  for (const BodyStmt& s : body) {
    if (s.loop) {
      if (!linear(s.loop->body, outer, inner)) return false;
      continue;
    }
    const BodyInst& in = s.inst;
    if (!facts_.equal(in.at.coef_of(outer.id), in.at.coef_of(inner.id) * inner.size)) return false;
  }
  return true;
}

bool Body::can_merge(const BodyLoop& outer, const BodyLoop& inner) {
  using loop::LoopMode;
  if (!outer.joined) {
    if (!inner.accs.empty() || inner.mode == LoopMode::kLanes) return false;
    // The iterations of a serial loop are independent unless it reduces. A loop that reduces merges with a serial loop
    // only, which keeps its order.
    if (inner.mode == LoopMode::kVector && !outer.accs.empty()) return false;
    if (outer.mode == LoopMode::kVector && inner.mode == LoopMode::kSerial) return false;
  }
  return linear(inner.body, outer, inner);
}

bool Body::merge(std::vector<BodyStmt>& body) {
  for (BodyStmt& s : body) {
    if (!s.loop) continue;
    BodyLoop& outer = *s.loop;
    if (!merge(outer.body)) return false;
    bool alone = outer.body.size() == 1 && outer.body[0].loop;
    if (!alone || !can_merge(outer, *outer.body[0].loop)) {
      if (outer.joined) return false;
      continue;
    }
    std::unique_ptr<BodyLoop> inner = std::move(outer.body[0].loop);
    drop_loop(inner->body, outer.id);
    inner->merges.push_back({outer.size, inner->size});
    inner->size = outer.size * inner->size;
    inner->accs.insert(inner->accs.begin(), outer.accs.begin(), outer.accs.end());
    s.loop = std::move(inner);
  }
  return true;
}

bool Body::merge_loops() {
  LUTRA_CHECK(depth() == 0, "a loop is open");
  return merge(scopes_[0].body);
}

// Marks the values that statements with effects need, from the last statement to the first.
void Body::mark_used(const std::vector<BodyStmt>& body, std::vector<bool>& used) const {
  for (size_t i = body.size(); i-- > 0;) {
    if (body[i].loop) {
      mark_used(body[i].loop->body, used);
      continue;
    }
    const BodyInst& in = body[i].inst;
    if (!loop::has_effect(in.inst.op) && !used[size_t(in.inst.id)]) continue;
    for (int32_t v : {in.inst.a, in.inst.b, in.inst.c}) {
      if (v >= 0) used[size_t(v)] = true;
    }
    for (const Affine::Term& t : in.at.terms) {
      if (t.is_value) used[size_t(t.id)] = true;
    }
  }
}

void Body::drop_dead() {
  std::vector<bool> used(values_.size(), false);
  mark_used(scopes_[0].body, used);
  std::vector<std::vector<BodyStmt>*> bodies = {&scopes_[0].body};
  for (size_t i = 0; i < bodies.size(); i++) {
    std::erase_if(*bodies[i], [&](const BodyStmt& s) {
      return !s.loop && !loop::has_effect(s.inst.inst.op) && !used[size_t(s.inst.inst.id)];
    });
    for (BodyStmt& s : *bodies[i]) {
      if (s.loop) bodies.push_back(&s.loop->body);
    }
  }
}

namespace {

// Numbers arguments, values and loops in the order of the text.
class Finisher {
 public:
  Finisher(loop::Kernel& kernel, BodyArgs& args, size_t values) : k_(kernel), args_(args), values_(values, -1) {}

  std::vector<loop::Stmt> body(std::vector<BodyStmt>& in) {
    std::vector<loop::Stmt> out;
    for (BodyStmt& s : in) {
      if (s.loop) {
        out.push_back(loop(*s.loop));
      } else {
        inst(s.inst, out);
      }
    }
    return out;
  }

  static void see_place(const loop::Inst& in, std::vector<bool>& places) {
    using loop::Op;
    const bool joined = in.op == Op::kRem || in.op == Op::kFloorDiv;
    const bool of_places = joined && places[size_t(in.a)] && places[size_t(in.b)];
    if (in.op == Op::kIndex || in.op == Op::kIntArg || of_places) places[size_t(in.id)] = true;
  }

  // The cost of an access whose address depends on an element: it may miss all caches.
  static constexpr int64_t kAnywhere = 10 * kAdditionsOfElement;

  // Returns the work of body. Adding two vectors in memory counts 1 for each element. places: the values seen so far
  // that depend on the position in loops only.
  static SymInt work(const std::vector<BodyStmt>& body, std::vector<bool>& places) {
    SymInt n = 0;
    int64_t cost = 0;
    for (const BodyStmt& s : body) {
      if (s.loop) {
        n = n + s.loop->size * work(s.loop->body, places);
      } else {
        cost += loop::cost(s.inst.inst.op, s.inst.inst.type);
        see_place(s.inst.inst, places);
        const auto& terms = s.inst.at.terms;
        const bool anywhere = std::any_of(terms.begin(), terms.end(),
                                          [&](const Affine::Term& t) { return t.is_value && !places[size_t(t.id)]; });
        if (anywhere && s.inst.buffer >= 0) cost += kAnywhere;
      }
    }
    return n.is_constant() && n.hint == 0 ? SymInt(std::max<int64_t>(1, cost / kAdditionsOfElement)) : n;
  }

 private:
  int32_t add_int(int32_t expr, bool shared = true) {
    if (shared) {
      for (size_t i = 0; i < shared_.size(); i++) {
        if (args_.ints[size_t(shared_[i])] == expr) return shared_[i];
      }
    }
    args_.ints.push_back(expr);
    if (shared) shared_.push_back(k_.ints);
    return k_.ints++;
  }
  loop::Coef coef(SymInt v) {
    if (v.is_constant() && (v.hint == 0 || v.hint == 1)) return loop::Coef::of(v.hint);
    return loop::Coef::of_arg(add_int(v.to_expr()));
  }
  int32_t pointer(int32_t buffer, DType type, bool written) {
    size_t p = 0;
    while (p < args_.buffers.size() && args_.buffers[p] != buffer) p++;
    if (p == args_.buffers.size()) {
      args_.buffers.push_back(buffer);
      k_.params.push_back({type, false});
    }
    LUTRA_CHECK(k_.params[p].type == type, "a buffer of two types");
    k_.params[p].written |= written;
    return int32_t(p);
  }
  int32_t define(int32_t old) { return values_[size_t(old)] = k_.values++; }
  int32_t use(int32_t old) { return old < 0 ? -1 : values_[size_t(old)]; }
  int32_t loop_id(int32_t old) { return loops_.at(old); }

  loop::Stmt loop(BodyLoop& in) {
    auto l = std::make_unique<loop::Loop>();
    l->id = k_.loops++;
    loops_[in.id] = l->id;
    l->size = coef(in.size);
    l->mode = in.mode;
    l->parallel = in.parallel;
    if (in.parallel && k_.loops == 1) {
      std::vector<bool> places(values_.size(), false);
      args_.extent = in.size, args_.work = work(in.body, places);
    }
    // defined first, since kAccum in the body refers to them
    for (loop::Accumulator a : in.accs) {
      a.id = define(a.id);
      l->accs.push_back(a);
    }
    l->body = body(in.body);
    return l;
  }

  loop::Access access(const BodyInst& in) {
    loop::Access a;
    a.ptr = pointer(in.buffer, in.inst.type, in.inst.op != loop::Op::kLoad);
    a.offset = coef(in.at.offset);
    for (const Affine::Term& t : in.at.terms) {
      a.terms.push_back({t.is_value, t.is_value ? use(t.id) : loop_id(t.id), coef(t.coef)});
    }
    return a;
  }

  int32_t emit(std::vector<loop::Stmt>& out, loop::Op op, int32_t a, int32_t b, int32_t arg = -1) {
    loop::Inst in{op, DType::kInt64, k_.values++, a, b};
    in.arg = arg;
    out.push_back(std::move(in));
    return k_.values - 1;
  }

  // offset + sum of loop variables and values times coefficients, as i64.
  void affine(const BodyInst& in, std::vector<loop::Stmt>& out) {
    int32_t sum = -1;
    auto add = [&](int32_t v) { sum = sum < 0 ? v : emit(out, loop::Op::kAdd, sum, v); };
    for (const Affine::Term& t : in.at.terms) {
      int32_t v = t.is_value ? use(t.id) : emit(out, loop::Op::kIndex, -1, -1, loop_id(t.id));
      if (!(t.coef.is_constant() && t.coef.hint == 1)) {
        int32_t by = emit(out, loop::Op::kIntArg, -1, -1, add_int(t.coef.to_expr()));
        v = emit(out, loop::Op::kMul, v, by);
      }
      add(v);
    }
    if (!(in.at.offset.is_constant() && in.at.offset.hint == 0)) {
      add(emit(out, loop::Op::kIntArg, -1, -1, add_int(in.at.offset.to_expr())));
    }
    values_[size_t(in.inst.id)] = sum;
  }

  void inst(const BodyInst& in, std::vector<loop::Stmt>& out) {
    if (in.inst.op == loop::Op::kIndex) return affine(in, out);
    loop::Inst r = in.inst;
    r.a = use(r.a), r.b = use(r.b), r.c = use(r.c);
    if (r.op == loop::Op::kAccum) r.arg = use(r.arg);
    if (loop::has_access(r.op)) r.access = access(in);
    if (r.op == loop::Op::kIntArg) r.arg = add_int(in.expr);
    if (r.op == loop::Op::kCheck) {
      // Each check has an argument of its own, so that a fault identifies the check.
      r.arg = add_int(in.bound.to_expr(), false);
      args_.checks.push_back({r.arg, in.fault});
    }
    if (r.op == loop::Op::kScalar) {
      auto it = std::find(args_.scalars.begin(), args_.scalars.end(), in.expr);
      r.arg = int32_t(it - args_.scalars.begin());
      if (it == args_.scalars.end()) args_.scalars.push_back(in.expr), k_.scalars++;
    }
    if (r.id >= 0) r.id = define(r.id);
    out.push_back(std::move(r));
  }

  loop::Kernel& k_;
  BodyArgs& args_;
  std::vector<int32_t> values_;
  std::unordered_map<int32_t, int32_t> loops_;
  std::vector<int32_t> shared_;
};

}  // namespace

loop::Kernel Body::finish(const std::string& name, BodyArgs& args) {
  drop_dead();
  loop::Kernel k;
  k.name = name;
  std::vector<BodyStmt>& all = scopes_[0].body;
  if (std::none_of(all.begin(), all.end(), [](const BodyStmt& s) { return s.loop && s.loop->parallel; })) {
    std::vector<bool> places(values_.size(), false);
    args.work = Finisher::work(all, places);
  }
  k.body = Finisher(k, args, values_.size()).body(all);
  return k;
}

}  // namespace lutra
