// Writes a kernel's loops as blocks and threads, and the frame of the source around them.
#include "jit/codegen/cuda/code.h"

#include <algorithm>
#include <bit>

#include "jit/codegen/cuda/device_text.h"
#include "jit/codegen/cuda/writer.h"
#include "ops/cuda/loaded_module.h"

namespace lutra::cuda {

using namespace loop;

void Writer::line(const std::string& text) {
  if (text.rfind("#pragma", 0) != 0) out_.append(size_t(depth_) * 2, ' ');
  out_ += text + "\n";
}
void Writer::open(const std::string& text) {
  line(text);
  depth_++;
}
void Writer::close() {
  depth_--;
  line("}");
}

Writer::Writer(const Kernel& k, const Mapping& m, int most)
    : k_(k),
      m_(m),
      most_(most),
      types_(size_t(k.values), DType::kNone),
      accs_(size_t(k.values), nullptr),
      counted_(size_t(k.values)) {
  entry_ = "lutra_";
  for (char c : k.name) entry_ += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (most > 1) entry_ += "_several";
  for_each_inst(k.body, [&](const Inst& in) {
    if (in.id >= 0) types_[size_t(in.id)] = in.type;
    checks_ |= in.op == Op::kCheck;
  });
  for_each_loop(k.body, [&](const Loop& l) {
    for (const Accumulator& a : l.accs) {
      const bool position = is_position(a.op);
      types_[size_t(a.id)] = position ? DType::kInt64 : a.type;
      accs_[size_t(a.id)] = &a;
      reduce_ = true;
    }
  });
}

void Writer::block_struct() {
  line("struct Block {");
  line("  Head head;");
  if (!k_.params.empty()) line(str("  void* p[", k_.params.size(), "];"));
  if (k_.ints) line(str("  i64 n[", k_.ints, "];"));
  if (k_.scalars) line(str("  double x[", k_.scalars, "];"));
  line("};");
}

void Writer::head() {
  const std::string bounds = str(m_.block, m_.blocks > 1 ? str(", ", m_.blocks) : "");
  if (most_ == 1) block_struct();
  if (most_ > 1) line(str("struct Several {\n  u64 count, first[", most_, "];\n  Block b[", most_, "];\n};"));
  line(str("extern \"C\" __global__ void __launch_bounds__(", bounds, ") ", entry_, "(const __grid_constant__ ",
           most_ > 1 ? "Several several" : "Block b", ") {"));
  depth_++;
  line("sync_dependencies();");
  if (most_ > 1) {
    line("unsigned which = 0;");
    line("while (which + 1 < several.count && blockIdx.x >= several.first[which + 1]) which++;");
    line("const Block& b = several.b[which];");
    line("const unsigned block_x = blockIdx.x - unsigned(several.first[which]);");
  }
  for (size_t p = 0; p < k_.params.size(); p++) {
    const std::string type = str(k_.params[p].written ? "" : "const ", memory_type(k_.params[p].type), "*");
    line(str(type, " const p", p, " = static_cast<", type, ">(b.p[", p, "]);"));
  }
  for (int n = 0; n < k_.ints; n++) line(str("const i64 n", n, " = b.n[", n, "];"));
  if (checks_) line("bool ok = true;");
}

// Returns a condition that is true if every pack of the loops is whole and aligned in memory.
std::string Writer::packed_condition(const std::vector<const Loop*>& loops) {
  std::vector<std::string> aligned, strides;
  auto once = [](std::vector<std::string>& list, const std::string& s) {
    if (std::find(list.begin(), list.end(), s) == list.end()) list.push_back(s);
  };
  for (const Loop* l : loops) {
    const std::vector<bool> inside = defined_in(k_, l->body);
    for_each_own_inst(l->body, [&](const Inst& in) {
      if (!is_packed(in, *l, inside)) return;
      const std::string offset = in.access.offset == Coef::of(0) ? "" : str(" + ", coef(in.access.offset));
      once(aligned, str("(u64(p", in.access.ptr, offset, ") & ", size_of(in.type) * size_t(m_.elements) - 1, ")"));
      for (const Access::Term& t : in.access.terms) {
        if ((t.is_value || t.id != l->id) && !(t.stride == Coef::of(0))) once(strides, coef(t.stride));
      }
    });
  }
  if (m_.resident) once(strides, coef(loops[0]->size));
  std::string text;
  for (const std::string& a : aligned) text += (text.empty() ? "" : " | ") + a;
  std::string all;
  for (const std::string& s : strides) all += (all.empty() ? "" : " | ") + s;
  if (!all.empty()) text += str(text.empty() ? "" : " | ", "((", all, ") & ", m_.elements - 1, ")");
  return text.empty() ? "true" : str("(", text, ") == 0");
}

// Returns the size of loop d of the nest. For a flat kernel's innermost loop, returns its number of packs.
std::string Writer::extent(size_t d) const {
  const std::string n = coef(m_.nest[d]->size), size = m_.prefix_checks ? str("max1(", n, ")") : n;
  if (!m_.flat || d + 1 < m_.nest.size() || m_.elements == 1) return size;
  return str("(", size, " + ", m_.elements - 1, " >> ", std::countr_zero(unsigned(m_.elements)), ")");
}

// Splits `from` into the variables of the outer `depth` loops of the nest.
void Writer::split_indices(const std::string& from, size_t depth) {
  std::string rest = from;
  for (size_t d = depth; d-- > 0;) {
    const bool chunks = m_.flat && d + 1 == m_.nest.size();
    const std::string name = str(chunks ? "c" : "i", m_.nest[d]->id);
    const std::string times = chunks && m_.elements > 1 ? str(" * ", m_.elements) : "";
    if (d == 0) {
      line(str("const i64 ", name, " = ", rest, times, ";"));
    } else {
      line(str("i64 w", d, ";"));
      line(str("const i64 g", d, " = split(", rest, ", ", extent(d), ", w", d, ");"));
      line(str("const i64 ", name, " = w", d, times, ";"));
      rest = str("g", d);
    }
  }
}

// Returns the number of elements of the nest; by rows, the number of rows.
std::string Writer::nest_total() const {
  std::string total;
  for (size_t d = 0; d < m_.nest.size(); d++) {
    if (!m_.by_rows || d + 1 < m_.nest.size()) total += (d ? " * " : "") + extent(d);
  }
  return total;
}

// Declares the variables of a flat kernel's nest. Threads beyond the nest return.
void Writer::nest_indices() {
  const size_t depth = m_.nest.size();
  if (!m_.by_rows) {
    line(str("const i64 g = i64(", block_x(), ") * ", m_.block, " + threadIdx.x;"));
    line(str("if (g >= ", nest_total(), ") return;"));
    return split_indices("g", depth);
  }
  const std::string c = str("c", m_.nest.back()->id), inner = coef(m_.nest.back()->size);
  line(str("const i64 ", c, " = (i64(", block_x(), ") * ", m_.block, " + threadIdx.x)",
           m_.elements > 1 ? str(" * ", m_.elements) : "", ";"));
  line("const i64 g = blockIdx.y + i64(blockIdx.z) * gridDim.y;");
  line(str("if (", c, " >= ", m_.prefix_checks ? str("max1(", inner, ")") : inner, " || g >= ", nest_total(),
           ") return;"));
  split_indices("g", depth - 1);
}

// Writes a thread's elements that are as far apart as the block has threads. If all exist, there is no branch between
// their loads.
void Writer::flat_apart() {
  const std::string i = str("i", m_.nest.back()->id), c = str("c", m_.nest.back()->id);
  const std::string limit = m_.by_rows ? coef(m_.nest.back()->size) : nest_total();
  if (m_.by_rows) {
    line("const i64 g = blockIdx.y + i64(blockIdx.z) * gridDim.y;");
    line(str("if (g >= ", nest_total(), ") return;"));
    split_indices("g", m_.nest.size() - 1);
  }
  line(str("const i64 base = i64(", block_x(), ") * ", m_.block * m_.apart, " + threadIdx.x, limit = ", limit, ";"));
  for (bool all : {true, false}) {
    if (all)
      open(str("if (base + ", m_.block * (m_.apart - 1), " < limit) {"));
    else
      depth_--, open("} else {");
    line(all ? "#pragma unroll" : "#pragma unroll 1");
    open(str("for (int u = 0; u < ", m_.apart, "; u++) {"));
    line(str("const i64 ", m_.by_rows ? c : "g", " = base + u * ", m_.block, ";"));
    if (!all) line(str("if (", m_.by_rows ? c : "g", " >= limit) break;"));
    if (!m_.by_rows) split_indices("g", m_.nest.size());
    line(str("const i64 ", i, " = ", c, ";"));
    for (const Inst* in : m_.prefix) inst(*in);
    thread_body(*m_.body);
    close();
  }
  close();
}

void Writer::flat() {
  if (m_.apart > 1) return flat_apart();
  const Loop& inner = *m_.nest.back();
  const std::string c = str("c", inner.id), i = str("i", inner.id), n = coef(inner.size);
  nest_indices();
  for (const Inst* in : m_.prefix) inst(*in);
  if (m_.prefix_checks) line(str("if (", c, " >= ", n, ") return;"));
  if (m_.elements == 1) {
    line(str("const i64 ", i, " = ", c, ";"));
    thread_body(*m_.body);
    return;
  }
  line(str("const i64 ", bound(inner), " = ", n, ";"));
  open(str("if (", packed_condition({&inner}), " && ", c, " + ", m_.elements, " <= ", n, ") {"));
  elements(inner, {true, false, ""});
  depth_--;
  open("} else {");
  elements(inner, {false, false, ""});
  close();
}

// Tiles of loop `tile` of the nest by the innermost loop. Loads along `tile` fill a tile in shared memory, and the
// threads, which go along the innermost loop, read it there. The threads cover kTileRows rows of kTileWidth elements at
// a time.
void Writer::tiles() {
  const int side = m_.tile_side;
  const Loop &a = *m_.nest[size_t(m_.tile)], &v = *m_.nest.back();
  const std::string ia = str("i", a.id), iv = str("i", v.id);
  std::string rest = block_x();
  for (size_t d = m_.nest.size(); d-- > 0;) {
    const Loop& l = *m_.nest[d];
    const bool tiled = &l == &a || &l == &v;
    const std::string size = tiled ? str("((", coef(l.size), " + ", side - 1, ") / ", side, ")") : coef(l.size);
    line(str("i64 w", d, ";"));
    line(str("const i64 g", d, " = split(", rest, ", ", size, ", w", d, ");"));
    line(tiled ? str("const i64 o", l.id, " = w", d, " * ", side, ";") : str("const i64 i", l.id, " = w", d, ";"));
    rest = str("g", d);
  }
  const std::string x = side > kTileWidth ? "threadIdx.x + h" : "threadIdx.x";
  std::vector<std::string> fills;
  for_each_own_inst(*m_.body, [&](const Inst& in) {
    if (!is_transposed(in, m_, size_t(m_.tile))) return;
    const std::string name = str("tile", in.id);
    line(str("__shared__ ", memory_type(in.type), " ", name, "[", side, "][", side + 1, "];"));
    const char* read = is_constant(k_.params[size_t(in.access.ptr)]) ? "__ldg" : "*";
    fills.push_back(
        str(name, "[threadIdx.y + k][", x, "] = ", read, "(p", in.access.ptr, " + (", address(in.access), "));"));
    tiles_[&in] = str(name, "[", x, "][threadIdx.y + k]");
  });
  const std::string within = str("if (", ia, " < ", coef(a.size), " && ", iv, " < ", coef(v.size), ") {");
  const auto each_element = [&](const std::string& indices, const auto& body) {
    line("#pragma unroll");
    open(str("for (int k = 0; k < ", side, "; k += ", kTileRows, ") {"));
    if (side > kTileWidth) {
      line("#pragma unroll");
      open(str("for (int h = 0; h < ", side, "; h += ", kTileWidth, ") {"));
    }
    line(indices);
    open(within);
    body();
    close();
    if (side > kTileWidth) close();
    close();
  };
  each_element(str("const i64 ", ia, " = o", a.id, " + ", x, ", ", iv, " = o", v.id, " + threadIdx.y + k;"), [&] {
    for (const std::string& text : fills) line(text);
  });
  line("__syncthreads();");
  each_element(str("const i64 ", ia, " = o", a.id, " + threadIdx.y + k, ", iv, " = o", v.id, " + ", x, ";"), [&] {
    for (const Inst* in : m_.prefix) inst(*in);
    thread_body(*m_.body);
  });
}

void Writer::group() {
  const int T = m_.threads, G = m_.groups();
  in_groups_ = true;
  if (m_.columns)
    line("const int t = threadIdx.y;");
  else if (T > 1)
    line(T == m_.block ? "const int t = threadIdx.x;" : str("const int t = threadIdx.x % ", T, ";"));
  else
    line("constexpr int t = 0;");
  std::string total = m_.nest.empty() ? "1" : "";
  for (const Loop* l : m_.nest) {
    total += (total.empty() ? "" : " * ") + (m_.prefix_checks ? str("max1(", coef(l->size), ")") : coef(l->size));
  }
  if (m_.groups_fill) {
    line(str("const i64 g = ", block_x(), ";"));
    line("constexpr bool live = true;");
  } else {
    const std::string in_block = m_.columns ? "threadIdx.x" : T > 1 ? str("threadIdx.x / ", T) : "threadIdx.x";
    line(str("const i64 all = ", total, ", own = i64(", block_x(), ") * ", G, " + ", in_block, ";"));
    line(str(m_.prefix_checks ? "" : "const ", "bool live = own < all;"));
    line("const i64 g = live ? own : all - 1;");
  }
  split_indices("g", m_.nest.size());
  for (const Inst* in : m_.prefix) inst(*in);
  if (m_.prefix_checks) {
    const std::string inner = str("i", m_.nest.back()->id, " < ", coef(m_.nest.back()->size));
    line(m_.groups_fill ? str("if (!(", inner, ")) return;") : str("live &= ", inner, ";"));
  }
  line("const bool first = live && t == 0;");
  const std::vector<const Loop*> shared = shared_loops(*m_.body);
  if (m_.elements > 1 || m_.resident) {
    line(str("const bool packed = ", m_.elements > 1 ? packed_condition(shared) : "true", ";"));
  }
  if (m_.resident) {
    const int whole = m_.threads * m_.elements * m_.resident;
    open(str("if (packed && ", coef(shared[0]->size), m_.exact ? " == " : " <= ", whole, ") {"));
    fast_ = true;
    plan_residency(*m_.body);
    kept_.clear();
    group_body(*m_.body);
    fast_ = false;
    line("return;");
    close();
    touched_.clear();
    kept_.clear();
  }
  group_body(*m_.body);
}

void Writer::barrier() {
  touched_.clear();
  if (m_.threads > 1) line(m_.columns || m_.threads > 32 ? "__syncthreads();" : "__syncwarp();");
}

bool Writer::conflicts(const std::vector<Touch>& a, const std::vector<Touch>& b) const {
  if (m_.threads == 1) return false;
  for (const Touch& x : a) {
    for (const Touch& y : b) {
      if (x.ptr != y.ptr || (!x.store && !y.store)) continue;
      const bool same = x.shared == y.shared && (x.shared ? x.key == y.key : x.store && y.store);
      if (!same) return true;
    }
  }
  return false;
}

void Writer::group_inst(const Inst& in) {
  if (has_access(in.op) && k_.params[size_t(in.access.ptr)].written) {
    const std::vector<Touch> own = {{in.access.ptr, place_key(in.access, -1), in.op != Op::kLoad, false}};
    if (conflicts(touched_, own)) barrier();
    touched_.push_back(own[0]);
    if (in.op != Op::kLoad) {
      std::erase_if(kept_, [&](const auto& row) { return row.second.ptr == in.access.ptr; });
    }
  }
  if (in.op == Op::kStore || in.op == Op::kStoreAdd)
    store(in, "first");
  else
    inst(in);
}

void Writer::group_body(const Stmts& body) {
  for (const Stmt& s : body) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s))
      group_loop(**l);
    else
      group_inst(std::get<Inst>(s));
  }
}

// Writes a loop that all threads of the group run alike, with or without shared loops inside.
void Writer::group_loop(const Loop& l) {
  if (is_shared(l)) return shared_loop(l);
  declare_accumulators(l);
  const std::vector<Touch> before = touched_;
  const std::string i = str("i", l.id);
  open_serial(l, "");
  kept_.clear();
  group_body(l.body);
  kept_.clear();
  // Between iterations a barrier is needed, unless every access of a place is by the same thread in every iteration.
  std::vector<Touch> own;
  std::vector<int> count(k_.params.size(), 0);
  auto take = [&](const Inst& in, const Loop* shared) {
    if (!has_access(in.op) || !k_.params[size_t(in.access.ptr)].written) return;
    own.push_back(
        {in.access.ptr, place_key(in.access, shared ? shared->id : -1), in.op != Op::kLoad, shared != nullptr});
    count[size_t(in.access.ptr)]++;
  };
  const std::vector<const Loop*> shared = shared_loops(l.body);
  for_each_inst(l.body, [&](const Inst& in) {
    const Loop* of = nullptr;
    for (const Loop* s : shared) {
      for_each_inst(s->body, [&](const Inst& other) { of = &other == &in ? s : of; });
    }
    take(in, of);
  });
  std::erase_if(own, [&](const Touch& t) { return count[size_t(t.ptr)] == 1; });
  bool varies = false;
  for (const Touch& t : own) varies |= t.shared && t.store && t.key.find(i + "*") != std::string::npos;
  if (m_.threads > 1 && (varies || conflicts(own, own))) barrier();
  close_serial(l);
  touched_.insert(touched_.end(), before.begin(), before.end());
  finish_accumulators(l);
}

void Writer::thread_body(const Stmts& body) {
  for (const Stmt& s : body) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s))
      thread_loop(**l);
    else
      inst(std::get<Inst>(s));
  }
}

void Writer::thread_loop(const Loop& l) {
  declare_accumulators(l);
  int cost = 0;
  for_each_inst(l.body, [&](const Inst&) { cost++; });
  bool inner = false;
  for_each_loop(l.body, [&](const Loop&) { inner = true; });
  open_serial(l, inner || cost > 24 ? "#pragma unroll 1" : cost > 12 ? "#pragma unroll 4" : "#pragma unroll 8");
  thread_body(l.body);
  close_serial(l);
  finish_accumulators(l);
}

std::string Writer::run() {
  head();
  if (m_.flat && m_.tile >= 0)
    tiles();
  else if (m_.flat)
    flat();
  else
    group();
  close();
  const size_t brace = out_.find(") {\n") + 4;
  if (shared_bytes_) {
    out_.insert(brace,
                str("  __shared__ __align__(16) unsigned char shared[", shared_bytes_, "], slots[", slots_, "];\n"));
  }
  return std::move(out_);
}

namespace {

// Returns the head of a kernel's source. It includes only what the text uses, since it is compiled with each kernel.
std::string preamble(const std::string& text, bool reduces) {
  std::string before = str(kDependentLaunch, device_scalars);
  if (text.find("lutra::loop::") != std::string::npos || text.find("uniform_") != std::string::npos) {
    before += str(device_math, loop_math, loop_functions, device_random);
  }
  return reduces ? before + device_reduce : before;
}

constexpr int64_t kMaxBlocks = 0x7fffffff, kMaxAcross = 65535;  // of a grid's first dimension, and of the others

class Source : public KernelSource {
 public:
  Source(const Kernel& k, std::span<const int64_t> hints, const Machine& machine, bool several)
      : map_(map_kernel(k, hints, machine)) {
    Writer w(k, map_, 1);
    text = w.run();
    entry = w.entry();
    const size_t words = sizeof(BlockHead) / 8 + k.params.size() + size_t(k.ints + k.scalars);
    const size_t fit = std::min<size_t>((kParameterWords - 1) / (words + 1), 64);
    if (several && !map_.by_rows && fit > 1) {
      most = int(fit);
      Writer v(k, map_, most);
      text += v.run();
      several_entry = v.entry();
    }
    text = preamble(text, w.reduces()) + text;
    for (const Loop* l : map_.nest) sizes_.push_back(l->size);
    map_.nest.clear(), map_.prefix.clear();
    map_.body = nullptr;
  }
  bool grid(const int64_t* ints, Grid& out) const override {
    int64_t total = 1;
    for (size_t d = 0; d < sizes_.size(); d++) {
      int64_t n = sizes_[d].arg >= 0 ? ints[sizes_[d].arg] : sizes_[d].literal;
      if (map_.prefix_checks && d > 0) n = std::max<int64_t>(n, 1);
      if (map_.flat && d + 1 == sizes_.size()) n = ceil_div(n, map_.elements);
      if (map_.tile >= 0 && (d + 1 == sizes_.size() || int(d) == map_.tile)) n = ceil_div(n, map_.tile_side);
      if (n <= 0) return false;
      total *= n;
    }
    const int64_t each = map_.tile >= 0 ? 1 : map_.flat ? map_.block * map_.apart : map_.groups();
    out = {};
    if (map_.by_rows) {
      int64_t row = sizes_.back().arg >= 0 ? ints[sizes_.back().arg] : sizes_.back().literal;
      row = ceil_div(std::max<int64_t>(row, 1), map_.elements);
      const int64_t rows = total / row, blocks = ceil_div(row, each);
      out.blocks[1] = unsigned(std::min<int64_t>(rows, kMaxAcross));
      const int64_t deep = ceil_div(rows, out.blocks[1]);
      LUTRA_CHECK(blocks <= kMaxBlocks && deep <= kMaxAcross, "a launch of ", blocks, " by ", rows, " blocks");
      out.blocks[0] = unsigned(blocks);
      out.blocks[2] = unsigned(deep);
    } else {
      const int64_t blocks = ceil_div(total, each);
      LUTRA_CHECK(blocks <= kMaxBlocks, "a launch of ", blocks, " blocks");
      out.blocks[0] = unsigned(blocks);
    }
    const bool plane = map_.columns || map_.tile >= 0;
    out.threads[0] = plane ? 32 : unsigned(map_.block);
    out.threads[1] = unsigned(map_.block) / out.threads[0];
    return true;
  }

 private:
  Mapping map_;
  std::vector<Coef> sizes_;
};

}  // namespace

std::unique_ptr<KernelSource> generate(const Kernel& kernel, std::span<const int64_t> hints, const Machine& machine,
                                       bool several) {
  return std::make_unique<Source>(kernel, hints, machine, several);
}

std::string mapping_class(const Kernel& kernel, std::span<const int64_t> hints, const Machine& machine) {
  const Mapping m = map_kernel(kernel, hints, machine);
  std::string kind = m.columns ? "columns" : "rows";
  if (m.flat)
    kind = m.tile >= 0 ? str("tiles of ", m.tile_side, " along i", m.nest[size_t(m.tile)]->id)
           : m.by_rows ? "flat rows"
                       : "flat";
  return str(kind, " T", m.threads, " V", m.elements, " block", m.block, " R", m.resident,
             m.exact       ? " exact"
             : m.apart > 1 ? " apart"
                           : "",
             " of ", m.blocks, m.batch ? str(" by ", m.batch) : "");
}

}  // namespace lutra::cuda
