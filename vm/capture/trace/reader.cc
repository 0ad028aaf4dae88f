// TrackerReader: reads the arguments of bindings from trackers.
#include "vm/capture/trace/reader.h"

namespace lutra {

LuaKind TrackerReader::kind(H h) {
  if (h < 0 || h >= int(vars_.size())) return LuaKind::kNil;
  switch (trace_.force(vars_[h])->kind) {
    case VarKind::kNil: return LuaKind::kNil;
    case VarKind::kBool: return LuaKind::kBoolean;
    case VarKind::kNumber: return LuaKind::kNumber;
    case VarKind::kString: return LuaKind::kString;
    case VarKind::kTensor: return LuaKind::kTensor;
    case VarKind::kTable: return LuaKind::kTable;
    case VarKind::kFunction:
    case VarKind::kClosure:
    case VarKind::kBinding: return LuaKind::kFunction;
    default: return LuaKind::kOther;
  }
}

// Sizes and numbers that change are integers of the graph, but ops receive them as Lua numbers. Code that needs an
// integer can recover it from the expression.
Scalar TrackerReader::number(H h) { return as_number(trace_.symbolic(trace_.force(vars_[h]))); }

ArgReader::H TrackerReader::add(Var* v) {
  vars_.push_back(v);
  return H(vars_.size()) - 1;
}

ArgReader::H TrackerReader::index(H table, int64_t i) {
  return add(trace_.raw_get(vars_[table]->table, trace_.number(double(i))));
}

ArgReader::H TrackerReader::field(H table, const char* key) {
  return add(trace_.raw_get(vars_[table]->table, trace_.string(key)));
}

// A list is guarded by its length before its keys: a miss of the length teaches that the list grows.
std::vector<std::string> TrackerReader::keys(H table) {
  std::vector<std::string> names;
  trace_.know_length(vars_[table]->table);
  for (Var* key : trace_.keys_in_any_order(vars_[table]->table)) {
    names.push_back(key->kind == VarKind::kString ? key->s : "?");
  }
  return names;
}

std::string TrackerReader::describe(H h) {
  switch (kind(h)) {
    case LuaKind::kNil: return "nil";
    case LuaKind::kBoolean: return boolean(h) ? "true" : "false";
    case LuaKind::kNumber: return str("number ", trace_.symbolic(vars_[h]).to_double());
    case LuaKind::kString: return "string '" + string(h) + "'";
    case LuaKind::kTensor: return "a tensor";
    case LuaKind::kTable: return "a table";
    default: return "a function";
  }
}

}  // namespace lutra
