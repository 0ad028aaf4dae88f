// tensordot, whose dims are a number or a pair of lists.
#include "ops/core/closest.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

bool is_number(ArgReader& in, ArgReader::H h) {
  const LuaKind kind = in.kind(h);
  if (kind == LuaKind::kTensor) return in.tensor(h)->sizes.empty() && is_int(in.tensor(h)->dtype);
  return kind == LuaKind::kNumber || kind == LuaKind::kInt64;
}

SymInt dim_at(ArgReader& in, ArgReader::H h) {
  if (!is_number(in, h)) {
    fail("tensordot: argument 'dims' must be a number or a pair of lists of numbers, got ", in.describe(h), " in it");
  }
  return read_int("tensordot", "dims", in, h);
}

Sizes int_list(ArgReader& in, ArgReader::H h) {
  if (in.kind(h) != LuaKind::kTable) return {dim_at(in, h)};
  Sizes out;
  for (int64_t i = 1; i <= in.length(h); ++i) out.push_back(dim_at(in, in.index(h, i)));
  return out;
}

Value out_of(ArgReader& in, ArgReader::H h) {
  if (in.kind(h) == LuaKind::kNil) return {};
  if (in.kind(h) != LuaKind::kTensor) fail("tensordot: argument 'out' must be a Tensor, got ", in.describe(h));
  return in.tensor(h);
}

LuaResults tensordot(const Binding&, ArgReader& in) {
  for (int i = 0; i < 2; ++i) {
    if (in.kind(i) == LuaKind::kTensor) continue;
    fail("tensordot: argument '", i ? "other" : "input", "' must be a Tensor, got ", in.describe(i));
  }
  if (in.count() > 3) fail("tensordot: takes at most 3 arguments, got ", in.count());
  const Tensor a = in.tensor(0), b = in.tensor(1);
  ArgReader::H dims = 2;
  Value out;
  if (in.kind(2) == LuaKind::kTable && in.length(2) == 0) {
    for (const std::string& key : in.keys(2)) {
      const KnownNames keywords = {"dims", "out"};
      if (!keywords.have(key)) fail("tensordot: unknown keyword '", key, "'", keywords.known(key));
    }
    dims = in.field(2, "dims");
    out = out_of(in, in.field(2, "out"));
  }
  Sizes of_a, of_b;
  if (in.kind(dims) == LuaKind::kTable) {
    if (in.length(dims) != 2) fail("tensordot: argument 'dims' must be a number or a pair of lists");
    of_a = int_list(in, in.index(dims, 1)), of_b = int_list(in, in.index(dims, 2));
  } else {
    const int64_t n = in.kind(dims) == LuaKind::kNil ? 2 : dim_at(in, dims).guard();
    if (n < 0 || n > a->dim() || n > b->dim()) {
      fail("tensordot: dims ", n, " is out of range for shapes ", to_string(a->sizes), " and ", to_string(b->sizes));
    }
    for (int64_t i = 0; i < n; ++i) of_a.push_back(a->dim() - n + i), of_b.push_back(i);
  }
  return {written_out("tensordot", out, op1(OpId::tensordot, {a, b, of_a, of_b}))};
}

const Special kTensordotSpecials[] = {{"tensordot", kFunctionOf, tensordot, nullptr}};

}  // namespace

std::span<const Special> tensordot_specials() { return kTensordotSpecials; }

}  // namespace lutra
