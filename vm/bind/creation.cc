// Tensors from nested tables and arrays of the ffi library (lt.tensor and similar functions), and randperm.
#include <cmath>
#include <cstring>
#include <lua.hpp>

#include "ops/core/current_device.h"
#include "ops/core/interrupt.h"
#include "ops/decompose/emit.h"
#include "ops/defs/element.h"
#include "ops/meta/rules.h"
#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"
#include "vm/bind/tensor_userdata.h"

namespace lutra {

namespace {

Value device_or_default(const Value& device) { return device.is_none() ? default_device_value() : device; }
Value dtype_or(const Value& dtype, DType otherwise) { return dtype.is_none() ? Value(otherwise) : dtype; }

// -- randperm

// Returns the sort order of n random numbers. They are drawn from so many that two are seldom equal; the sort is stable
// if they are.
LuaResults randperm(const Binding& self, ArgReader& in) {
  static const std::vector<ArgInfo> schema = parse_schema("int n, *, dtype? dtype=None, Device? device=None");
  constexpr int64_t kNumbers = int64_t(1) << 62;
  ExtraKeyword extras[] = {{"generator"}, {"out"}};
  const Args a = bind_schema(self.name, schema, in, extras);
  const SymInt n = a[0].sym_int();
  if (n < 0) fail("randperm: n must not be negative, got ", n.hint);
  GeneratorScope scope(self.name, in, extras[0]);
  const Tensor numbers =
      op1(OpId::randint, {vint(0), vint(kNumbers), Sizes{n}, DType::kInt64, device_or_default(a[2])});
  scope.keep();
  const Tensor order = op1(OpId::argsort, {numbers, vdim(0), false, true});
  Value out;
  if (extras[1].value >= 0 && in.kind(extras[1].value) == LuaKind::kTensor) out = in.tensor(extras[1].value);
  const DType otherwise = out.is_none() ? DType::kInt64 : out.tensor()->dtype;
  return {written_out(self.name, out, to_dtype(order, dtype_or(a[1], otherwise).as<DType>()))};
}

// -- lt.tensor: nested tables

// The first pass over nested tables: reads the sizes along the first elements and the kind of all elements, and checks
// that rows of one level have equal length.
struct Nested {
  ArgReader& in;
  Sizes sizes;
  bool bools = false, ints = false, numbers = false, pairs = false, changes = false;
  std::vector<Scalar> values;

  [[noreturn]] void ragged(const std::string& path, const std::string& got, size_t depth) {
    std::string want = depth < sizes.size() ? str("a list of ", sizes[depth].hint) : std::string("a number");
    fail("tensor: data", path, " is ", got, " where its neighbours are ", want);
  }

  void leaf(ArgReader::H h, LuaKind kind) {
    if (values.size() % kStretch == kStretch - 1) check_stop();
    if (kind == LuaKind::kBoolean) {
      bools = true;
      values.push_back(Scalar::of_bool(in.boolean(h)));
      return;
    }
    values.push_back(in.number(h));
    changes = changes || values.back().expr;
    (kind == LuaKind::kInt64 ? ints : kind == LuaKind::kComplex ? pairs : numbers) = true;
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
    const bool number = kind == LuaKind::kNumber || kind == LuaKind::kInt64 || kind == LuaKind::kComplex;
    if (!number && kind != LuaKind::kBoolean) {
      fail("tensor: data", path(), " must be a number, a boolean or a list of them, got ", in.describe(h));
    }
    if (depth != sizes.size()) ragged(path(), in.describe(h), depth);
    leaf(h, kind);
  }
};

// Copies a tensor made on the host to the given device or the default one.
Tensor on_wanted(const Tensor& t, const Value& device) {
  const Value where = device_or_default(device);
  return where.is_none() ? t : copy_to(t, where.as<Device>());
}

// Copies an array of the ffi library into a tensor; returns null for any other value.
Tensor tensor_of_array(ArgReader& in, ArgReader::H data) {
  auto* reader = dynamic_cast<LuaReader*>(&in);
  CArray array;
  if (!reader || !to_c_array(reader->state(), data + 1, &array)) return Tensor();
  Tensor t = make_tensor(array.sizes, array.dtype);
  std::memcpy(t->data(), array.data, size_t(t->numel().hint) * size_of(array.dtype));
  return t;
}

void check_number(const Scalar& v, DType dtype) {
  if (v.is_complex && !is_complex(dtype)) fail("tensor: data ", to_string(v), " is complex, ", name(dtype), " is not");
  if (is_float(dtype) || is_complex(dtype) || converts(v, dtype)) return;
  fail("tensor: data ", to_string(v), " cannot be converted to ", name(dtype), " without overflow");
}

// Makes a tensor of a number. Floats that are too large become infinity, as in PyTorch; in lt.full they are an error.
Tensor tensor_of_number(const Scalar& v, DType dtype, const Value& device) {
  const bool fits = converts(v, dtype);
  if (!fits) check_number(v, dtype);
  const Tensor made = op1(OpId::full, {Sizes{}, v, fits ? dtype : DType::kFloat64, device_or_default(device)});
  return fits ? made : to_dtype(made, dtype);
}

// Makes a tensor of numbers that may change in a later call, with one op for each. Returns null if constants are
// better.
Tensor tensor_of_changing(Nested& nested, DType dtype, const Value& device) {
  constexpr size_t kMaxChanging = 32;
  if (!nested.changes) return Tensor();
  if (nested.values.size() > kMaxChanging || nested.pairs || is_complex(dtype)) {
    for (Scalar& v : nested.values) v = pin(v);
    return Tensor();
  }
  std::vector<Tensor> elements;
  for (const Scalar& v : nested.values) elements.push_back(tensor_of_number(v, dtype, device));
  return op1(OpId::view, {op1(OpId::stack, {elements, vdim(0)}), nested.sizes});
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
    return tensor_of_number(in.number(data), dtype_or(dtype, DType::kFloat32).as<DType>(), device);
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
  if (nested.pairs) inferred = DType::kComplex64;
  const DType wanted = dtype_or(dtype, inferred).as<DType>();
  if (Tensor t = tensor_of_changing(nested, wanted, device)) return t;
  // Elements of a packed dtype are first written in an unpacked dtype.
  Tensor t = make_tensor(nested.sizes, single(wanted));
  auto* p = static_cast<char*>(t->data());
  int64_t done = 0;
  for (const Scalar& v : nested.values) {
    if (++done % kStretch == 0) check_stop();
    check_number(v, wanted);
    store_element(p, t->dtype, v);
    p += size_of(t->dtype);
  }
  return on_wanted(to_dtype(t, wanted), device);
}

// Makes a tensor of the data and keywords from argument `first` on. dtype and device are the defaults.
LuaResults tensor_from(const Binding& self, ArgReader& in, int first, const Value& dtype, const Value& device) {
  static const std::vector<ArgInfo> schema =
      parse_schema("dtype? dtype=None, Device? device=None, bool requires_grad=False");
  // The data may be any value, so it is removed from the arguments first; the rest are keywords.
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
  // In a graph each run makes a new tensor, not the constant itself.
  if (current_mode() && !t->is_fake()) t = op1(OpId::clone, {t});
  if (a[2].as<bool>()) set_requires_grad(t, true);
  return {t};
}

LuaResults tensor_binding(const Binding& self, ArgReader& in) { return tensor_from(self, in, 0, Value(), Value()); }

LuaResults new_tensor(const Binding& self, ArgReader& in) {
  if (in.count() == 0 || in.kind(0) != LuaKind::kTensor) {
    fail("new_tensor: argument 'input' must be a Tensor, got ", in.count() ? in.describe(0) : "nothing");
  }
  const Tensor like = in.tensor(0);
  return tensor_from(self, in, 1, like->dtype, like->device());
}

// Returns the broadcast shape of its arguments, which are numbers and lists.
LuaResults broadcast_shapes(const Binding& self, ArgReader& in) {
  Sizes out;
  for (int i = 0; i < in.count(); ++i) {
    Sizes shape;
    const bool list = in.kind(i) == LuaKind::kTable;
    for (int64_t k = 1; k <= (list ? in.length(i) : 1); ++k) {
      const ArgReader::H h = list ? in.index(i, k) : i;
      if (in.kind(h) != LuaKind::kNumber && in.kind(h) != LuaKind::kInt64) {
        fail(self.name, ": expected shapes, as lists of integers or integers, got ", in.describe(h));
      }
      shape.push_back(read_int(self.name, "shapes", in, h));
      if (shape.back() < 0) fail(self.name, ": sizes must not be negative, got ", shape.back().hint);
    }
    out = broadcast(OpId::broadcast_to, out, shape);
  }
  return {out};
}

const Special kCreationSpecials[] = {
    {"broadcast_shapes", kFunctionOf,
     [](const Binding& self, ArgReader& in) -> LuaResults {
       try {
         return broadcast_shapes(self, in);
       } catch (const Error& error) {
         rethrow_named(error, self.name);
       }
     },
     nullptr},
    {"new_tensor", kMethod, new_tensor, nullptr},
    {"randperm", kFunctionOf | kDraws, randperm, nullptr},
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

std::span<const Special> creation_specials() { return kCreationSpecials; }

}  // namespace lutra
