// Variable trackers: what capture knows of each Lua value of a frame that it interprets symbolically.
// Invariants:
// 1. A Var with a source stands for a real value (its pin) that the entry loads again at run time; whatever the trace
//    learns of it (type, value, identity) is in the guard program. A lazy Var has been moved about only: nothing is
//    known.
// 2. Nothing real is changed while tracing: writes to tables, upvalues and tensors go to Table, Cell and fakes.
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
  kLazy,  // not looked at yet
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
  // Equal to no key, itself included: nothing is found by it.
  bool is_nan() const { return kind == kNumber && n != n; }
  // Among the writes of a table: a constructor's tail made room for positions below n (TSETM).
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
  Var* before = nullptr;  // of a real table: what was read before it was written
  bool replaces = false;  // something by something: neither length nor order shows it
};

struct Table {
  int pin = 0;  // 0: made in the trace
  const Source* source = nullptr;
  std::map<Key, TableEntry> entries;      // all of a fresh table; what was read or written of a real one
  std::map<const Source*, Var*> read_by;  // of a real one: by the source of a key that changes
  std::vector<Key> log;                   // keys in the order of their first write
  // The writes that decide how the table lies in memory, in order.
  std::vector<std::pair<Key, Var*>> writes;
  int array_size = 0, hash_size = 0;  // as TNEW and templates ask for
  int maker = 0;                      // pin of the function that makes it from its template (push_table_maker); or 0
  Var* metatable = nullptr;           // null: not looked at (real tables) or none (fresh ones)
  bool metatable_written = false;
  bool written = false;
  bool length_read = false;  // as a number that may change, or known
  bool length_known = false;
  int64_t length = 0;   // of the real table
  Var* size = nullptr;  // likewise, as a number that may change
  // Where positions have been written: 1 .. border are there, border + 1 is not; what is beyond it is a hole's far
  // side.
  bool list_known = false;
  bool has_no_holes = false;  // is guarded, whatever the length
  int64_t border = 0;
  std::set<int64_t> beyond;
  std::vector<int64_t> touched;  // positions that were written since
  // Of a real list whose length changes: the positions behind its end that were written, in order.
  std::vector<Var*> appended;
  // Of a real table: the positions that change and were written, those behind its end among them. Their entries have
  // these objects as keys. No two of log are one: whether they are has been asked.
  std::vector<Var*> moving;
  bool keys_known = false;
  std::vector<Var*> keys;            // the real table's, in order
  std::map<Key, size_t> key_places;  // of keys
  uint64_t order = 0;                // number among fresh tables
  size_t template_keys = 0;          // of a constructor with constant keys: its array and hash items
  std::vector<Var*> template_hash;   // hash keys in the order of the dump, which is the reverse of a loop's
};

// A variable shared by closures. Either an upvalue of a real function, or a slot of a frame that FNEW captured.
struct Cell {
  size_t number = 0;  // in the order they were made
  Var* value = nullptr;
  bool written = false;
  bool assigned = false;  // a slot's: may be, by the frame or a function that has it as an upvalue
  int function_pin = 0;   // real: where to write back
  int index = 0;
  const Source* function = nullptr;
};

// A string that is made after the run, of values that may be others in a later call.
struct MadeText {
  Var* function = nullptr;  // of Lua's library, which gives it; null: the arguments joined
  Vars args;                // strings, numbers, booleans and nil
  int depth = 1;            // texts in texts
};

// How a number that item() read came to be: an element, or made of other numbers.
struct ReadNumber {
  bc::Op op = bc::Op::ADDVV;          // of two
  const Builtin* function = nullptr;  // or of Lua's library
  Vars from;                          // empty: an element
  bool whole = false;                 // of integers
  std::optional<Scalar> told;         // the number of the graph that it is, where one has been asked for
};

struct Closure {
  LuaCode* code = nullptr;
  std::vector<Cell*> cells;
  Var* env = nullptr;       // the function around it
  unsigned constant = 0;    // of that function: which child it is
  uint64_t outer_step = 0;  // the step of the outermost frame that made it
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
  const MadeText* text = nullptr;  // of a kString that is made after the run: s is not known yet (texts.h)
  Tensor tensor;  // fake; of a kNumber: the element that item() read (read_numbers.h), and num says nothing
  Table* table = nullptr;
  Closure* closure = nullptr;
  const Binding* binding = nullptr;
  const Builtin* builtin = nullptr;
  bool identity_guarded = false, callee_guarded = false;
  bool fixed = false;  // of a variable that is never assigned again
};

}  // namespace lutra
