// histogram, whose bins are a number or edges, and whose range is a pair of numbers.
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

const Special kSpecials[] = {{"histogram", kBoth, histogram, nullptr}};

}  // namespace

std::span<const Special> histogram_specials() { return kSpecials; }

}  // namespace lutra
