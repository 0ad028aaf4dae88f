// Decomposes ops that make tensors from sizes and numbers, or from the sizes of other tensors: zeros, linspace, eye and
// their like.
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/core/closest.h"
#include "ops/decompose/emit.h"
#include "ops/defs/order.h"
#include "ops/defs/to_device.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

Value dtype_or(const Value& dtype, DType otherwise) { return dtype.is_none() ? Value(otherwise) : dtype; }

Tensor full_of(const Sizes& sizes, const Value& value, const Value& dtype, const Value& device) {
  return op1(OpId::full, {sizes, value, dtype, device});
}

// (size, dtype, device)
Results filled(const Args& a, double value) {
  return {full_of(a[0].as<Sizes>(), vnum(value), dtype_or(a[1], DType::kFloat32), a[2])};
}

// The dtype at args[i] and the device after it. The input's are the defaults.
struct Options {
  Value dtype, device;
};
Options options_like(const Args& a, size_t i) {
  const Tensor t = a[0].tensor();
  return {dtype_or(a[i], t->dtype), a[i + 1].is_none() ? Value(t->device()) : a[i + 1]};
}

// -- layouts: calls make with permuted sizes, so that it makes a row-major tensor, and permutes the result back

using Maker = std::function<Tensor(const Sizes&)>;

Tensor ordered(const Sizes& sizes, const Sizes& order, const Maker& make) {
  bool sorted = true;
  Sizes outer;
  for (size_t i = 0; i < order.size(); i++) {
    outer.push_back(sizes[size_t(order[i].hint)]);
    sorted = sorted && order[i].hint == int64_t(i);
  }
  return sorted ? make(sizes) : permute(make(outer), inverse(order));
}

// Returns the dimensions of a memory format, from the outermost to the innermost.
Sizes order_of(const char* fn, const std::string& format, size_t rank) {
  if (format == "channels_last") {
    if (rank != 4) fail(fn, ": memory_format 'channels_last' needs 4 dimensions, got ", rank);
    return {0, 2, 3, 1};
  }
  if (format != "contiguous_format") {
    const KnownNames known = {"preserve_format", "contiguous_format", "channels_last"};
    fail(fn, ": memory_format '", format, "' is unknown", known.expected(format));
  }
  Sizes order;
  for (size_t d = 0; d < rank; d++) order.push_back(SymInt(int64_t(d)));
  return order;
}

// Makes a tensor with t's layout if t is dense, else with the order of its strides.
Tensor laid_out_as(const Tensor& t, const Maker& make) {
  if (t->is_contiguous()) return make(t->sizes);
  return ordered(t->sizes, falling(like_spec(t, t->dtype).strides), make);
}

Tensor like(const char* fn, const Tensor& t, const Value& format, const Maker& make) {
  const std::string wanted = format.is_none() ? "preserve_format" : format.as<std::string>();
  if (wanted == "preserve_format") return laid_out_as(t, make);
  return ordered(t->sizes, order_of(fn, wanted, t->sizes.size()), make);
}

// (input, dtype, device, memory_format)
Results fill_like(const char* fn, const Args& a, const Value& value, size_t options = 1) {
  const Options o = options_like(a, options);
  return {like(fn, a[0].tensor(), a[options + 2],
               [&](const Sizes& sizes) { return full_of(sizes, value, o.dtype, o.device); })};
}
Results op_like(OpId op, const char* fn, const Args& a) {
  const Options o = options_like(a, 1);
  return {like(fn, a[0].tensor(), a[3], [&](const Sizes& sizes) { return op1(op, {sizes, o.dtype, o.device}); })};
}
// (input, size, [fill_value,] dtype, device)
Results fill_new(const Args& a, const Value& value, size_t options = 2) {
  const Options o = options_like(a, options);
  return {full_of(a[1].as<Sizes>(), value, o.dtype, o.device)};
}

Tensor arange_of(SymInt n, DType dtype, const Value& device) {
  return op1(OpId::arange, {vdim(0), vint(n), vdim(1), dtype, device});
}

Scalar step_of(const Scalar& start, const Scalar& end, const Scalar& last) {
  return scalar_binary(SymOp::kNDiv, scalar_binary(SymOp::kNSub, end, start), last);
}

// Returns the step in float32. If the numbers are symbolic, it is a tensor on t's device.
Value float_step_of(const Scalar& start, const Scalar& end, const Scalar& last, const Tensor& t) {
  const auto number = [](const Scalar& s) { return float(s.to_double()); };
  if (!start.expr && !end.expr && !last.expr) return vnum((number(end) - number(start)) / number(last));
  const auto rounded = [&](const Scalar& s) { return full_of({}, s, DType::kFloat32, t->device()); };
  return div(sub(rounded(end), rounded(start)), rounded(last));
}

// (start, end, steps, dtype, device). The order of operations is PyTorch's: up to the middle it counts from the start,
// after it from the end. Numbers beside a float32 tensor are rounded to float32 at each op, as PyTorch does.
Tensor linspace(const Value& start_value, const Value& end_value, const Value& steps_value, DType dtype,
                const Value& device) {
  Scalar start = start_value.as<Scalar>(), end = end_value.as<Scalar>();
  if (!is_float(dtype)) start = std::trunc(pin(start).to_double()), end = std::trunc(pin(end).to_double());
  const SymInt steps = steps_value.sym_int();
  if (steps < 0) fail("linspace: steps must not be negative, got ", steps.hint);
  if (steps <= 1) return full_of({steps}, start, dtype, device);
  const DType work = dtype == DType::kFloat64 || !is_float(dtype) ? DType::kFloat64 : DType::kFloat32;
  const Scalar last = Scalar::of_sym(steps - 1);
  const Tensor i = arange_of(steps, work, device);
  const Value step = work == DType::kFloat64 ? Value(step_of(start, end, last)) : float_step_of(start, end, last, i);
  const Tensor up = add(mul(i, step), start), down = sub(end, mul(sub(last, i), step));
  return to_dtype(where(lt(i, vint(floor_div(steps, 2))), up, down), dtype);
}

}  // namespace

// (start, end, step, dtype, device). The default dtype is float32, even if the numbers are whole.
Results decompose_range(const Args& a) {
  const double start = pin(a[0].as<Scalar>()).to_double(), end = pin(a[1].as<Scalar>()).to_double();
  const double step = pin(a[2].as<Scalar>()).to_double();
  if (!(step > 0 || step < 0)) fail("range: step must not be zero, got ", step);
  if (!std::isfinite(start) || !std::isfinite(end)) fail("range: from ", start, " to ", end, " is not finite");
  if (step > 0 ? end < start : end > start) fail("range: from ", start, " to ", end, " leads no step of ", step);
  const Value dtype = dtype_or(a[3], DType::kFloat32);
  // An exclusive end: halfway between the last number and the next; for integers, one beyond the last.
  const double last = start + std::floor((end - start) / step) * step;
  const double beyond = is_float(dtype.as<DType>()) ? last + step / 2 : last + std::copysign(1.0, step);
  return {op1(OpId::arange, {a[0], Scalar(beyond), a[2], dtype, a[4]})};
}

// (size, stride, dtype, device)
Results decompose_empty_strided(const Args& a) {
  const Sizes &size = a[0].as<Sizes>(), &stride = a[1].as<Sizes>();
  if (size.size() != stride.size())
    fail("empty_strided: size and stride must be of one length, got ", to_string(size), " and ", to_string(stride));
  SymInt extent = 1;
  bool none = false;
  for (size_t d = 0; d < size.size(); d++) {
    if (size[d] < 0 || stride[d] < 0)
      fail("empty_strided: size and stride must not be negative, got ", to_string(size), " and ", to_string(stride));
    none = none || size[d] == 0;
    extent = extent + (size[d] - 1) * stride[d];
  }
  const Tensor memory = op1(OpId::empty, {Sizes{none ? SymInt(0) : extent}, dtype_or(a[2], DType::kFloat32), a[3]});
  return {op1(OpId::as_strided, {memory, size, stride, vdim(0)})};
}

// (input, size, stride, dtype, device)
Results decompose_new_empty_strided(const Args& a) {
  const Options o = options_like(a, 3);
  return {op1(OpId::empty_strided, {a[1], a[2], o.dtype, o.device})};
}

// (size, physical_layout, dtype, device). The layout names the dimensions from the outermost to the innermost.
Results decompose_empty_permuted(const Args& a) {
  const Sizes& sizes = a[0].as<Sizes>();
  Sizes order;
  for (const SymInt& d : a[1].as<Sizes>()) order.push_back(SymInt(d.guard()));
  std::vector<bool> seen(sizes.size());
  for (const SymInt& d : order) {
    const bool fits = order.size() == sizes.size() && d.hint >= 0 && d.hint < int64_t(sizes.size());
    if (!fits || seen[size_t(d.hint)]) {
      fail("empty_permuted: physical_layout must name each of the ", sizes.size(), " dimensions once, got ",
           to_string(order));
    }
    seen[size_t(d.hint)] = true;
  }
  if (order.size() != sizes.size()) {
    fail("empty_permuted: physical_layout must name each of the ", sizes.size(), " dimensions once, got ",
         to_string(order));
  }
  return {ordered(sizes, order, [&](const Sizes& s) { return op1(OpId::empty, {s, a[2], a[3]}); })};
}

Results decompose_zeros(const Args& a) { return filled(a, 0); }
Results decompose_ones(const Args& a) { return filled(a, 1); }
Results decompose_scalar_tensor(const Args& a) { return {full_of({}, a[0], dtype_or(a[1], DType::kFloat32), a[2])}; }

Results decompose_zeros_like(const Args& a) { return fill_like("zeros_like", a, vnum(0)); }
Results decompose_ones_like(const Args& a) { return fill_like("ones_like", a, vnum(1)); }
Results decompose_full_like(const Args& a) { return fill_like("full_like", a, a[1], 2); }
Results decompose_empty_like(const Args& a) { return op_like(OpId::empty, "empty_like", a); }
Results decompose_rand_like(const Args& a) { return op_like(OpId::rand, "rand_like", a); }
Results decompose_randn_like(const Args& a) { return op_like(OpId::randn, "randn_like", a); }
// (input, low, high, dtype, device, memory_format)
Results decompose_randint_like(const Args& a) {
  const Options o = options_like(a, 3);
  return {like("randint_like", a[0].tensor(), a[5], [&](const Sizes& sizes) {
    return op1(OpId::randint, {a[1], a[2], sizes, o.dtype, o.device});
  })};
}

// (size, memory_format, dtype, device)
Results decompose_empty_laid_out(const Args& a) {
  const Sizes& sizes = a[0].as<Sizes>();
  return {ordered(sizes, order_of("empty", a[1].as<std::string>(), sizes.size()), [&](const Sizes& s) {
    return op1(OpId::empty, {s, a[2], a[3]});
  })};
}

Results decompose_new_zeros(const Args& a) { return fill_new(a, vnum(0)); }
Results decompose_new_ones(const Args& a) { return fill_new(a, vnum(1)); }
Results decompose_new_full(const Args& a) { return fill_new(a, a[2], 3); }
Results decompose_new_empty(const Args& a) {
  const Options o = options_like(a, 2);
  return {op1(OpId::empty, {a[1], o.dtype, o.device})};
}

// (n, m, dtype, device)
Results decompose_eye(const Args& a) {
  const SymInt n = a[0].sym_int(), m = a[1].is_none() ? n : a[1].sym_int();
  if (n < 0) fail("eye: n must not be negative, got ", n.hint);
  if (m < 0) fail("eye: m must not be negative, got ", m.hint);
  const Tensor rows = unsqueeze(arange_of(n, DType::kInt64, a[3]), vdim(1));
  return {to_dtype(eq(rows, arange_of(m, DType::kInt64, a[3])), dtype_or(a[2], DType::kFloat32).as<DType>())};
}

Results decompose_linspace(const Args& a) {
  return {linspace(a[0], a[1], a[2], dtype_or(a[3], DType::kFloat32).as<DType>(), a[4])};
}

// (start, end, steps, base, dtype, device)
Results decompose_logspace(const Args& a) {
  const DType dtype = dtype_or(a[4], DType::kFloat32).as<DType>();
  if (is_float(dtype)) return {to_dtype(pow(a[3], linspace(a[0], a[1], a[2], dtype, a[5])), dtype)};
  const auto whole = [](const Value& v) { return vnum(std::trunc(pin(v.as<Scalar>()).to_double())); };
  const Tensor exponents = linspace(whole(a[0]), whole(a[1]), a[2], DType::kFloat64, a[5]);
  return {to_dtype(pow(a[3], exponents), dtype)};
}

// (x, N, increasing)
Results decompose_vander(const Args& a) {
  const Tensor x = a[0].tensor();
  if (x->dim() != 1) fail("vander: x must be a vector, got shape ", to_string(x->sizes));
  const SymInt n = a[1].is_none() ? x->sizes[0] : a[1].sym_int();
  if (n < 0) fail("vander: N must not be negative, got ", n.hint);
  const DType type = is_float(x->dtype) ? x->dtype : DType::kInt64;
  // Multiplies instead of raising to powers, for PyTorch's bits.
  const Tensor columns = expand(unsqueeze(to_dtype(x, type), vdim(-1)), Sizes{x->sizes[0], n});
  const Tensor first = eq(arange_of(n, DType::kInt64, x->device()), vdim(0));
  const Tensor powers = op1(OpId::cumprod, {where(first, vdim(1), columns), vdim(1)});
  return {a[2].as<bool>() ? powers : op1(OpId::flip, {powers, Sizes{1}})};
}

namespace {

// (row, col, offset, dtype, device)
Results triangle_indices(OpId op, const Args& a, bool lower) {
  const int64_t rows = a[0].sym_int().guard(), columns = a[1].sym_int().guard(), offset = a[2].sym_int().guard();
  if (rows < 0 || columns < 0) fail(name(op), ": sizes must not be negative, got ", rows, " and ", columns);
  const DType dtype = dtype_or(a[3], DType::kInt64).as<DType>();
  if (!is_index(dtype)) fail(name(op), ": not defined for ", name(dtype), " tensors");
  std::vector<int64_t> at[2];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t split = std::clamp<int64_t>(lower ? r + offset + 1 : r + offset, 0, columns);
    for (int64_t c = lower ? 0 : split; c < (lower ? split : columns); c++) at[0].push_back(r), at[1].push_back(c);
  }
  Tensor t = make_tensor({2, int64_t(at[0].size())}, DType::kInt64);
  std::copy(at[1].begin(), at[1].end(), std::copy(at[0].begin(), at[0].end(), t->data_as<int64_t>()));
  if (!a[4].is_none()) t = copy_to(t, a[4].as<Device>());
  // In a graph, each run must make a fresh tensor, not return the constant itself.
  if (current_mode()) t = op1(OpId::clone, {t});
  return {to_dtype(t, dtype)};
}

}  // namespace

Results decompose_tril_indices(const Args& a) { return triangle_indices(OpId::tril_indices, a, true); }
Results decompose_triu_indices(const Args& a) { return triangle_indices(OpId::triu_indices, a, false); }
}  // namespace lutra
