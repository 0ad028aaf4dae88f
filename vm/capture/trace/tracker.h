// Variable trackers: the facts that capture knows about each Lua value of a frame that it interprets symbolically.
// Invariants:
// 1. A Var with a source stands for a real value (its pin) that the entry loads again at run time. All that the trace
//    learns about it (type, value, identity) is in the guard program. A lazy Var has only been moved: nothing is known
//    about it.
// 2. Tracing changes nothing real: writes to tables, upvalues and tensors go to Table, Cell and fakes.
// 3. One Table for each real table, one fake for each real tensor, whatever the number of sources.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ops/core/value.h"
#include "vm/bytecode/dump.h"
#include "vm/guard/source.h"

namespace lutra {

struct Binding;
struct Builtin;
struct LuaCode;
struct Frame;
struct Var;
using Vars = std::vector<Var*>;

enum class VarKind : uint8_t {
  kLazy,  // not inspected yet
  kNil,
  kBool,
  kNumber,
  kString,
  kTensor,
  kTable,
  kFunction,  // a real function
  kClosure,   // made by FNEW in the trace
  kBinding,   // a method of tensors, fetched in the trace
  kObject,    // anything else, by identity
};

// A table key: number, string, boolean, or an object by its address (the real object's, else the trace's).
struct Key {
  enum Kind : uint8_t { kNumber, kString, kBool, kObject } kind = kNumber;
  double n = 0;
  std::string s;
  const void* p = nullptr;
  // A NaN key equals no key, not even itself, so a lookup with it finds nothing.
  bool is_nan() const { return kind == kNumber && n != n; }
  // A mark among the writes of a table: the end of a constructor (TSETM) made room for positions below n.
  static Key of_room(double n) { return {kObject, n, {}, nullptr}; }
  bool is_room() const { return kind == kObject && !p; }
  bool is_position() const { return kind == kNumber && n >= 1 && n == double(int64_t(n)); }
  bool operator<(const Key& o) const {
    if (kind != o.kind) return kind < o.kind;
    if (kind == kString) return s < o.s;
    return kind == kObject ? p < o.p : n < o.n;
  }
};

struct TableEntry {
  Var* key = nullptr;
  Var* value = nullptr;
  bool written = false;
  bool logged = false;
  Var* before = nullptr;  // for a real table: the value that was read before the write
  bool replaces = false;  // a non-nil value replaces another one, which changes neither length nor order
};

struct Table {
  int pin = 0;  // 0: made in the trace
  const Source* source = nullptr;
  std::map<Key, TableEntry> entries;      // all entries of a fresh table; those of a real one that were read or written
  std::map<const Source*, Var*> read_by;  // for a real table: values by the source of a key that changes
  std::vector<Key> log;                   // keys in the order of their first write
  // The writes that determine the table's memory layout, in order.
  std::vector<std::pair<Key, Var*>> writes;
  int array_size = 0, hash_size = 0;  // as requested by TNEW and templates
  int maker = 0;                      // pin of the function that makes it from its template (push_table_maker); or 0
  Var* metatable = nullptr;           // null: not read yet (real tables) or none (fresh ones)
  bool metatable_written = false;
  bool written = false;
  bool length_read = false;  // as a symbolic number, or as a constant
  bool length_known = false;
  int64_t length = 0;   // length of the real table
  Var* size = nullptr;  // the same as a symbolic number
  // The state of a list with written positions: 1 .. border are non-nil, border + 1 is nil. `beyond` has the positions
  // after a hole.
  bool list_known = false;
  bool has_no_holes = false;  // guarded, for any length
  int64_t border = 0;
  std::set<int64_t> beyond;
  std::vector<int64_t> touched;  // positions that were written since list_known
  // For a real list whose length changes: the positions after its end that were written, in order.
  std::vector<Var*> appended;
  // For a real table: the symbolic positions that were written, including those after its end. Their entries have these
  // objects as keys. A guard ensures that no two positions in `log` are equal.
  std::vector<Var*> moving;
  bool keys_known = false;
  std::vector<Var*> keys;            // the real table's, in order
  std::map<Key, size_t> key_places;  // of keys
  uint64_t order = 0;                // creation number among fresh tables
  size_t template_keys = 0;          // for a constructor with constant keys: number of its array and hash items
  std::vector<Var*> template_hash;   // hash keys in the order of the dump, the reverse of a loop's order
};

// A variable that closures share: an upvalue of a real function, or a slot of a frame that FNEW captured.
struct Cell {
  size_t number = 0;  // creation number
  Var* value = nullptr;
  bool written = false;
  bool assigned = false;  // for a slot: it may be assigned, by the frame or by a function that has it as an upvalue
  int function_pin = 0;   // for a real upvalue: pin of the function to write back to
  int index = 0;
  const Source* function = nullptr;
};

// A string that is built after the run, from values that may change in a later call.
struct MadeText {
  Var* function = nullptr;  // the library function that returns it; null: the arguments are joined
  Vars args;                // strings, numbers, booleans and nil
  int depth = 1;            // depth of nested texts
};

// The origin of a number that item() read: an element, or computed from other numbers.
struct ReadNumber {
  bc::Op op = bc::Op::ADDVV;          // of two
  const Builtin* function = nullptr;  // or a library function
  Vars from;                          // empty: an element
  bool whole = false;                 // it is an integer
  std::optional<Scalar> in_graph;     // the number of the graph for it, if one was made
};

struct Closure {
  LuaCode* code = nullptr;
  std::vector<Cell*> cells;
  Var* env = nullptr;       // the enclosing function
  unsigned constant = 0;    // index of the child constant in that function
  uint64_t outer_step = 0;  // the step of the outermost frame in which it was made
};

struct Var {
  VarKind kind = VarKind::kLazy;
  bool guarded = true;  // kNumber, kString: the value may be used without a further guard
  bool b = false;
  int pin = 0;
  const Source* source = nullptr;
  const void* id = nullptr;  // address of the real object
  Scalar num;
  std::string s;
  const MadeText* text = nullptr;  // for a kString that is built after the run: s is not known yet (texts.h)
  Tensor tensor;  // fake; for a kNumber: the element that item() read (read_numbers.h), and num is unused
  Table* table = nullptr;
  Closure* closure = nullptr;
  const Binding* binding = nullptr;
  const Builtin* builtin = nullptr;
  bool identity_guarded = false, callee_guarded = false;
  bool fixed = false;  // from a variable that is never assigned again
};

}  // namespace lutra
