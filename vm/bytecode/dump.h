// Decodes the output of string.dump into prototypes, and encodes them again byte for byte.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "vm/bytecode/opcode.h"

namespace lutra::bc {

// A key or value of a template table. monostate is nil; int32_t and double differ only in the dump.
using KValue = std::variant<std::monostate, bool, int32_t, double, std::string>;

struct Template {
  std::vector<KValue> array;  // array[0] is index 0, as in LuaJIT
  std::vector<std::pair<KValue, KValue>> hash;
  bool operator==(const Template&) const = default;
};

struct Upvalue {
  uint16_t raw;
  bool local() const { return raw & 0x8000; }  // true: a slot of the parent's frame; false: an upvalue of the parent
  bool immutable() const { return raw & 0x4000; }  // never assigned after its initialisation
  unsigned index() const { return raw & 0xff; }
  bool operator==(const Upvalue&) const = default;
};

struct Child {
  uint32_t proto;                 // index into Dump::protos
  std::vector<Upvalue> upvalues;  // the child's descriptors: what FNEW captures
  bool operator==(const Child&) const = default;
};

using KGC = std::variant<Child, Template, int64_t, uint64_t, std::complex<double>, std::string>;
using KNum = std::variant<int32_t, double>;

enum class VarKind : uint8_t { kNamed, kForIndex, kForStop, kForStep, kForGenerator, kForState, kForControl };

struct Var {
  VarKind kind = VarKind::kNamed;
  std::string name;  // "(for index)" and the like for hidden variables
  Pc start, end;     // live where start <= pc < end
  bool operator==(const Var&) const = default;
};

enum ProtoFlag : uint8_t { kHasChild = 1, kVararg = 2, kUsesFfi = 4 };

struct Proto {
  uint8_t flags = 0, num_params = 0, framesize = 0;
  std::vector<Ins> code;   // code[0] stands for the function header, which a dump does not hold
  std::vector<KGC> kgc;    // indexed as in instructions
  std::vector<KNum> knum;  // indexed as in instructions
  std::vector<Upvalue> upvalues;
  bool has_debug = false;
  uint32_t first_line = 0, num_lines = 0;
  std::vector<uint32_t> lines;  // lines[pc], absolute; empty without debug info
  std::vector<std::string> upvalue_names;
  std::vector<Var> vars;  // in order of start

  bool vararg() const { return flags & kVararg; }
  Pc size() const { return static_cast<Pc>(code.size()); }  // valid pcs are 1 .. size() - 1
  uint32_t line(Pc pc) const { return pc < lines.size() ? lines[pc] : first_line; }
  bool operator==(const Proto&) const = default;
};

struct Dump {
  uint32_t flags = 0;  // 1 big endian, 2 stripped, 4 ffi, 8 FR2
  std::string chunkname;
  std::vector<Proto> protos;  // children before their parents; the last is the dumped function itself

  bool stripped() const { return flags & 2; }
  Proto& top() { return protos.back(); }
  const Proto& top() const { return protos.back(); }
  bool operator==(const Dump&) const = default;
};

// Throw lutra::Error on a damaged dump or one of another format.
Dump parse(std::string_view bytes);
std::string emit(const Dump& dump);

// Name of the local in `slot` at `pc`, empty if unknown.
std::string local_name(const Proto& proto, Pc pc, unsigned slot);
std::string upvalue_name(const Proto& proto, unsigned index);

}  // namespace lutra::bc
