// histogram and histogramdd, whose bins are numbers or edges, and whose range is a pair of numbers for each dimension.
#include "ops/meta/rules.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

double end_of(ArgReader& in, ArgReader::H range, int64_t i) {
  const ArgReader::H h = in.index(range, i);
  if (in.kind(h) != LuaKind::kNumber) {
    fail("histogram: argument 'range' must be a pair of numbers, got ", in.describe(h), " in it");
  }
  return in.number(h).to_double();
}

LuaResults histogram(const Binding&, ArgReader& in) {
  static const std::vector<ArgInfo> schema =
      parse_schema("Tensor input, Operand bins=100, *, Tensor? weight=None, bool density=False");
  ExtraKeyword extras[] = {{"range"}, {"out"}};
  const Args a = bind_schema("histogram", schema, in, extras);
  const ArgReader::H range = extras[0].value, out = extras[1].value;
  const bool edges = a[1].is<Tensor>(), ranged = range >= 0 && in.kind(range) != LuaKind::kNil;
  if (ranged && edges) fail("histogram: edges in 'bins' go without 'range'");
  Value low, high;
  if (ranged) {
    if (in.kind(range) != LuaKind::kTable || in.length(range) != 2) {
      fail("histogram: argument 'range' must be a pair of numbers, got ", in.describe(range));
    }
    low = Scalar(end_of(in, range, 1)), high = Scalar(end_of(in, range, 2));
  }
  Results r = edges ? call_op(OpId::histogram_edges, {a[0], a[1], a[2], a[3]})
                    : call_op(OpId::histogram_count, {a[0], a[1], low, high, a[2], a[3]});
  if (out < 0) return {r[0], r[1]};
  if (in.kind(out) != LuaKind::kTable || in.length(out) != 2) {
    fail("histogram: argument 'out' must be a list of 2 Tensors, got ", in.describe(out));
  }
  for (int64_t i = 0; i < 2; ++i) {
    const ArgReader::H h = in.index(out, i + 1);
    if (in.kind(h) != LuaKind::kTensor) fail("histogram: argument 'out' must hold Tensors, got ", in.describe(h));
    r[size_t(i)] = written_out("histogram", in.tensor(h), r[size_t(i)]);
  }
  return {r[0], r[1]};
}

// Returns whether histogramdd's bins, given by position or by name, are edges.
bool has_edges(ArgReader& in) {
  const auto of_tensors = [&](ArgReader::H h) {
    return in.kind(h) == LuaKind::kTable && in.length(h) > 0 && in.kind(in.index(h, 1)) == LuaKind::kTensor;
  };
  const int last = in.count() - 1;
  return of_tensors(1) || (in.kind(last) == LuaKind::kTable && of_tensors(in.field(last, "bins")));
}

// Returns the edges of dimension d; `bins` has a number or the edges for each dimension.
Tensor edges_along(ArgReader& in, const Tensor& x, const Value& bins, ArgReader::H range, int64_t d) {
  if (bins.is<std::vector<Tensor>>()) {
    const Tensor& given = bins.as<std::vector<Tensor>>()[size_t(d)];
    if (given->dim() != 1 || given->dtype != x->dtype || given->sizes[0] < 2) {
      fail("histogramdd: bins must be edges, 2 or more of ", name(x->dtype), " in 1 dimension, got ", describe(given));
    }
    return op1(OpId::clone, {given});
  }
  Value low, high, count = vdim(10);
  if (!bins.is_none()) count = vint(bins.as<Sizes>()[bins.as<Sizes>().size() == 1 ? 0 : size_t(d)]);
  if (range >= 0) low = Scalar(end_of(in, range, 2 * d + 1)), high = Scalar(end_of(in, range, 2 * d + 2));
  return op1(OpId::histogram_bins, {op1(OpId::select, {x, vdim(-1), vdim(d)}), count, low, high});
}

void check_points(const Tensor& x, const Value& weight) {
  if (!is_float(x->dtype)) fail("histogramdd: expected a floating point input, got ", name(x->dtype));
  if (x->dim() < 2) fail("histogramdd: the input must have 2 dimensions or more, got shape ", to_string(x->sizes));
  Sizes points = x->sizes;
  points.pop_back();
  if (weight.is_none()) return;
  const Tensor& w = weight.as<Tensor>();
  if (!same_sizes(w->sizes, points) || w->dtype != x->dtype) {
    fail("histogramdd: weight must be ", name(x->dtype), " of shape ", to_string(points), " as the points, got ",
         describe(w));
  }
}

LuaResults histogramdd(const Binding&, ArgReader& in) {
  static const std::vector<ArgInfo> of_counts =
      parse_schema("Tensor input, int[]? bins=None, *, Tensor? weight=None, bool density=False");
  static const std::vector<ArgInfo> of_edges =
      parse_schema("Tensor input, Tensor[] bins, *, Tensor? weight=None, bool density=False");
  ExtraKeyword extras[] = {{"range"}};
  const bool given = has_edges(in);
  const Args a = bind_schema("histogramdd", given ? of_edges : of_counts, in, extras);
  const Tensor& x = a[0].as<Tensor>();
  check_points(x, a[2]);
  const int64_t dims = x->sizes.back().guard();
  if (dims == 0) fail("histogramdd: the points must have 1 coordinate or more, got shape ", to_string(x->sizes));
  const size_t bins = given ? a[1].as<std::vector<Tensor>>().size() : a[1].is_none() ? 1 : a[1].as<Sizes>().size();
  if (bins != size_t(dims) && (given || bins != 1)) {
    fail("histogramdd: 'bins' must hold one for each of the ", dims, " dimensions, got ", bins);
  }
  const ArgReader::H range = extras[0].value;
  if (range >= 0 && given) fail("histogramdd: edges in 'bins' go without 'range'");
  if (range >= 0 && (in.kind(range) != LuaKind::kTable || in.length(range) != 2 * dims)) {
    fail("histogramdd: argument 'range' must be a list of ", 2 * dims, " numbers, got ", in.describe(range));
  }
  std::vector<Tensor> edges;
  for (int64_t d = 0; d < dims; d++) edges.push_back(edges_along(in, x, a[1], range, d));
  return {op1(OpId::histogram_points, {x, edges, a[2], a[3]}), edges};
}

const Special kHistogramSpecials[] = {{"histogram", kBoth, histogram, nullptr},
                                      {"histogramdd", kFunctionOf, histogramdd, nullptr}};

}  // namespace

std::span<const Special> histogram_specials() { return kHistogramSpecials; }

}  // namespace lutra
