// Binds the arguments of a call to the Args of a schema: positional ones, then one trailing keyword table.
#include <algorithm>

#include "ops/core/closest.h"
#include "ops/defs/element.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

using H = ArgReader::H;

const char* wanted(ArgType type) {
  switch (type) {
    case ArgType::kTensor: return "a Tensor";
    case ArgType::kTensorList: return "a list of Tensors";
    case ArgType::kOperand: return "a Tensor or a number";
    case ArgType::kScalar:
    case ArgType::kFloat: return "a number";
    case ArgType::kFloatList: return "a list of numbers";
    case ArgType::kInt: return "an integer";
    case ArgType::kIntList: return "a list of integers";
    case ArgType::kBool: return "a boolean";
    case ArgType::kDType: return "a dtype";
    case ArgType::kDevice: return "a device";
    case ArgType::kStr: return "a string";
    case ArgType::kFunction: break;  // only in ops that Lua cannot name
  }
  return "a value";
}

KnownNames dtype_names() {
  KnownNames out;
  for (size_t t = 0; t < size_t(DType::kNone); ++t) out.add(name(DType(t)));
  return out;
}

[[noreturn]] void wrong_kind(const std::string& fn, const ArgInfo& arg, ArgReader& in, H h) {
  if (arg.type == ArgType::kDType && in.kind(h) == LuaKind::kString) {
    fail(fn, ": argument '", arg.name, "' must be a dtype, got ", in.describe(h), dtype_names().known(in.string(h)));
  }
  fail(fn, ": argument '", arg.name, "' must be ", wanted(arg.type), ", got ", in.describe(h));
}

bool is_number(LuaKind k) { return k == LuaKind::kNumber || k == LuaKind::kInt64; }

using NamePair = std::string_view[2];
// Arguments that documentation and schemas name differently.
constexpr NamePair kOtherNames[] = {
    {"input", "self"},
    {"size", "shape"},
    {"dim0", "axis0"},
    {"dim1", "axis1"},
    {"indices_or_sections", "sections"},
    {"other", "y"},
    {"split_size", "split_size_or_sections"},
    {"indices_or_sections", "indices"},
    {"other", "tensor"},
    {"test_elements", "test_element"},
    {"elements", "element"},
    {"src", "other"},
};
// NumPy's names. PyTorch's functions written in Python, in nn.functional, do not accept them.
constexpr NamePair kNumPyNames[] = {
    {"input", "x"}, {"input", "a"}, {"input", "x1"}, {"other", "x2"}, {"dim", "axis"}, {"keepdim", "keepdims"},
};

int find_argument(const std::string& fn, const std::vector<ArgInfo>& schema, const std::string& name) {
  const auto index_of = [&](std::string_view wanted) {
    auto it = std::find_if(schema.begin(), schema.end(), [&](const ArgInfo& arg) { return arg.name == wanted; });
    return it == schema.end() ? -1 : int(it - schema.begin());
  };
  int found = index_of(name);
  const auto look = [&](std::span<const NamePair> names) {
    for (const auto& [one, other] : names) {
      if (found < 0 && name == one) found = index_of(other);
      if (found < 0 && name == other) found = index_of(one);
    }
  };
  look(kOtherNames);
  if (!fn.starts_with("nn.functional.")) look(kNumPyNames);
  return found;
}

// -- where each argument's value is

struct Slot {
  H first = -1;  // -1: not given
  int count = 1;
  bool spread = false;  // `count` arguments from `first` on form the list
};

struct Call {
  int positional;
  H keywords = -1;
};

// Splits off a trailing table with string keys, which holds keywords.
Call split_call(ArgReader& in, std::vector<std::string>& names) {
  Call call{in.count()};
  if (call.positional == 0 || in.kind(call.positional - 1) != LuaKind::kTable) return call;
  names = in.keys(call.positional - 1);
  const bool any = std::any_of(names.begin(), names.end(), [](auto& n) { return n != "?"; });
  if (!any) {
    names.clear();
    return call;
  }
  call.keywords = --call.positional;
  return call;
}

bool tensors_follow(const std::vector<ArgInfo>& schema, size_t a) {
  return std::any_of(schema.begin() + int64_t(a) + 1, schema.end(), [](const ArgInfo& arg) {
    return !arg.keyword_only && (arg.type == ArgType::kTensor || arg.type == ArgType::kTensorList);
  });
}

// Returns whether a 0-dim tensor may stand for a number: not if its gradient would be lost. For a whole number it must
// have an integer dtype.
bool stands_for_number(ArgType type, ArgReader& in, H h) {
  if (in.kind(h) != LuaKind::kTensor) return false;
  const Tensor t = in.tensor(h);
  if (!t->sizes.empty() || t->requires_grad) return false;
  if (type == ArgType::kScalar || type == ArgType::kFloat) return true;
  const bool whole = type == ArgType::kInt || type == ArgType::kIntList;
  return whole && !is_float(t->dtype) && !is_bool(t->dtype);
}

// Returns the number of arguments that form a list given element by element: sizes at the end, tensors anywhere.
int spread_count(const std::vector<ArgInfo>& schema, size_t a, ArgReader& in, int p, int end) {
  const bool last = a + 1 == schema.size() || schema[a + 1].keyword_only;
  int n = 0;
  if (schema[a].type == ArgType::kIntList && last) {
    while (p + n < end && (is_number(in.kind(p + n)) || stands_for_number(ArgType::kIntList, in, p + n))) ++n;
  } else if (schema[a].type == ArgType::kTensorList && !tensors_follow(schema, a)) {
    while (p + n < end && in.kind(p + n) == LuaKind::kTensor) ++n;
  }
  return n;
}

bool is_empty_table(ArgReader& in, H h) {
  return in.kind(h) == LuaKind::kTable && in.length(h) == 0 && in.keys(h).empty();
}

// Returns whether an argument beyond the last parameter may be ignored: nil, or a keyword table without keywords.
bool is_nothing(ArgReader& in, H h) { return in.kind(h) == LuaKind::kNil || is_empty_table(in, h); }

// Returns whether `{}` is a value of this argument: for a required list, and for optional integers (dims of a
// reduction). Elsewhere it is an options table whose values are all nil.
bool takes_empty_list(const ArgInfo& arg) {
  if (!arg.has_default) return arg.type == ArgType::kIntList || arg.type == ArgType::kTensorList;
  return arg.type == ArgType::kIntList && arg.def.is_none();
}

// Assigns slots to the positional arguments. Returns how many arguments have no slot.
int place_positional(const std::vector<ArgInfo>& schema, ArgReader& in, int end, std::vector<Slot>& slots) {
  size_t a = 0;
  for (int p = 0; p < end; ++a) {
    if (a == schema.size() || schema[a].keyword_only) {
      while (end > p && is_nothing(in, end - 1)) --end;
      return end - p;
    }
    const bool may_lack = schema[a].optional || schema[a].has_default;
    if (p + 1 == end && may_lack && !takes_empty_list(schema[a]) && is_empty_table(in, p)) return 0;
    const int n = spread_count(schema, a, in, p, end);
    slots[a] = n > 0 ? Slot{p, n, true} : Slot{p};
    p += std::max(n, 1);
  }
  return 0;
}

// Refuses an argument that ends a list given element by element: zeros(2, nil, 3), zeros(2, 3, "int64").
void check_spread(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in, int end,
                  const std::vector<Slot>& slots) {
  for (size_t a = 0; a < slots.size(); ++a) {
    const int next = slots[a].first + slots[a].count;
    if (!slots[a].spread || schema[a].type != ArgType::kIntList || next >= end) continue;
    fail(fn, ": argument '", schema[a].name, "' must be a list of integers, got ", in.describe(next), " in it");
  }
}

[[noreturn]] void unknown_keyword(const std::string& fn, const std::string& name, const std::vector<ArgInfo>& schema,
                                  std::span<const std::string_view> extras) {
  KnownNames known;
  for (const ArgInfo& arg : schema) known.add(arg.name);
  for (std::string_view extra : extras) known.add(extra);
  fail(fn, ": unknown keyword '", name, "'", known.known(name));
}

void place_keywords(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in, H table,
                    const std::vector<std::string>& names, std::vector<Slot>& slots, std::span<ExtraKeyword> extras) {
  for (const std::string& name : names) {
    if (name == "?") fail(fn, ": the keyword table has list elements too; pass the list as an argument of its own");
    if (int a = find_argument(fn, schema, name); a >= 0) {
      if (slots[a].first >= 0) fail(fn, ": argument '", name, "' is given twice");
      slots[a] = Slot{in.field(table, name.c_str())};
      continue;
    }
    auto extra = std::find_if(extras.begin(), extras.end(), [&](auto& e) { return name == e.name; });
    if (extra == extras.end()) {
      std::vector<std::string_view> others;
      for (const ExtraKeyword& e : extras) others.push_back(e.name);
      unknown_keyword(fn, name, schema, others);
    }
    extra->value = in.field(table, name.c_str());
  }
}

// -- one value

Scalar number_of(const std::string& fn, ArgReader& in, H h) {
  if (in.kind(h) != LuaKind::kTensor) return in.number(h);
  const Tensor t = in.tensor(h);
  need_data(fn.c_str(), t);
  return Elements(t).at(0);
}

bool lists_tensors(ArgReader& in, H table) {
  if (in.length(table) == 0) return true;
  const H mark = in.mark();
  const bool tensor = in.kind(in.index(table, 1)) == LuaKind::kTensor;
  in.release(mark);
  return tensor;
}

bool kind_fits(const ArgInfo& arg, ArgReader& in, const Slot& slot) {
  const LuaKind kind = in.kind(slot.first);
  if (kind == LuaKind::kNil) return arg.optional || arg.has_default;
  switch (arg.type) {
    case ArgType::kTensor: return kind == LuaKind::kTensor;
    case ArgType::kTensorList:
      return kind == LuaKind::kTensor || (kind == LuaKind::kTable && lists_tensors(in, slot.first));
    case ArgType::kOperand: return kind == LuaKind::kTensor || is_number(kind) || kind == LuaKind::kBoolean;
    case ArgType::kScalar: return is_number(kind) || kind == LuaKind::kBoolean;
    case ArgType::kInt:
    case ArgType::kFloat: return is_number(kind);
    case ArgType::kIntList: return is_number(kind) || kind == LuaKind::kTable;
    case ArgType::kFloatList: return kind == LuaKind::kTable && !lists_tensors(in, slot.first);
    case ArgType::kBool: return kind == LuaKind::kBoolean;
    case ArgType::kDType: return kind == LuaKind::kString && dtype_from_name(in.string(slot.first)) != DType::kNone;
    case ArgType::kDevice:
      return is_number(kind) || (kind == LuaKind::kString && dtype_from_name(in.string(slot.first)) == DType::kNone);
    case ArgType::kStr: return kind == LuaKind::kString;
    case ArgType::kFunction: break;
  }
  return false;
}

Value read_ints(const std::string& fn, const ArgInfo& arg, ArgReader& in, const Slot& slot) {
  // Dimensions specialise the program; sizes may stay symbolic.
  const bool pinned = arg.specialises && arg.name.substr(0, 3) == "dim";
  Sizes out;
  auto add = [&](H h) {
    const bool boolean = !out.empty() && in.kind(h) == LuaKind::kBoolean;  // PyTorch checks only the first's kind
    if (!is_number(in.kind(h)) && !boolean && !stands_for_number(arg.type, in, h)) {
      fail(fn, ": argument '", arg.name, "' must be a list of integers, got ", in.describe(h), " in it");
    }
    SymInt v = boolean ? SymInt(in.boolean(h)) : read_int(fn, arg.name, in, h);
    out.push_back(pinned ? SymInt(v.guard()) : v);
  };
  if (slot.spread || in.kind(slot.first) != LuaKind::kTable) {
    const bool number = slot.spread || is_number(in.kind(slot.first));
    if (!number && !stands_for_number(arg.type, in, slot.first)) wrong_kind(fn, arg, in, slot.first);
    for (int i = 0; i < slot.count; ++i) add(slot.first + i);
    return out;
  }
  const int64_t n = in.length(slot.first);
  for (int64_t i = 1; i <= n; ++i) {
    const H mark = in.mark();
    add(in.index(slot.first, i));
    in.release(mark);
  }
  return out;
}

// Reads a list of floats. Its values specialise the program.
Value read_floats(const std::string& fn, const ArgInfo& arg, ArgReader& in, H list) {
  if (in.kind(list) != LuaKind::kTable) wrong_kind(fn, arg, in, list);
  std::vector<double> out;
  for (int64_t i = 1; i <= in.length(list); ++i) {
    const H mark = in.mark(), h = in.index(list, i);
    if (!is_number(in.kind(h)) && !stands_for_number(ArgType::kFloat, in, h)) {
      fail(fn, ": argument '", arg.name, "' must be a list of numbers, got ", in.describe(h), " in it");
    }
    out.push_back(pin(number_of(fn, in, h)).to_double());
    in.release(mark);
  }
  return out;
}

Value read_tensors(const std::string& fn, const ArgInfo& arg, ArgReader& in, const Slot& slot) {
  std::vector<Tensor> out;
  if (slot.spread) {
    for (int i = 0; i < slot.count; ++i) out.push_back(in.tensor(slot.first + i));
    return out;
  }
  const LuaKind kind = in.kind(slot.first);
  if (kind == LuaKind::kTensor) return std::vector<Tensor>{in.tensor(slot.first)};
  if (kind != LuaKind::kTable) wrong_kind(fn, arg, in, slot.first);
  const int64_t n = in.length(slot.first);
  for (int64_t i = 1; i <= n; ++i) {
    const H mark = in.mark();
    const H h = in.index(slot.first, i);
    if (in.kind(h) != LuaKind::kTensor) {
      fail(fn, ": argument '", arg.name, "' must be a list of Tensors, got ", in.describe(h), " at position ", i);
    }
    out.push_back(in.tensor(h));
    in.release(mark);
  }
  return out;
}

Scalar read_scalar(const std::string& fn, ArgReader& in, H h) {
  return in.kind(h) == LuaKind::kBoolean ? Scalar::of_bool(in.boolean(h)) : number_of(fn, in, h);
}

Value read_value(const std::string& fn, const ArgInfo& arg, ArgReader& in, const Slot& slot) {
  const H h = slot.first;
  const LuaKind kind = in.kind(h);
  if (arg.type == ArgType::kIntList) return read_ints(fn, arg, in, slot);
  if (arg.type == ArgType::kFloatList) return read_floats(fn, arg, in, h);
  if (arg.type == ArgType::kTensorList) return read_tensors(fn, arg, in, slot);
  if (arg.type == ArgType::kDevice && (kind == LuaKind::kString || is_number(kind))) {
    return read_device(fn, arg.name, in, h);
  }
  if (!kind_fits(arg, in, slot) && !stands_for_number(arg.type, in, h)) wrong_kind(fn, arg, in, h);
  switch (arg.type) {
    case ArgType::kTensor: return in.tensor(h);
    case ArgType::kOperand:
      if (kind == LuaKind::kTensor) return in.tensor(h);
      return read_scalar(fn, in, h);
    case ArgType::kScalar:
    case ArgType::kFloat: return read_scalar(fn, in, h);
    case ArgType::kInt: {
      const SymInt v = read_int(fn, arg.name, in, h);
      return vint(arg.specialises ? SymInt(v.guard()) : v);
    }
    case ArgType::kBool: return in.boolean(h);
    case ArgType::kDType: return dtype_from_name(in.string(h));
    default: return in.string(h);
  }
}

}  // namespace

Device parse_device(const std::string& fn, const std::string& argument, ArgReader& in, H h) {
  if (in.kind(h) == LuaKind::kString) {
    try {
      return parse_device(in.string(h));
    } catch (const Error& error) {
      if (fn != "to") throw Error(error.kind, fn + ": " + error.what());
      KnownNames known = dtype_names();
      const std::string dtypes = known.list();
      for (const char* device : {"cpu", "cuda"}) known.add(device);
      fail("to: '", in.string(h), "' is neither a dtype (", dtypes, ") nor a device ('cpu', 'cuda' or 'cuda:N')",
           known.question(in.string(h)));
    }
  }
  if (!is_number(in.kind(h))) {
    fail(fn, ": argument '", argument, "' must be a string or an integer, got ", in.describe(h));
  }
  const int64_t index = read_int(fn, argument, in, h).guard();
  if (index < 0 || index > 99) fail(fn, ": device index ", index, " is not that of a GPU");
  return {DeviceType::kCUDA, int8_t(index)};
}

Device read_device(const std::string& fn, const std::string& argument, ArgReader& in, H h) {
  const Device device = parse_device(fn, argument, in, h);
  try {
    check_device(device);
  } catch (const Error& error) {
    throw Error(error.kind, fn + ": " + error.what());
  }
  return device;
}

SymInt read_int(const std::string& fn, const std::string& argument, ArgReader& in, H h) {
  Scalar s = number_of(fn, in, h);
  if (!to_integer(s) && !s.is_whole()) fail(fn, ": argument '", argument, "' must be an integer, got ", in.describe(h));
  SymInt v(s.to_int());
  v.expr = s.expr;
  return v;
}

namespace {

bool is_extra(std::span<const ExtraKeyword> extras, const std::string& name) {
  return std::any_of(extras.begin(), extras.end(), [&](auto& e) { return name == e.name; });
}

// Returns whether the arguments fit the schema. With `elements`, 0-dim tensors fit where numbers are expected.
bool fits(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in,
          std::span<const ExtraKeyword> extras, bool elements) {
  std::vector<std::string> names;
  const Call call = split_call(in, names);
  std::vector<Slot> slots(schema.size());
  if (place_positional(schema, in, call.positional, slots) > 0) return false;
  for (const std::string& name : names) {
    const int a = find_argument(fn, schema, name);
    if (a < 0 && is_extra(extras, name)) continue;
    if (a < 0 || slots[a].first >= 0) return false;
    slots[a] = Slot{in.field(call.keywords, name.c_str())};
  }
  for (size_t a = 0; a < schema.size(); ++a) {
    const H h = slots[a].first;
    if (h < 0 ? !schema[a].optional && !schema[a].has_default : !kind_fits(schema[a], in, slots[a])) {
      if (h < 0 || !elements || !stands_for_number(schema[a].type, in, h)) return false;
    }
  }
  return true;
}

// Throws an error that lists the keywords of all forms if a keyword is in none of them.
void check_keywords(const std::string& fn, std::span<const Schema> forms, ArgReader& in,
                    std::span<const ExtraKeyword> extras) {
  std::vector<std::string> names;
  if (split_call(in, names).keywords < 0) return;
  std::vector<ArgInfo> all;
  for (const Schema form : forms) {
    for (const ArgInfo& arg : *form) {
      if (find_argument(fn, all, arg.name) < 0) all.push_back(arg);
    }
  }
  for (const std::string& name : names) {
    if (name == "?" || is_extra(extras, name) || find_argument(fn, all, name) >= 0) continue;
    std::vector<std::string_view> others;
    for (const ExtraKeyword& e : extras) others.push_back(e.name);
    unknown_keyword(fn, name, all, others);
  }
}

}  // namespace

size_t choose_form(const std::string& fn, std::span<const Schema> forms, ArgReader& in,
                   std::span<const ExtraKeyword> extras) {
  if (forms.size() == 1) return 0;
  for (const bool elements : {false, true}) {
    for (size_t i = 0; i < forms.size(); ++i) {
      if (fits(fn, *forms[i], in, extras, elements)) return i;
    }
  }
  check_keywords(fn, forms, in, extras);
  // No form fits. The error of the form with enough arguments for the call is the most useful one.
  size_t best = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    if (int(forms[best]->size()) < in.count() && forms[i]->size() > forms[best]->size()) best = i;
  }
  return best;
}

Args bind_schema(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in,
                 std::span<ExtraKeyword> extras) {
  std::vector<std::string> names;
  const Call call = split_call(in, names);
  std::vector<Slot> slots(schema.size());
  if (place_positional(schema, in, call.positional, slots) > 0) {
    const auto most = std::count_if(schema.begin(), schema.end(), [](auto& a) { return !a.keyword_only; });
    check_spread(fn, schema, in, call.positional, slots);
    fail(fn, ": takes at most ", most, most == 1 ? " argument" : " arguments", ", got ", call.positional);
  }
  if (call.keywords >= 0) place_keywords(fn, schema, in, call.keywords, names, slots, extras);
  Args args(schema.size());
  for (size_t a = 0; a < schema.size(); ++a) {
    const ArgInfo& arg = schema[a];
    const bool nil = slots[a].first < 0 || in.kind(slots[a].first) == LuaKind::kNil;
    if (!nil) {
      args[a] = read_value(fn, arg, in, slots[a]);
    } else if (arg.has_default) {
      args[a] = arg.def;
    } else if (!arg.optional) {
      if (slots[a].first >= 0) wrong_kind(fn, arg, in, slots[a].first);
      fail(fn, ": argument '", arg.name, "' is missing");
    }
  }
  for (ExtraKeyword& extra : extras) {
    if (extra.value >= 0 && in.kind(extra.value) == LuaKind::kNil) extra.value = -1;
  }
  return args;
}

}  // namespace lutra
