// Reads and writes LuaJIT's dump format, version 2: converts bytes to a bc::Dump and back.
#include "vm/bytecode/dump.h"

#include <cstring>

#include "ops/core/error.h"

namespace lutra::bc {

const OpInfo kOps[static_cast<int>(Op::kCount)] = {
#define OP(name, a, b, c, traits) {#name, Mode::a, Mode::b, Mode::c, static_cast<uint8_t>(traits)},
#include "vm/bytecode/opcode.def"
#undef OP
};

namespace {

constexpr char kMagic[] = "\x1bLJ\x02";
enum KgcType { kKgcChild, kKgcTable, kKgcInt64, kKgcUint64, kKgcComplex, kKgcString };
enum KtabType { kKtabNil, kKtabFalse, kKtabTrue, kKtabInt, kKtabNum, kKtabString };
const char* const kHiddenNames[] = {
    "", "(for index)", "(for limit)", "(for step)", "(for generator)", "(for state)", "(for control)"};

double make_double(uint64_t lo, uint64_t hi) {
  const uint64_t bits = (lo & 0xffffffffu) | hi << 32;
  double d;
  std::memcpy(&d, &bits, sizeof d);
  return d;
}

uint64_t bits_of(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, sizeof bits);
  return bits;
}

int line_width(uint32_t num_lines) { return num_lines < 256 ? 1 : num_lines < 65536 ? 2 : 4; }

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  size_t left() const { return rest_.size(); }

  std::string_view take(size_t n) {
    if (n > rest_.size()) fail("bytecode: the dump ends early");
    std::string_view s = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return s;
  }
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  uint64_t uleb() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = byte();
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (!(b & 0x80)) return v;
    }
    fail("bytecode: a number in the dump is too long");
  }
  uint32_t uleb32() {
    const uint64_t v = uleb();
    if (v > 0xffffffffu) fail("bytecode: a number in the dump is too large");
    return static_cast<uint32_t>(v);
  }
  // Reads a count of items that take at least `unit` bytes each.
  uint32_t count(size_t unit = 1) {
    const uint32_t n = uleb32();
    if (n > left() / unit) fail("bytecode: the dump ends early");
    return n;
  }
  template <class T>
  T fixed(size_t width = sizeof(T)) {
    T v = 0;
    std::memcpy(&v, take(width).data(), width);
    return v;
  }
  std::string cstring() {
    const size_t n = rest_.find('\0');
    if (n == std::string_view::npos) fail("bytecode: the dump ends early");
    std::string s(take(n));
    take(1);
    return s;
  }

 private:
  std::string_view rest_;
};

KValue read_kvalue(Reader& r) {
  const uint32_t type = r.uleb32();
  switch (type) {
    case kKtabNil: return std::monostate{};
    case kKtabFalse: return false;
    case kKtabTrue: return true;
    case kKtabInt: return static_cast<int32_t>(r.uleb32());
    case kKtabNum: {
      const uint32_t lo = r.uleb32();
      return make_double(lo, r.uleb32());
    }
    default: return std::string(r.take(type - kKtabString));
  }
}

Template read_template(Reader& r) {
  Template t;
  const uint32_t narray = r.count(), nhash = r.count();
  for (uint32_t i = 0; i < narray; ++i) t.array.push_back(read_kvalue(r));
  for (uint32_t i = 0; i < nhash; ++i) {
    KValue key = read_kvalue(r);
    t.hash.emplace_back(std::move(key), read_kvalue(r));
  }
  return t;
}

// `stack` holds the prototypes read so far that no parent has taken yet.
KGC read_kgc(Reader& r, const std::vector<Proto>& protos, std::vector<uint32_t>& stack) {
  const uint32_t type = r.uleb32();
  switch (type) {
    case kKgcChild: {
      if (stack.empty()) fail("bytecode: a child prototype is missing in the dump");
      const uint32_t child = stack.back();
      stack.pop_back();
      return Child{child, protos[child].upvalues};
    }
    case kKgcTable: return read_template(r);
    case kKgcInt64:
    case kKgcUint64: {
      const uint64_t lo = r.uleb32();
      const uint64_t v = lo | static_cast<uint64_t>(r.uleb32()) << 32;
      if (type == kKgcInt64) return static_cast<int64_t>(v);
      return v;
    }
    case kKgcComplex: {
      double part[2];
      for (double& d : part) {
        const uint32_t lo = r.uleb32();
        d = make_double(lo, r.uleb32());
      }
      return std::complex<double>(part[0], part[1]);
    }
    default: return std::string(r.take(type - kKgcString));
  }
}

KNum read_knum(Reader& r) {
  const uint64_t v = r.uleb();
  if (!(v & 1)) return static_cast<int32_t>(v >> 1);
  return make_double(v >> 1, r.uleb32());
}

void read_debug(Reader& r, Proto& p) {
  const int width = line_width(p.num_lines);
  p.lines.push_back(p.first_line);
  for (Pc pc = 1; pc < p.size(); ++pc) p.lines.push_back(p.first_line + r.fixed<uint32_t>(width));
  for (size_t i = 0; i < p.upvalues.size(); ++i) p.upvalue_names.push_back(r.cstring());
  uint32_t last = 0;
  for (;;) {
    const uint8_t kind = r.byte();
    if (kind == 0) return;
    Var v;
    if (kind <= static_cast<uint8_t>(VarKind::kForControl)) {
      v.kind = static_cast<VarKind>(kind);
      v.name = kHiddenNames[kind];
    } else {
      v.name = std::string(1, static_cast<char>(kind)) + r.cstring();
    }
    last = v.start = last + r.uleb32();
    v.end = v.start + r.uleb32();
    p.vars.push_back(std::move(v));
  }
}

Proto read_proto(std::string_view bytes, const Dump& dump, std::vector<uint32_t>& stack) {
  Reader r(bytes);
  Proto p;
  p.flags = r.byte();
  p.num_params = r.byte();
  p.framesize = r.byte();
  const uint8_t nuv = r.byte();
  const uint32_t nkgc = r.count(), nknum = r.count(), ncode = r.count(sizeof(Ins));
  uint32_t debug_size = 0;
  if (!dump.stripped() && (debug_size = r.uleb32()) != 0) {
    p.has_debug = true;
    p.first_line = r.uleb32();
    p.num_lines = r.uleb32();
  }
  p.code.push_back(ins_ad(p.vararg() ? Op::FUNCV : Op::FUNCF, p.framesize, 0));
  for (uint32_t i = 0; i < ncode; ++i) p.code.push_back(r.fixed<Ins>());
  for (uint8_t i = 0; i < nuv; ++i) p.upvalues.push_back({r.fixed<uint16_t>()});
  for (uint32_t i = 0; i < nkgc; ++i) p.kgc.push_back(read_kgc(r, dump.protos, stack));
  p.kgc = std::vector<KGC>(std::make_move_iterator(p.kgc.rbegin()), std::make_move_iterator(p.kgc.rend()));
  for (uint32_t i = 0; i < nknum; ++i) p.knum.push_back(read_knum(r));
  if (r.left() != debug_size) fail("bytecode: a prototype's length is wrong in the dump");
  if (debug_size) read_debug(r, p);
  if (r.left()) fail("bytecode: debug info's length is wrong in the dump");
  return p;
}

class Writer {
 public:
  std::string bytes;
  void byte(unsigned b) { bytes.push_back(static_cast<char>(b)); }
  void uleb(uint64_t v) {
    for (; v >= 0x80; v >>= 7) byte((v & 0x7f) | 0x80);
    byte(v);
  }
  void fixed(const void* data, size_t n) { bytes.append(static_cast<const char*>(data), n); }
  void number(double d) {
    const uint64_t bits = bits_of(d);
    uleb(bits & 0xffffffffu);
    uleb(bits >> 32);
  }
  void text(const std::string& s, unsigned first_type) {
    uleb(first_type + s.size());
    bytes += s;
  }
};

void write_kvalue(Writer& w, const KValue& v) {
  switch (v.index()) {
    case 0: w.uleb(kKtabNil); break;
    case 1: w.uleb(std::get<bool>(v) ? kKtabTrue : kKtabFalse); break;
    case 2:
      w.uleb(kKtabInt);
      w.uleb(static_cast<uint32_t>(std::get<int32_t>(v)));
      break;
    case 3:
      w.uleb(kKtabNum);
      w.number(std::get<double>(v));
      break;
    case 4: w.text(std::get<std::string>(v), kKtabString); break;
  }
}

void write_kgc(Writer& w, const KGC& k) {
  if (std::holds_alternative<Child>(k)) {
    w.uleb(kKgcChild);
  } else if (auto* t = std::get_if<Template>(&k)) {
    w.uleb(kKgcTable);
    w.uleb(t->array.size());
    w.uleb(t->hash.size());
    for (const KValue& v : t->array) write_kvalue(w, v);
    for (const auto& [key, value] : t->hash) {
      write_kvalue(w, key);
      write_kvalue(w, value);
    }
  } else if (auto* c = std::get_if<std::complex<double>>(&k)) {
    w.uleb(kKgcComplex);
    w.number(c->real());
    w.number(c->imag());
  } else if (auto* s = std::get_if<std::string>(&k)) {
    w.text(*s, kKgcString);
  } else {
    const bool is_signed = std::holds_alternative<int64_t>(k);
    const uint64_t v = is_signed ? static_cast<uint64_t>(std::get<int64_t>(k)) : std::get<uint64_t>(k);
    w.uleb(is_signed ? kKgcInt64 : kKgcUint64);
    w.uleb(v & 0xffffffffu);
    w.uleb(v >> 32);
  }
}

void write_knum(Writer& w, const KNum& k) {
  if (auto* i = std::get_if<int32_t>(&k)) {
    w.uleb(static_cast<uint64_t>(static_cast<uint32_t>(*i)) << 1);
    return;
  }
  const uint64_t bits = bits_of(std::get<double>(k));
  w.uleb((bits & 0xffffffffu) << 1 | 1);
  w.uleb(bits >> 32);
}

std::string debug_bytes(const Proto& p) {
  Writer w;
  const int width = line_width(p.num_lines);
  for (Pc pc = 1; pc < p.size(); ++pc) {
    const uint32_t line = p.lines[pc] - p.first_line;
    w.fixed(&line, width);
  }
  for (const std::string& name : p.upvalue_names) w.fixed(name.c_str(), name.size() + 1);
  uint32_t last = 0;
  for (const Var& v : p.vars) {
    if (v.kind == VarKind::kNamed) {
      w.fixed(v.name.c_str(), v.name.size() + 1);
    } else {
      w.byte(static_cast<unsigned>(v.kind));
    }
    w.uleb(v.start - last);
    w.uleb(v.end - v.start);
    last = v.start;
  }
  w.byte(0);
  return std::move(w.bytes);
}

std::string proto_bytes(const Proto& p, bool stripped) {
  Writer w;
  w.byte(p.flags);
  w.byte(p.num_params);
  w.byte(p.framesize);
  w.byte(p.upvalues.size());
  w.uleb(p.kgc.size());
  w.uleb(p.knum.size());
  w.uleb(p.code.size() - 1);
  std::string debug;
  if (!stripped) {
    if (p.has_debug) debug = debug_bytes(p);
    w.uleb(debug.size());
    if (p.has_debug) {
      w.uleb(p.first_line);
      w.uleb(p.num_lines);
    }
  }
  w.fixed(p.code.data() + 1, (p.code.size() - 1) * sizeof(Ins));
  for (Upvalue u : p.upvalues) w.fixed(&u.raw, sizeof u.raw);
  for (auto k = p.kgc.rbegin(); k != p.kgc.rend(); ++k) write_kgc(w, *k);
  for (const KNum& k : p.knum) write_knum(w, k);
  w.bytes += debug;
  return std::move(w.bytes);
}

}  // namespace

Dump parse(std::string_view bytes) {
  Reader r(bytes);
  if (r.take(4) != std::string_view(kMagic, 4)) fail("bytecode: not a dump of LuaJIT 2.1 (version 2)");
  Dump dump;
  dump.flags = r.uleb32();
  if ((dump.flags & ~6u) != 8) fail("bytecode: a dump of another LuaJIT build (flags ", dump.flags, ")");
  if (!dump.stripped()) {
    const uint32_t n = r.count();
    dump.chunkname = std::string(r.take(n));
  }
  std::vector<uint32_t> stack;
  while (const uint32_t size = r.uleb32()) {
    dump.protos.push_back(read_proto(r.take(size), dump, stack));
    stack.push_back(static_cast<uint32_t>(dump.protos.size() - 1));
  }
  if (stack.size() != 1 || r.left()) fail("bytecode: the dump's prototypes do not form one function");
  return dump;
}

std::string emit(const Dump& dump) {
  Writer w;
  w.fixed(kMagic, 4);
  w.uleb(dump.flags);
  if (!dump.stripped()) w.text(dump.chunkname, 0);
  for (const Proto& p : dump.protos) {
    const std::string body = proto_bytes(p, dump.stripped());
    w.uleb(body.size());
    w.bytes += body;
  }
  w.byte(0);
  return std::move(w.bytes);
}

std::string local_name(const Proto& proto, Pc pc, unsigned slot) {
  for (const Var& v : proto.vars) {
    if (v.start > pc) break;
    if (pc < v.end && slot-- == 0) return v.name;
  }
  return {};
}

std::string upvalue_name(const Proto& proto, unsigned index) {
  return index < proto.upvalue_names.size() ? proto.upvalue_names[index] : std::string();
}

}  // namespace lutra::bc
