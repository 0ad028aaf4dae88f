// Decomposes repetitions of elements, and ops whose result sizes depend on elements: repeat_interleave by a tensor,
// one_hot, combinations.
#include "ops/core/interrupt.h"
#include "ops/decompose/emit.h"
#include "ops/defs/element.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// tile and repeat: insert a dimension of size 1 before each, expand it, and join the two. With pad, a short list gets
// ones in front.
Results repeat_with(OpId op, const Args& a, bool pad) {
  const Tensor t = a[0].tensor();
  Sizes times = a[1].as<Sizes>(), sizes = t->sizes;
  while (pad && times.size() < sizes.size()) times.insert(0, 1);
  if (times.size() < sizes.size()) {
    fail(name(op), ": the number of repeats (", times.size(), ") is smaller than the number of dimensions (",
         sizes.size(), ")");
  }
  while (sizes.size() < times.size()) sizes.insert(0, 1);
  Sizes spaced, expanded, folded;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (times[d] < 0) fail(name(op), ": a number of repeats must not be negative, got ", times[d].hint);
    spaced.push_back(1), spaced.push_back(sizes[d]);
    expanded.push_back(times[d]), expanded.push_back(sizes[d]);
    folded.push_back(times[d] * sizes[d]);
  }
  const Tensor wide = expand(op1(OpId::reshape, {t, spaced}), expanded);
  return {op1(OpId::reshape, {op1(OpId::clone, {wide, std::string("contiguous_format")}), folded})};
}

// The input of repeat_interleave, flattened if no dim is given, and the dim.
struct Interleaved {
  Tensor t;
  int64_t dim;
};
Interleaved interleaved(const Value& input, const Value& dim) {
  Tensor t = input.tensor();
  if (dim.is_none()) t = op1(OpId::reshape, {t, Sizes{t->numel()}});
  const int64_t d = dim.is_none() ? 0 : wrap_dim(OpId::repeat_interleave, dim.sym_int().guard(), t->sizes.size());
  return {t->dim() == 0 ? unsqueeze(t, vdim(0)) : t, d};
}

// Computes the positions in a graph. Their number is a size that elements decide. Where eager code raises an error, the
// size is 1, which no graph takes.
Tensor positions_in_graph(const Tensor& repeats, const Value& total) {
  constexpr int64_t kMost = int64_t(1) << 40;
  const Tensor n = to_dtype(repeats, DType::kInt64), sum = sum_all(n);
  Tensor fits = op1(OpId::all, {op1(OpId::logical_and, {ge(n, vint(0)), le(n, vint(kMost))})});
  if (!total.is_none()) fits = op1(OpId::logical_and, {fits, eq(sum, total)});
  const Tensor last = op1(OpId::clamp, {where(fits, sub(sum, vint(1)), vint(0)), vint(0), Value()});
  Tensor counts;
  try {
    counts = op1(OpId::bincount, {op1(OpId::reshape, {last, Sizes{1}}), Value(), vint(0)});
  } catch (const NeedsData&) {  // reports the error under the name that was called
    need_data("repeat_interleave", repeats);
  }
  const SymInt size = total.is_none() ? counts->sizes[0] : total.sym_int();
  const Tensor all = counting(size, repeats);
  const Tensor ends = op1(OpId::cumsum, {n, vdim(0), Value()});
  return to_dtype(op1(OpId::searchsorted, {ends, all, false, true, Value(), Value()}), repeats->dtype);
}

// Returns the positions for repeats: 0 0 2 for [2, 0, 1].
Tensor positions(const Tensor& repeats, const Value& total) {
  if (!is_index(repeats->dtype)) {
    fail("repeat_interleave: repeats must be int64 or int32, got ", name(repeats->dtype));
  }
  if (repeats->dim() != 1) fail("repeat_interleave: repeats must be a vector, got shape ", to_string(repeats->sizes));
  if (repeats->is_fake()) return positions_in_graph(repeats, total);
  const Elements elements(repeats);
  int64_t sum = 0;
  const auto look = [](int64_t i) {
    if (i % kStretch == 0) check_stop();
  };
  for (int64_t i = 0; i < elements.size(0); i++) {
    look(i);
    const int64_t n = elements.at(i * elements.stride(0)).to_int();
    if (n < 0) fail("repeat_interleave: repeats must not be negative, got ", n, " at ", i);
    if (__builtin_add_overflow(sum, n, &sum)) fail("repeat_interleave: the repeats add up to more than 64 bits hold");
  }
  if (!total.is_none() && total.sym_int().guard() != sum) {
    fail("repeat_interleave: output_size is ", total.sym_int().hint, ", the repeats add up to ", sum);
  }
  Tensor out = make_tensor({sum}, repeats->dtype);
  auto fill = [&](auto* p) {
    for (int64_t i = 0, at = 0; i < elements.size(0); i++) {
      look(i);
      for (int64_t n = elements.at(i * elements.stride(0)).to_int(); n > 0; n--) {
        look(at);
        p[at++] = std::decay_t<decltype(*p)>(i);
      }
    }
  };
  repeats->dtype == DType::kInt64 ? fill(out->data_as<int64_t>()) : fill(out->data_as<int32_t>());
  return copy_to(out, repeats->device());
}

// Returns the number of ways to pick r of n things. INT64_MAX stands for more.
int64_t count_picks(int64_t n, int64_t r) {
  r = std::min(r, n - r);
  if (r < 0) return 0;
  int64_t ways = 1;
  for (int64_t i = 1; i <= r; i++) {
    const __int128 next = __int128(ways) * (n - r + i) / i;
    if (next > INT64_MAX) return INT64_MAX;
    ways = int64_t(next);
  }
  return ways;
}

// Returns all ways to pick r > 0 of n numbers in their order, one a row. `again` allows to pick a number several times.
Tensor all_picks(int64_t n, int64_t r, bool again) {
  const int64_t rows = again && n > 0 ? count_picks(n + r - 1, r) : count_picks(n, r);
  int64_t elements;
  if (__builtin_mul_overflow(rows, r, &elements)) fail("combinations: ", r, " of ", n, " are too many");
  const Tensor out = make_tensor({elements}, DType::kInt64);
  auto* row = out->data_as<int64_t>();
  for (int64_t i = 0; i < r && rows > 0; i++) row[i] = again ? 0 : i;
  for (int64_t k = 1; k < rows; k++, row += r) {
    if (k % kStretch == 0) check_stop();
    // Increments the last number that can grow. Those behind it get the least values that may follow.
    int64_t i = r - 1;
    while (row[i] == (again ? n - 1 : n - r + i)) i--;
    std::copy(row, row + i, row + r);
    for (int64_t next = row[i] + 1; i < r; i++, next += !again) row[r + i] = next;
  }
  return out;
}

}  // namespace

Results decompose_repeat(const Args& a) { return repeat_with(OpId::repeat, a, false); }
Results decompose_tile(const Args& a) { return repeat_with(OpId::tile, a, true); }

// (input, repeats, dim, output_size)
Results decompose_repeat_interleave(const Args& a) {
  const SymInt n = a[1].sym_int();
  if (n < 0) fail("repeat_interleave: repeats must not be negative, got ", n.hint);
  const auto [t, dim] = interleaved(a[0], a[2]);
  Sizes wide = t->sizes, sizes = t->sizes;
  wide.insert(size_t(dim) + 1, n);
  sizes[size_t(dim)] = sizes[size_t(dim)] * n;
  if (!a[3].is_none() && a[3].sym_int() != sizes[size_t(dim)]) {
    fail("repeat_interleave: output_size must be ", sizes[size_t(dim)].hint, ", got ", a[3].sym_int().hint);
  }
  const Tensor spread = expand(unsqueeze(t, vdim(dim + 1)), wide);
  return {op1(OpId::reshape, {op1(OpId::clone, {spread, std::string("contiguous_format")}), sizes})};
}

Results decompose_repeat_interleave_tensor(const Args& a) {
  Tensor repeats = a[1].tensor();
  const auto [t, dim] = interleaved(a[0], a[2]);
  const SymInt size = t->sizes[size_t(dim)];
  if (repeats->numel() == 1) repeats = expand(op1(OpId::reshape, {repeats, Sizes{1}}), Sizes{size});
  if (repeats->dim() == 1 && repeats->sizes[0] != size) {
    fail("repeat_interleave: ", repeats->sizes[0].hint, " repeats do not fit dimension ", dim, " of shape ",
         to_string(t->sizes));
  }
  return {index_select(t, vdim(dim), positions(repeats, a[3]))};
}

Results decompose_repeat_interleave_positions(const Args& a) { return {positions(a[0].tensor(), a[1])}; }

// (input, num_classes)
Results decompose_one_hot(const Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dtype != DType::kInt64) fail("one_hot: expects an int64 tensor of classes, got ", name(t->dtype));
  SymInt classes = a[1].sym_int();
  if (classes == -1) {
    need_data("one_hot", t);
    if (t->numel() == 0) fail("one_hot: num_classes must be given for an empty tensor");
    classes = Elements(op1(OpId::amax, {t})).at(0).to_int() + 1;
  } else if (classes < 1) {
    fail("one_hot: num_classes must be positive, got ", classes.hint);
  }
  // A class that is too large becomes a negative one, which check_values reports at run time.
  const Tensor small = where(lt(t, vint(classes)), t, vint(-1));
  const std::string message = "one_hot: classes must be at least 0 and smaller than num_classes";
  const Tensor at = op1(OpId::check_values, {small, std::string("nonnegative"), message});
  const Tensor all = counting(classes, t);
  return {to_dtype(eq(unsqueeze(at, vdim(-1)), all), DType::kInt64)};
}

// (input, r, with_replacement)
Results decompose_combinations(const Args& a) {
  const Tensor t = a[0].tensor();
  const int64_t r = a[1].sym_int().guard();
  if (t->dim() != 1) fail("combinations: expects a vector, got shape ", to_string(t->sizes));
  if (r < 0) fail("combinations: r must not be negative, got ", r);
  if (r == 0) return {op1(OpId::empty, {Sizes{0}, t->dtype, t->device()})};
  Tensor index = copy_to(all_picks(t->sizes[0].guard(), r, a[2].as<bool>()), t->device());
  const SymInt rows = index->numel().hint / r;
  if (current_mode()) index = op1(OpId::clone, {index});
  return {view(index_select(t, vdim(0), index), Sizes{rows, r})};
}

}  // namespace lutra
