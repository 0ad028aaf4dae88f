// Tensors out of sizes, numbers and nested tables: zeros, tensor, linspace, randperm and their like.
#include <cmath>
#include <cstring>
#include <lua.hpp>
#include <numeric>

#include "ops/core/current_device.h"
#include "vm/bind/composite.h"
#include "vm/bind/element.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"

namespace lutra {

Tensor full_of(const Sizes& sizes, Scalar value, const Value& dtype, const Value& device) {
  return op1(OpId::full, {sizes, value, dtype, device});
}

namespace {

Value device_or_default(const Value& device) { return device.is_none() ? default_device_value() : device; }
Value dtype_or(const Value& dtype, DType otherwise) { return dtype.is_none() ? Value(otherwise) : dtype; }

LuaResults finish(Tensor t, const Value& requires_grad) {
  if (requires_grad.as<bool>()) set_requires_grad(t, true);
  return {t};
}

// -- (size, dtype, device, requires_grad)

template <int kValue>
LuaResults filled(Args& a) {
  return finish(full_of(a[0].as<Sizes>(), double(kValue), dtype_or(a[1], DType::kFloat32), device_or_default(a[2])),
                a[3]);
}

// -- (input, dtype, device, requires_grad) and (input, size, dtype, device, requires_grad)

struct Like {
  Sizes sizes;
  Value dtype, device, requires_grad;
};

Like like(Args& a) {
  const Tensor t = a[0].tensor();
  return {t->sizes, dtype_or(a[1], t->dtype), a[2].is_none() ? Value(t->device()) : a[2], a[3]};
}

Like sized_like(Args& a) {
  const Tensor t = a[0].tensor();
  return {a[1].as<Sizes>(), dtype_or(a[2], t->dtype), a[3].is_none() ? Value(t->device()) : a[3], a[4]};
}

LuaResults fill_like(const Like& l, Scalar v) {
  return finish(full_of(l.sizes, v, l.dtype, l.device), l.requires_grad);
}

template <OpId kOp>
LuaResults op_like(const Like& l) {
  return finish(op1(kOp, {l.sizes, l.dtype, l.device}), l.requires_grad);
}

LuaResults full_like(Args& a) {
  const Scalar value = a[1].as<Scalar>();
  Args rest = {a[0], a[2], a[3], a[4]};
  return fill_like(like(rest), value);
}

LuaResults new_full(Args& a) {
  const Scalar value = a[2].as<Scalar>();
  Args rest = {a[0], a[1], a[3], a[4], a[5]};
  return fill_like(sized_like(rest), value);
}

LuaResults scalar_tensor(Args& a) {
  return finish(full_of({}, a[0].as<Scalar>(), dtype_or(a[1], DType::kFloat32), device_or_default(a[2])), a[3]);
}

// -- ranges

Tensor arange_of(SymInt n, DType dtype, const Value& device) {
  return op1(OpId::arange, {vdim(0), vint(n), vdim(1), dtype, device});
}

LuaResults eye(Args& a) {
  const SymInt n = a[0].sym_int(), m = a[1].is_none() ? n : a[1].sym_int();
  if (n < 0) fail("eye: n must not be negative, got ", n.hint);
  if (m < 0) fail("eye: m must not be negative, got ", m.hint);
  const Value device = device_or_default(a[3]);
  Tensor rows = op1(OpId::unsqueeze, {arange_of(n, DType::kInt64, device), vdim(1)});
  Tensor same = op1(OpId::eq, {rows, arange_of(m, DType::kInt64, device)});
  return finish(to_dtype(same, dtype_or(a[2], DType::kFloat32).as<DType>()), a[4]);
}

// PyTorch's order of operations: from the start up to the middle, from the end afterwards.
LuaResults linspace(Args& a) {
  const double start = pin(a[0].as<Scalar>()).to_double(), end = pin(a[1].as<Scalar>()).to_double();
  const int64_t steps = a[2].sym_int().guard();
  if (steps < 0) fail("linspace: steps must not be negative, got ", steps);
  const DType dtype = dtype_or(a[3], DType::kFloat32).as<DType>();
  const Value device = device_or_default(a[4]);
  if (steps <= 1) return finish(full_of({steps}, start, dtype, device), a[5]);
  // Scalars beside a float32 tensor are rounded to float32 at each op, which is how PyTorch computes it too.
  const DType work = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const double step = work == DType::kFloat64 ? (end - start) / double(steps - 1)
                                              : double((float(end) - float(start)) / float(steps - 1));
  Tensor i = arange_of(steps, work, device);
  Tensor up = op1(OpId::add, {op1(OpId::mul, {i, vnum(step)}), vnum(start), vnum(1)});
  Tensor back = op1(OpId::sub, {vnum(double(steps - 1)), i, vnum(1)});
  Tensor down = op1(OpId::sub, {vnum(end), op1(OpId::mul, {back, vnum(step)}), vnum(1)});
  Tensor first = op1(OpId::lt, {i, vnum(double(steps / 2))});
  return finish(to_dtype(op1(OpId::where, {first, up, down}), dtype), a[5]);
}

LuaResults logspace(Args& a) {
  Args line = {a[0], a[1], a[2], a[4], a[5], false};
  const DType dtype = dtype_or(a[4], DType::kFloat32).as<DType>();
  if (!is_float(dtype)) line[3] = DType::kFloat64;
  const Tensor exponents = linspace(line)[0].tensor();
  return finish(to_dtype(op1(OpId::pow, {a[3], exponents}), dtype), a[6]);
}

// -- random

LuaResults randint(Args& a) {
  Args full = a;
  const Value requires_grad = full.back();
  full.pop_back();
  full[4] = device_or_default(full[4]);
  return finish(op1(OpId::randint, full), requires_grad);
}

LuaResults randint_below(Args& a) {
  Args full = a;
  full.insert(full.begin(), vdim(0));
  return randint(full);
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Takes one call of the generator: lt's own, or a table of lt.Generator, which holds seed and call.
uint64_t draw_key(lua_State* L, int table) {
  if (table == 0) {
    Generator& generator = default_generator();
    return mix(generator.seed ^ mix(generator.next_call++));
  }
  lua_getfield(L, table, "seed");
  lua_getfield(L, table, "call");
  if (!lua_isnumber(L, -2) || !lua_isnumber(L, -1)) fail("randperm: generator must be made by lt.Generator");
  const double seed = lua_tonumber(L, -2), call = lua_tonumber(L, -1);
  lua_pop(L, 2);
  lua_pushnumber(L, call + 1);
  lua_setfield(L, table, "call");
  return mix(uint64_t(int64_t(seed)) ^ mix(uint64_t(call)));
}

// Fisher and Yates, drawing element i's number from (seed, call, i).
int randperm(lua_State* L) {
  static const std::vector<ArgInfo> schema = parse_schema("int n, *, dtype? dtype=None, Device? device=None");
  LuaReader in(L);
  ExtraKeyword generator[] = {{"generator"}};
  const Args a = bind_schema("randperm", schema, in, generator);
  const int64_t n = a[0].sym_int().hint;
  if (n < 0) fail("randperm: n must not be negative, got ", n);
  const bool given = generator[0].value >= 0;
  if (given && in.kind(generator[0].value) != LuaKind::kTable) {
    fail("randperm: argument 'generator' must be made by lt.Generator, got ", in.describe(generator[0].value));
  }
  const uint64_t key = draw_key(L, given ? generator[0].value + 1 : 0);
  Tensor t = make_tensor({n}, DType::kInt64);
  auto* p = t->data_as<int64_t>();
  std::iota(p, p + n, int64_t(0));
  for (int64_t i = n - 1; i > 0; --i) {
    const auto r = uint64_t((static_cast<unsigned __int128>(mix(key + uint64_t(i))) * uint64_t(i + 1)) >> 64);
    std::swap(p[i], p[r]);
  }
  const Value where = device_or_default(a[2]);
  if (!where.is_none()) t = copy_to(t, where.as<Device>());
  push_tensor(L, to_dtype(t, dtype_or(a[1], DType::kInt64).as<DType>()));
  return 1;
}

#define OPTIONS "*, dtype? dtype=None, Device? device=None, bool requires_grad=False"

#define LIKE_OPTIONS OPTIONS ", str? memory_format=None"

const Composite kRows[] = {
    {"zeros", "int[] size, " OPTIONS, kFunctionOf, filled<0>},
    {"ones", "int[] size, " OPTIONS, kFunctionOf, filled<1>},
    {"zeros_like", "Tensor input, " LIKE_OPTIONS, kBoth, [](Args& a) { return fill_like(like(a), 0.0); }},
    {"ones_like", "Tensor input, " LIKE_OPTIONS, kBoth, [](Args& a) { return fill_like(like(a), 1.0); }},
    {"empty_like", "Tensor input, " LIKE_OPTIONS, kBoth, [](Args& a) { return op_like<OpId::empty>(like(a)); }},
    {"rand_like", "Tensor input, " LIKE_OPTIONS, kBoth | kDraws, [](Args& a) { return op_like<OpId::rand>(like(a)); }},
    {"randn_like", "Tensor input, " LIKE_OPTIONS, kBoth | kDraws,
     [](Args& a) { return op_like<OpId::randn>(like(a)); }},
    {"full_like", "Tensor input, Scalar fill_value, " LIKE_OPTIONS, kBoth, full_like},
    {"new_zeros", "Tensor input, int[] size, " OPTIONS, kBoth, [](Args& a) { return fill_like(sized_like(a), 0.0); }},
    {"new_ones", "Tensor input, int[] size, " OPTIONS, kBoth, [](Args& a) { return fill_like(sized_like(a), 1.0); }},
    {"new_empty", "Tensor input, int[] size, " OPTIONS, kBoth,
     [](Args& a) { return op_like<OpId::empty>(sized_like(a)); }},
    {"new_full", "Tensor input, int[] size, Scalar fill_value, " OPTIONS, kBoth, new_full},
    {"scalar_tensor", "Scalar s, " OPTIONS, kFunctionOf, scalar_tensor},
    {"eye", "int n, int? m=None, " OPTIONS, kFunctionOf, eye},
    {"linspace", "Scalar start, Scalar end, int steps, " OPTIONS, kFunctionOf, linspace},
    {"logspace", "Scalar start, Scalar end, int steps, Scalar base=10, " OPTIONS, kFunctionOf, logspace},
    {"randint", "int low, int high, int[] size, " OPTIONS, kFunctionOf | kDraws, randint},
    {"randint", "int high, int[] size, " OPTIONS, kFunctionOf | kDraws, randint_below},
};

// -- lt.tensor: nested tables

// First pass: sizes along the first elements, the kind of all elements, and that rows of one level are equally long.
struct Nested {
  ArgReader& in;
  Sizes sizes;
  bool bools = false, ints = false, numbers = false;
  std::vector<Scalar> values;

  [[noreturn]] void ragged(const std::string& path, const std::string& got, size_t depth) {
    std::string want = depth < sizes.size() ? str("a list of ", sizes[depth].hint) : std::string("a number");
    fail("tensor: data", path, " is ", got, " where its neighbours are ", want);
  }

  void leaf(ArgReader::H h, LuaKind kind) {
    if (kind == LuaKind::kBoolean) {
      bools = true;
      values.push_back(Scalar::of_bool(in.boolean(h)));
      return;
    }
    values.push_back(pin(in.number(h)));
    (kind == LuaKind::kInt64 ? ints : numbers) = true;
  }

  void list(ArgReader::H h, size_t depth, const std::string& path) {
    if (depth > 64) fail("tensor: data is nested more than 64 levels deep");
    const int64_t n = in.length(h);
    if (depth == sizes.size() && values.empty()) {
      sizes.push_back(n);
    } else if (depth >= sizes.size() || sizes[depth].hint != n) {
      ragged(path, str("a list of ", n), depth);
    }
    for (int64_t i = 1; i <= n; ++i) {
      const ArgReader::H mark = in.mark();
      element(in.index(h, i), depth + 1, [&] { return str(path, "[", i, "]"); });
      in.release(mark);
    }
  }

  template <class Path>
  void element(ArgReader::H h, size_t depth, const Path& path) {
    const LuaKind kind = in.kind(h);
    if (kind == LuaKind::kTable) return list(h, depth, path());
    if (kind != LuaKind::kNumber && kind != LuaKind::kInt64 && kind != LuaKind::kBoolean) {
      fail("tensor: data", path(), " must be a number, a boolean or a list of them, got ", in.describe(h));
    }
    if (depth != sizes.size()) ragged(path(), in.describe(h), depth);
    leaf(h, kind);
  }
};

// What was made on the host, on the device asked for or the default one.
Tensor on_wanted(const Tensor& t, const Value& device) {
  const Value where = device_or_default(device);
  return where.is_none() ? t : copy_to(t, where.as<Device>());
}

// An array of the ffi library, copied; null for any other value.
Tensor tensor_of_array(ArgReader& in, ArgReader::H data) {
  auto* reader = dynamic_cast<LuaReader*>(&in);
  CArray array;
  if (!reader || !to_c_array(reader->state(), data + 1, &array)) return Tensor();
  Tensor t = make_tensor(array.sizes, array.dtype);
  std::memcpy(t->data(), array.data, size_t(t->numel().hint) * size_of(array.dtype));
  return t;
}

[[noreturn]] void overflow(const Scalar& v, DType dtype) {
  fail("tensor: data ", to_string(v), " cannot be converted to ", name(dtype), " without overflow");
}

Tensor tensor_of(ArgReader& in, ArgReader::H data, const Value& dtype, const Value& device) {
  const LuaKind kind = in.kind(data);
  if (kind == LuaKind::kTensor) {
    Tensor t = op1(OpId::detach, {in.tensor(data)});
    const bool moves = !device.is_none() && device.as<Device>() != t->device();
    t = moves ? op1(OpId::to_device, {t, device}) : op1(OpId::clone, {t});
    return dtype.is_none() ? t : to_dtype(t, dtype.as<DType>());
  }
  if (kind == LuaKind::kNumber) {
    const Value type = dtype_or(dtype, DType::kFloat32);
    // Floats of lt.tensor overflow to infinity, lt.full's not: PyTorch's way.
    const bool fits = converts(in.number(data), type.as<DType>());
    if (!fits && !is_float(type.as<DType>())) overflow(in.number(data), type.as<DType>());
    if (fits) {
      return full_of({}, in.number(data), type, device_or_default(device));
    }
    return to_dtype(full_of({}, in.number(data), DType::kFloat64, device_or_default(device)), type.as<DType>());
  }
  if (kind == LuaKind::kOther) {
    if (Tensor t = tensor_of_array(in, data); t) {
      t = on_wanted(t, device);
      return dtype.is_none() ? t : to_dtype(t, dtype.as<DType>());
    }
  }
  Nested nested{in};
  if (kind == LuaKind::kTable) {
    nested.list(data, 0, "");
  } else {
    nested.element(data, 0, [] { return ""; });
  }
  DType inferred = DType::kFloat32;
  if (!nested.numbers && nested.bools != nested.ints) inferred = nested.bools ? DType::kBool : DType::kInt64;
  Tensor t = make_tensor(nested.sizes, dtype_or(dtype, inferred).as<DType>());
  auto* p = static_cast<char*>(t->data());
  for (const Scalar& v : nested.values) {
    if (!is_float(t->dtype) && !converts(v, t->dtype)) overflow(v, t->dtype);
    store_element(p, t->dtype, v);
    p += size_of(t->dtype);
  }
  return on_wanted(t, device);
}

// data and keywords from argument `first` on; dtype and device where none are given.
LuaResults tensor_from(const Binding& self, ArgReader& in, int first, const Value& dtype, const Value& device) {
  static const std::vector<ArgInfo> schema =
      parse_schema("dtype? dtype=None, Device? device=None, bool requires_grad=False");
  // The data may be anything, so it is taken out of the arguments first; the rest are keywords.
  struct Rest : ArgReader {
    ArgReader& in;
    H keywords;
    Rest(ArgReader& in, H keywords) : in(in), keywords(keywords) {}
    int count() const override { return keywords >= 0 ? 1 : 0; }
    H at(H h) { return h == 0 ? keywords : h; }
    LuaKind kind(H h) override { return in.kind(at(h)); }
    bool boolean(H h) override { return in.boolean(at(h)); }
    Scalar number(H h) override { return in.number(at(h)); }
    std::string string(H h) override { return in.string(at(h)); }
    Tensor tensor(H h) override { return in.tensor(at(h)); }
    int64_t length(H h) override { return in.length(at(h)); }
    H index(H h, int64_t i) override { return in.index(at(h), i); }
    H field(H h, const char* key) override { return in.field(at(h), key); }
    std::vector<std::string> keys(H h) override {
      std::vector<std::string> out = in.keys(at(h));
      std::erase(out, "data");
      return out;
    }
    std::string describe(H h) override { return in.describe(at(h)); }
  };
  const int count = in.count() - first;
  if (count <= 0) fail(self.name, ": argument 'data' is missing");
  ArgReader::H data = first, keywords = count > 1 && in.kind(first + 1) != LuaKind::kNil ? first + 1 : -1;
  if (count > 2) fail(self.name, ": takes data and a keyword table, got ", count, " arguments");
  if (keywords < 0 && in.kind(first) == LuaKind::kTable && in.length(first) == 0 && !in.keys(first).empty()) {
    keywords = first;
    data = in.field(first, "data");
  }
  Rest rest(in, keywords);
  const Args a = bind_schema(self.name, schema, rest, {});
  if (in.kind(data) == LuaKind::kNil) fail(self.name, ": argument 'data' is missing");
  Tensor t = tensor_of(in, data, a[0].is_none() ? dtype : a[0], a[1].is_none() ? device : a[1]);
  // In a graph it is a fresh tensor of each run, not the constant itself.
  if (current_mode() && !t->is_fake()) t = op1(OpId::clone, {t});
  return finish(t, a[2]);
}

LuaResults tensor_binding(const Binding& self, ArgReader& in) { return tensor_from(self, in, 0, Value(), Value()); }

LuaResults new_tensor(const Binding& self, ArgReader& in) {
  if (in.count() == 0 || in.kind(0) != LuaKind::kTensor) {
    fail("new_tensor: argument 'input' must be a Tensor, got ", in.count() ? in.describe(0) : "nothing");
  }
  const Tensor like = in.tensor(0);
  return tensor_from(self, in, 1, like->dtype, like->device());
}

const Special kSpecials[] = {
    {"new_tensor", kMethod, new_tensor, nullptr},
    {"randperm", kFunctionOf | kHostEffect, nullptr, randperm},
    {"tensor", kFunctionOf, tensor_binding, nullptr},
    {"as_tensor", kFunctionOf,
     [](const Binding& self, ArgReader& in) -> LuaResults {
       if (in.count() == 1 && in.kind(0) == LuaKind::kTensor) return {in.tensor(0)};
       return tensor_binding(self, in);
     },
     nullptr},
};

}  // namespace

Value default_device_value() {
  const Device device = default_device();
  return device == Device{} ? Value() : Value(device);
}

std::span<const Composite> creation_rows() { return kRows; }
std::span<const Special> creation_specials() { return kSpecials; }

}  // namespace lutra
