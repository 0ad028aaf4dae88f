// Runs primitive ops on real tensors by plain loops.
#include "tests/ops/naive_executor.h"

#include <cmath>

#include "ops/meta/rules.h"

namespace lutra {
namespace {

template <class F>
auto with_type(DType type, F f) {
  switch (type) {
    case DType::kBool:
    case DType::kUInt8: return f(uint8_t());
    case DType::kInt8: return f(int8_t());
    case DType::kInt16: return f(int16_t());
    case DType::kInt32: return f(int32_t());
    case DType::kInt64: return f(int64_t());
    case DType::kFloat32: return f(float());
    case DType::kFloat64: return f(double());
    default: fail_internal("the naive executor has no ", name(type));
  }
}

int64_t offset_of(const Tensor& t, const Index& at) {
  int64_t o = 0;
  for (size_t d = 0; d < at.size(); d++) o += at[d] * t->strides[d].hint;
  return o;
}

// The operand's element at an index of the result it is broadcast to.
double operand(const Value& v, const Index& at) {
  if (v.is<Scalar>()) return v.as<Scalar>().to_double();
  const Tensor& t = v.as<Tensor>();
  Index own(at.end() - t->dim(), at.end());
  for (size_t d = 0; d < own.size(); d++) {
    if (t->sizes[d].hint == 1) own[d] = 0;
  }
  return get(t, own);
}

double remainder_of(double a, double b) {
  double m = std::fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

double pointwise(OpId op, const Args& args, const Index& at) {
  auto in = [&](size_t i) { return operand(args[i], at); };
  double a = args[0].is<Tensor>() || args[0].is<Scalar>() ? in(0) : 0;
  switch (op) {
    case OpId::add: return a + args[2].as<Scalar>().to_double() * in(1);
    case OpId::sub: return a - args[2].as<Scalar>().to_double() * in(1);
    case OpId::mul: return a * in(1);
    case OpId::div: return a / in(1);
    case OpId::pow: return std::pow(a, in(1));
    case OpId::remainder: return remainder_of(a, in(1));
    case OpId::floor_divide: return std::floor(a / in(1));
    case OpId::minimum: return a != a ? a : in(1) < a || in(1) != in(1) ? in(1) : a;
    case OpId::maximum: return a != a ? a : in(1) > a || in(1) != in(1) ? in(1) : a;
    case OpId::neg: return -a;
    case OpId::abs: return std::fabs(a);
    case OpId::exp: return std::exp(a);
    case OpId::log: return std::log(a);
    case OpId::tanh: return std::tanh(a);
    case OpId::sigmoid: return 1 / (1 + std::exp(-a));
    case OpId::sqrt: return std::sqrt(a);
    case OpId::rsqrt: return 1 / std::sqrt(a);
    case OpId::reciprocal: return 1 / a;
    case OpId::floor: return std::floor(a);
    case OpId::ceil: return std::ceil(a);
    case OpId::sign: return (a > 0) - (a < 0);
    case OpId::relu: return a < 0 ? 0 : a;
    case OpId::eq: return a == in(1);
    case OpId::ne: return a != in(1);
    case OpId::lt: return a < in(1);
    case OpId::le: return a <= in(1);
    case OpId::gt: return a > in(1);
    case OpId::ge: return a >= in(1);
    case OpId::logical_and: return a != 0 && in(1) != 0;
    case OpId::logical_or: return a != 0 || in(1) != 0;
    case OpId::logical_xor: return (a != 0) != (in(1) != 0);
    case OpId::logical_not: return a == 0;
    case OpId::isnan: return a != a;
    case OpId::where: return a != 0 ? in(1) : in(2);
    case OpId::to_dtype:
    case OpId::clone: return a;
    case OpId::full: return args[1].as<Scalar>().to_double();
    case OpId::arange: {
      double start = args[1].is_none() ? 0 : a;
      return start + double(at[0]) * args[2].as<Scalar>().to_double();
    }
    default: fail_internal("the naive executor has no ", name(op));
  }
}

bool better(OpId op, double x, double best) {
  if (best != best) return false;
  bool max = op == OpId::amax || op == OpId::argmax;
  return x != x || (max ? x > best : x < best);
}

void reduce(OpId op, const Args& args, const Tensor& out) {
  const Tensor& x = args[0].as<Tensor>();
  Dims dims = reduced_dims(op, args[1], x->sizes.size(), op != OpId::any && op != OpId::all);
  bool keepdim = args[2].as<bool>(), extreme = op == OpId::amax || op == OpId::amin;
  bool arg = op == OpId::argmax || op == OpId::argmin;
  each_index(out->sizes, [&](const Index& at) { set(out, at, op == OpId::all); });
  std::vector<double> best;
  std::vector<bool> seen(size_t(numel(out->sizes).hint), false);
  best.resize(seen.size());
  each_index(x->sizes, [&](const Index& at) {
    Index to;
    int64_t flat = 0, position = 0;
    for (int64_t d = 0; d < int64_t(at.size()); d++) {
      bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
      if (reduced) position = position * x->sizes[d].hint + at[d];
      if (!reduced) flat = flat * x->sizes[d].hint + at[d];
      if (!reduced || keepdim) to.push_back(reduced ? 0 : at[d]);
    }
    double v = get(x, at);
    if (op == OpId::sum) return set(out, to, get(out, to) + v);
    if (op == OpId::any) return set(out, to, get(out, to) || v != 0);
    if (op == OpId::all) return set(out, to, get(out, to) && v != 0);
    if (seen[flat] && !better(op, v, best[flat])) return;
    seen[flat] = true, best[flat] = v;
    if (extreme) set(out, to, v);
    if (arg) set(out, to, double(position));
  });
}

void product(const Args& args, const Tensor& out) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  int64_t k = a->sizes.back().hint;
  each_index(out->sizes, [&](const Index& at) {
    double sum = 0;
    for (int64_t i = 0; i < k; i++) {
      Index x = at, y = at;
      x[x.size() - 1] = i, y[y.size() - 2] = i;
      sum += get(a, x) * get(b, y);
    }
    set(out, at, sum);
  });
}

// Returns the position that an element of the index tensor (or of a vector of indices along dim) points to.
int64_t pointed(OpId op, const Tensor& index, const Index& at, int64_t size) {
  double v = get(index, at);
  if (v < 0 || v >= double(size)) {
    throw Error(ErrorKind::kData, str(name(op), ": index ", v, " is out of bounds for size ", size));
  }
  return int64_t(v);
}

void index_op(OpId op, const Args& args, const Tensor& out) {
  const Tensor &x = args[0].as<Tensor>(), &index = args[2].as<Tensor>();
  int64_t dim = wrap_dim(op, args[1].sym_int().hint, x->sizes.size());
  int64_t size = x->sizes.empty() ? 1 : x->sizes[dim].hint;
  bool vector = op == OpId::index_select || op == OpId::index_add;
  bool scatters = op == OpId::scatter_add || op == OpId::index_add;
  if (scatters) each_index(x->sizes, [&](const Index& at) { set(out, at, get(x, at)); });
  Sizes over = vector ? (scatters ? args[3].as<Tensor>()->sizes : out->sizes) : index->sizes;
  each_index(over, [&](const Index& at) {
    Index by = at, to = at;
    if (vector) by = index->sizes.empty() ? Index{} : Index{at.empty() ? 0 : at[dim]};
    int64_t p = pointed(op, index, by, size);
    if (!to.empty()) to[dim] = p;
    if (scatters) set(out, to, get(out, to) + get(args[3].as<Tensor>(), at));
    if (!scatters) set(out, at, get(x, to));
  });
}

void scatter_selected(const Args& args, const Tensor& out) {
  const Tensor& src = args[1].as<Tensor>();
  const int64_t dim = wrap_dim(OpId::select_scatter, args[2].sym_int().hint, out->sizes.size());
  const int64_t n = out->sizes[size_t(dim)].hint, position = (args[3].sym_int().hint + n) % n;
  each_index(out->sizes, [&](const Index& at) {
    Index from = at;
    from.erase(from.begin() + dim);
    set(out, at, at[size_t(dim)] == position ? get(src, from) : get(args[0].as<Tensor>(), at));
  });
}

void scatter_strided(const Args& args, const Tensor& out) {
  each_index(out->sizes, [&](const Index& at) { set(out, at, get(args[0].as<Tensor>(), at)); });
  Tensor place = alias(out, args[2].as<Sizes>(), args[3].as<Sizes>(), out->offset + args[4].sym_int());
  each_index(place->sizes, [&](const Index& at) { set(place, at, get(args[1].as<Tensor>(), at)); });
}

}  // namespace

double get(const Tensor& t, const Index& at) {
  return with_type(t->dtype, [&](auto zero) { return double(t->data_as<decltype(zero)>()[offset_of(t, at)]); });
}

void set(const Tensor& t, const Index& at, double v) {
  if (t->dtype == DType::kBool) v = v != 0;
  with_type(t->dtype, [&](auto zero) { t->data_as<decltype(zero)>()[offset_of(t, at)] = decltype(zero)(v); });
}

void each_index(const Sizes& sizes, const std::function<void(const Index&)>& f) {
  if (numel(sizes).hint == 0) return;
  Index at(sizes.size(), 0);
  for (;;) {
    f(at);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1].hint) at[--d] = 0;
    if (d == 0) return;
  }
}

std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  each_index(t->sizes, [&](const Index& at) { out.push_back(get(t, at)); });
  return out;
}

Tensor tensor_of(const Sizes& sizes, const std::vector<double>& values, DType dtype) {
  Tensor t = make_tensor(sizes, dtype);
  size_t i = 0;
  each_index(sizes, [&](const Index& at) { set(t, at, values.at(i++)); });
  return t;
}

Results NaiveExecutor::run(OpId op, const Args& args, const ResultSpecs& specs) {
  const OpInfo& row = info(op);
  if (row.is_composite()) return row.decompose(args);
  Tensor out = make_tensor(specs[0].sizes, specs[0].strides, specs[0].dtype);
  switch (op) {
    case OpId::sum:
    case OpId::amax:
    case OpId::amin:
    case OpId::argmax:
    case OpId::argmin:
    case OpId::any:
    case OpId::all: reduce(op, args, out); break;
    case OpId::mm:
    case OpId::bmm: product(args, out); break;
    case OpId::gather:
    case OpId::scatter_add:
    case OpId::index_select:
    case OpId::index_add: index_op(op, args, out); break;
    case OpId::as_strided_scatter: scatter_strided(args, out); break;
    case OpId::select_scatter: scatter_selected(args, out); break;
    default: each_index(out->sizes, [&](const Index& at) { set(out, at, pointwise(op, args, at)); });
  }
  return {out};
}

void NaiveExecutor::run_inplace(OpId op, const Args& args, const ResultSpecs& specs) {
  Value result = op == OpId::copy_ ? args[1] : Value(run(op, args, specs)[0]);
  const Tensor& self = args[0].as<Tensor>();
  each_index(self->sizes, [&](const Index& at) { set(self, at, operand(result, at)); });
}

}  // namespace lutra
