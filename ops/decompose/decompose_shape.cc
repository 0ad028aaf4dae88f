// Decomposes joins, rearrangements and padding.
#include "ops/core/closest.h"
#include "ops/core/overlap.h"
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Returns r, or a copy if it is a view of x.
Tensor apart(const Tensor& r, const Tensor& x) {
  return r->storage.get() == x->storage.get() ? op1(OpId::clone, {r}) : r;
}

using List = std::vector<Tensor>;

const List& tensors(OpId op, const Value& v) {
  const List& list = v.as<List>();
  if (list.empty()) fail(name(op), ": expects a list of at least one tensor");
  return list;
}

Tensor cat(const List& list, int64_t dim) { return op1(OpId::cat, {list, int_arg(dim)}); }

// Adds dimensions of size 1 before t's own (and for three dimensions after them), as PyTorch's atleast_nd does.
Tensor at_least(const Tensor& t, size_t n) {
  const size_t have = t->sizes.size();
  if (have >= n) return t;
  if (have == 0) return reshape(t, Sizes(n, SymInt(1)));
  if (n == 2) return unsqueeze(t, int_arg(0));
  Tensor wide = have == 1 ? unsqueeze(t, int_arg(0)) : t;
  return unsqueeze(wide, int_arg(-1));
}

List each_at_least(const List& list, size_t n) {
  List out;
  for (const Tensor& t : list) out.push_back(at_least(t, n));
  return out;
}
List all_at_least(OpId op, const Value& v, size_t n) { return each_at_least(tensors(op, v), n); }

void check_rank(OpId op, const Tensor& t, size_t least) {
  if (t->sizes.size() < least) {
    fail(name(op), ": expected a tensor of ", least, least == 1 ? " dimension" : " dimensions", " or more, got shape ",
         to_string(t->sizes));
  }
}

}  // namespace

Results decompose_atleast_1d(const Args& args) { return {at_least(args[0].tensor(), 1)}; }
Results decompose_atleast_2d(const Args& args) { return {at_least(args[0].tensor(), 2)}; }
Results decompose_atleast_3d(const Args& args) { return {at_least(args[0].tensor(), 3)}; }
Results decompose_atleast_1d_list(const Args& args) { return each_at_least(args[0].as<List>(), 1); }
Results decompose_atleast_2d_list(const Args& args) { return each_at_least(args[0].as<List>(), 2); }
Results decompose_atleast_3d_list(const Args& args) { return each_at_least(args[0].as<List>(), 3); }

// -- joins
// (sequences, batch_first, padding_value, padding_side). The result has the dtype of the first.
Results decompose_pad_sequence(const Args& args) {
  const List& list = tensors(OpId::pad_sequence, args[0]);
  const std::string& side = args[3].as<std::string>();
  const KnownNames sides = {"left", "right"};
  if (!sides.have(side)) fail("pad_sequence: padding_side '", side, "' is unknown", sides.expected(side));
  SymInt longest = 0;
  for (size_t i = 0; i < list.size(); i++) {
    const Sizes &sizes = list[i]->sizes, &first = list[0]->sizes;
    if (sizes.size() == 0) fail("pad_sequence: sequences[", i + 1, "] has no dimensions");
    const bool fits = sizes.size() == first.size() &&
                      same_sizes(Sizes(sizes.begin() + 1, sizes.end()), Sizes(first.begin() + 1, first.end()));
    if (!fits) {
      fail("pad_sequence: sequences[", i + 1, "] has shape ", to_string(sizes),
           ", whose sizes after the first are not ", "those of sequences[1], ", to_string(first));
    }
    longest = sym_max(longest, list[i]->sizes[0]);
  }
  List padded;
  for (const Tensor& t : list) {
    Sizes around(t->sizes.size() * 2, SymInt(0));
    around[around.size() - (side == "left" ? 2 : 1)] = longest - t->sizes[0];
    padded.push_back(op1(OpId::pad, {to_dtype(t, list[0]->dtype), around, std::string("constant"), args[2]}));
  }
  return {op1(OpId::stack, {padded, int_arg(args[1].as<bool>() ? 0 : 1)})};
}

Results decompose_stack(const Args& args) {
  const List& list = tensors(OpId::stack, args[0]);
  const size_t rank = list[0]->sizes.size();
  const int64_t dim = wrap_dim(OpId::stack, args[1].sym_int().guard(), rank + 1);
  List wide;
  for (size_t i = 0; i < list.size(); i++) {
    if (!same_sizes(list[i]->sizes, list[0]->sizes)) {
      fail("stack: expects tensors of one shape, got ", to_string(list[0]->sizes), " at 0 and ",
           to_string(list[i]->sizes), " at ", i);
    }
    wide.push_back(unsqueeze(list[i], int_arg(dim)));
  }
  return {cat(wide, dim)};
}

Results decompose_hstack(const Args& args) {
  List list = all_at_least(OpId::hstack, args[0], 1);
  return {cat(list, list[0]->sizes.size() == 1 ? 0 : 1)};
}
Results decompose_vstack(const Args& args) { return {cat(all_at_least(OpId::vstack, args[0], 2), 0)}; }
Results decompose_dstack(const Args& args) { return {cat(all_at_least(OpId::dstack, args[0], 3), 2)}; }
Results decompose_column_stack(const Args& args) {
  List columns;
  for (const Tensor& t : tensors(OpId::column_stack, args[0])) {
    columns.push_back(t->sizes.size() > 1 ? t : reshape(t, {t->numel(), 1}));
  }
  return {cat(columns, 1)};
}

Results decompose_block_diag(const Args& args) {
  SymInt rows = 0, columns = 0;
  Promotion type;
  List blocks;
  for (const Tensor& t : tensors(OpId::block_diag, args[0])) {
    if (t->sizes.size() > 2) {
      fail("block_diag: expects tensors of at most 2 dimensions, got shape ", to_string(t->sizes), " at ",
           blocks.size());
    }
    type.add(t);
    blocks.push_back(at_least(t, 2));
    rows = rows + blocks.back()->sizes[0], columns = columns + blocks.back()->sizes[1];
  }
  SymInt at = 0;
  List bands;
  for (const Tensor& b : blocks) {
    Sizes pad = {at, columns - at - b->sizes[1]};
    bands.push_back(op1(OpId::constant_pad_nd, {to_dtype(b, type.type()), pad, Scalar(0.0)}));
    at = at + b->sizes[1];
  }
  return {cat(bands, 0)};
}

Results decompose_cartesian_prod(const Args& args) {
  const List& list = tensors(OpId::cartesian_prod, args[0]);
  Sizes shape;
  for (const Tensor& t : list) {
    if (t->sizes.size() != 1) fail("cartesian_prod: expects vectors, got shape ", to_string(t->sizes));
    if (t->dtype != list[0]->dtype) {
      fail("cartesian_prod: expects tensors of one dtype, got ", name(list[0]->dtype), " and ", name(t->dtype));
    }
    shape.push_back(t->sizes[0]);
  }
  if (list.size() == 1) return {list[0]};
  List columns;
  for (size_t i = 0; i < list.size(); i++) {
    Sizes lying(list.size(), SymInt(1));
    lying[i] = list[i]->sizes[0];
    columns.push_back(reshape(expand(reshape(list[i], lying), shape), {numel(shape)}));
  }
  return {op1(OpId::stack, {columns, int_arg(1)})};
}

// -- turning and moving
Results decompose_fliplr(const Args& args) {
  check_rank(OpId::fliplr, args[0].tensor(), 2);
  return {op1(OpId::flip, {args[0], Sizes{1}})};
}
Results decompose_flipud(const Args& args) {
  check_rank(OpId::flipud, args[0].tensor(), 1);
  return {op1(OpId::flip, {args[0], Sizes{0}})};
}

namespace {

Tensor roll_one(const Tensor& t, SymInt by, int64_t dim) {
  SymInt n = t->sizes[size_t(dim)];
  if (n == 0) return t;
  SymInt shift = floor_mod(by, n);
  if (shift == 0) return t;
  return cat({part(t, dim, n - shift, n), part(t, dim, 0, n - shift)}, dim);
}

}  // namespace

Results decompose_roll(const Args& args) {
  Tensor x = args[0].tensor(), t = x;
  const Sizes& shifts = args[1].as<Sizes>();
  const Sizes dims = args[2].is_none() ? Sizes() : args[2].as<Sizes>();
  if (shifts.empty()) fail("roll: shifts must not be empty");
  if (dims.empty() && shifts.size() == 1) {
    t = reshape(roll_one(reshape(x, {x->numel()}), shifts[0], 0), x->sizes);
  } else {
    if (dims.size() != shifts.size()) {
      fail("roll: shifts ", to_string(shifts), " and dims ", to_string(dims), " differ in length");
    }
    for (size_t i = 0; i < dims.size(); i++) {
      if (x->sizes.empty()) fail("roll: dim ", dims[i].guard(), " is none of a tensor of no dimensions");
      t = roll_one(t, shifts[i], wrap_dim(OpId::roll, dims[i].guard(), x->sizes.size()));
    }
  }
  return {apart(t, x)};
}

Results decompose_rot90(const Args& args) {
  Tensor x = args[0].tensor();
  check_rank(OpId::rot90, x, 2);
  const Sizes dims = args[2].is_none() ? Sizes{0, 1} : args[2].as<Sizes>();
  if (dims.size() != 2) fail("rot90: expected 2 dims, got ", to_string(dims));
  const int64_t a = wrap_dim(OpId::rot90, dims[0].guard(), x->sizes.size());
  const int64_t b = wrap_dim(OpId::rot90, dims[1].guard(), x->sizes.size());
  if (a == b) fail("rot90: dims must differ, got ", to_string(dims));
  const int64_t k = ((args[1].sym_int().guard() % 4) + 4) % 4;
  auto flip = [](const Tensor& t, Sizes d) { return op1(OpId::flip, {t, d}); };
  if (k == 2) return {flip(x, {a, b})};
  if (k != 0) return {transpose(flip(x, {k == 1 ? b : a}), int_arg(a), int_arg(b))};
  return {op1(OpId::clone, {x, std::string("contiguous_format")})};
}

Results decompose_movedim(const Args& args) {
  Tensor x = args[0].tensor();
  const Sizes &source = args[1].as<Sizes>(), &destination = args[2].as<Sizes>();
  const size_t rank = x->sizes.size();
  if (source.size() != destination.size()) {
    fail("movedim: source ", to_string(source), " and destination ", to_string(destination), " differ in length");
  }
  std::vector<int64_t> from_at(rank, -1);  // indexed by place in the result
  std::vector<bool> moved(rank, false);
  for (size_t i = 0; i < source.size(); i++) {
    const int64_t from = wrap_dim(OpId::movedim, source[i].guard(), rank);
    const int64_t to = wrap_dim(OpId::movedim, destination[i].guard(), rank);
    if (rank == 0) return {op1(OpId::alias, {x})};
    if (moved[size_t(from)]) fail("movedim: dim ", from, " appears twice in source ", to_string(source));
    if (from_at[size_t(to)] >= 0) fail("movedim: dim ", to, " appears twice in destination ", to_string(destination));
    moved[size_t(from)] = true, from_at[size_t(to)] = from;
  }
  size_t next = 0;
  Sizes order;
  for (size_t d = 0; d < rank; d++) {
    while (from_at[d] < 0 && moved[next]) next++;
    order.push_back(from_at[d] >= 0 ? from_at[d] : int64_t(next++));
  }
  return {permute(x, order)};
}

Results decompose_unflatten(const Args& args) {
  Tensor x = args[0].tensor();
  const int64_t dim = wrap_dim(OpId::unflatten, args[1].sym_int().guard(), x->sizes.size());
  const Sizes& into = args[2].as<Sizes>();
  if (into.empty()) fail("unflatten: sizes must not be empty");
  if (x->sizes.empty()) fail("unflatten: a tensor of no dimensions has no dim ", dim);
  Sizes whole = infer_size(OpId::unflatten, into, {x->sizes[size_t(dim)]}), shape;
  for (size_t d = 0; d < x->sizes.size(); d++) {
    if (int64_t(d) != dim) shape.push_back(x->sizes[d]);
    if (int64_t(d) != dim) continue;
    for (SymInt s : whole) shape.push_back(s);
  }
  return {view(x, shape)};
}

// -- diagonals
Results decompose_diag_embed(const Args& args) {
  Tensor x = args[0].tensor();
  check_rank(OpId::diag_embed, x, 1);
  const size_t rank = x->sizes.size() + 1;
  const SymInt offset = args[1].sym_int();
  const int64_t a = wrap_dim(OpId::diag_embed, args[2].sym_int().guard(), rank);
  const int64_t b = wrap_dim(OpId::diag_embed, args[3].sym_int().guard(), rank);
  if (a == b) fail("diag_embed: dim1 and dim2 must differ, got ", a, " for both");
  SymInt size = x->sizes.back() + (offset < 0 ? SymInt(0) - offset : offset);
  Sizes sizes;
  size_t next = 0;
  for (size_t d = 0; d < rank; d++) {
    sizes.push_back(int64_t(d) == a || int64_t(d) == b ? size : x->sizes[next++]);
  }
  Tensor zeros = full(sizes, 0.0, x->dtype, x->device());
  return {op1(OpId::diagonal_scatter, {zeros, x, vint(offset), int_arg(a), int_arg(b)})};
}

Results decompose_diag(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->sizes.size() == 1) return {op1(OpId::diag_embed, {x, args[1]})};
  if (x->sizes.size() != 2) fail("diag: expected a vector or a matrix, got shape ", to_string(x->sizes));
  return {op1(OpId::clone, {op1(OpId::diagonal, {x, args[1]}), std::string("contiguous_format")})};
}

Results decompose_diagflat(const Args& args) {
  Tensor x = args[0].tensor();
  return {op1(OpId::diag_embed, {reshape(x, {x->numel()}), args[1]})};
}

Results decompose_trace(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->sizes.size() != 2) fail("trace: expected a matrix, got shape ", to_string(x->sizes));
  return {sum_all(op1(OpId::diagonal, {x}))};
}

namespace {

// Returns input with src written to its diagonal. The view's strides are those of the result.
Tensor write_diagonal(Tensor base, const Tensor& src, const Args& view) {
  if (!base->is_contiguous() && !is_dense(base->sizes, base->strides)) base = op1(OpId::clone, {base});
  ResultSpec spec = info(OpId::diagonal).meta(OpId::diagonal, {base, view[2], view[3], view[4]})[0];
  Scalar offset = Scalar::of_sym(spec.offset - base->offset);
  return op1(OpId::as_strided_scatter, {base, to_dtype(src, base->dtype), spec.sizes, spec.strides, offset});
}

Tensor triangle(OpId op, const Args& args) {
  Tensor x = args[0].tensor();
  const size_t rank = x->sizes.size();
  Tensor rows = unsqueeze(counting(x->sizes[rank - 2], x), int_arg(1)), columns = counting(x->sizes[rank - 1], x);
  Tensor keep = op1(op == OpId::tril ? OpId::le : OpId::ge, {columns, add(rows, args[1])});
  return contiguous(where(keep, x, Scalar::of_bool(false)));
}

}  // namespace

// Writes through a view of a copy, so that the tape knows the gradient. The copy has the input's layout but starts at
// its first element. Strides and offset are those of the input's memory.
Results decompose_strided_scatter(const Args& args) {
  const Tensor x = args[0].tensor();
  Tensor copy;
  if (x->is_contiguous() || overlaps_itself(x)) {
    copy = op1(OpId::clone, {x});
  } else {
    copy = op1(OpId::empty_strided, {x->sizes, x->strides, x->dtype, x->device()});
    copy = call_inplace(OpId::copy_, {copy, x});
  }
  Value offset = int_arg(0);
  if (!args[4].is_none()) offset = vint(args[4].sym_int() - x->offset);
  const Tensor view = op1(OpId::as_strided, {copy, args[2], args[3], offset});
  if (!same_sizes(view->sizes, args[1].tensor()->sizes)) {
    fail("as_strided_scatter: src of shape ", to_string(args[1].tensor()->sizes), " does not have the size ",
         to_string(view->sizes));
  }
  call_inplace(OpId::copy_, {view, args[1]});
  return {copy};
}

Results decompose_diagonal_scatter(const Args& args) {
  return {write_diagonal(args[0].tensor(), args[1].tensor(), args)};
}
Results decompose_tril(const Args& args) { return {triangle(OpId::tril, args)}; }
Results decompose_triu(const Args& args) { return {triangle(OpId::triu, args)}; }

// -- padding
Results decompose_constant_pad_nd(const Args& args) {
  Tensor x = args[0].tensor(), kept = x;
  const Sizes& pad = args[1].as<Sizes>();
  ResultSpec out = info(OpId::constant_pad_nd).meta(OpId::constant_pad_nd, args)[0];
  SymInt offset = 0;
  for (size_t i = 0; i < pad.size() / 2; i++) {
    const size_t dim = x->sizes.size() - 1 - i;
    SymInt before = pad[2 * i], after = pad[2 * i + 1], size = x->sizes[dim];
    const bool cut_before = before < 0, cut_after = after < 0;
    if (cut_before || cut_after) {
      SymInt start = cut_before ? SymInt(0) - before : SymInt(0), end = cut_after ? size + after : size;
      kept = part(kept, int64_t(dim), start, end);
    }
    if (!cut_before) offset = offset + before * out.strides[dim];
  }
  if (kept->numel() == 0) return {op1(OpId::full, {out.sizes, args[2], x->dtype, x->device()})};
  // One value, which the scatter's copy repeats.
  const Tensor base = expand(op1(OpId::full, {Sizes(), args[2], x->dtype, x->device()}), out.sizes);
  return {op1(OpId::as_strided_scatter, {base, kept, kept->sizes, out.strides, Scalar::of_sym(offset)})};
}

namespace {

// The other modes of nn.functional.pad. Returns, for one dimension, the source position of each element of the result.
Tensor padded_positions(const std::string& mode, const Tensor& x, SymInt n, SymInt before, SymInt after) {
  Tensor at = sub(counting(n + before + after, x), Scalar::of_sym(before));
  Scalar last = Scalar::of_sym(n - 1);
  if (mode == "replicate") return op1(OpId::clamp, {at, int_arg(0), last});
  if (mode == "circular") {
    // Negative paddings cut first. The rest repeats.
    const SymInt cut = before < 0 ? SymInt(0) - before : SymInt(0), kept = n - cut + (after < 0 ? after : SymInt(0));
    return add(op1(OpId::remainder, {sub(at, Scalar::of_sym(cut)), Scalar::of_sym(kept)}), Scalar::of_sym(cut));
  }
  at = abs(at);
  return sub(last, abs(sub(at, last)));
}

// The most columns of a border that are parts of their own. A wider border is mirrored or repeated first.
constexpr int64_t kFewColumns = 4;

// Adds the columns of a border to `pieces`. Both paddings are at least 0.
void add_border(const std::string& mode, const Tensor& x, int64_t dim, SymInt width, bool left, List& pieces) {
  if (!(width > 0)) return;
  const SymInt n = x->sizes[size_t(dim)];
  if (mode == "circular") return pieces.push_back(left ? part(x, dim, n - width, n) : part(x, dim, 0, width));
  const bool few = width <= kFewColumns;
  for (int64_t i = 0; few && i < width.guard(); i++) {
    const SymInt column = mode == "replicate" ? (left ? SymInt(0) : n - 1) : left ? width - i : n - 2 - i;
    pieces.push_back(part(x, dim, column, column + 1));
  }
  if (few) return;
  if (mode == "reflect") {
    const Tensor inner = left ? part(x, dim, 1, width + 1) : part(x, dim, n - 1 - width, n - 1);
    return pieces.push_back(op1(OpId::flip, {inner, Sizes{dim}}));
  }
  Sizes wide = x->sizes;
  wide[size_t(dim)] = width;
  pieces.push_back(expand(left ? part(x, dim, 0, 1) : part(x, dim, n - 1, n), wide));
}

// Joins x with copies of its columns. It moves runs of elements, where positions would load each element on its own.
Tensor joined_padding(const std::string& mode, const Tensor& x, int64_t dim, SymInt before, SymInt after) {
  List pieces;
  add_border(mode, x, dim, before, true, pieces);
  pieces.push_back(x);
  add_border(mode, x, dim, after, false, pieces);
  return cat(pieces, dim);
}

}  // namespace

Results decompose_pad(const Args& args) {
  Tensor x = args[0].tensor();
  const Sizes& pad = args[1].as<Sizes>();
  const std::string& mode = args[2].as<std::string>();
  if (mode == "constant") {
    return {op1(OpId::constant_pad_nd, {x, pad, args[3].is_none() ? Value(Scalar(0.0)) : args[3]})};
  }
  const KnownNames modes = {"constant", "reflect", "replicate", "circular"};
  if (!modes.have(mode)) fail("pad: mode '", mode, "' is unknown", modes.expected(mode));
  if (!args[3].is_none() && args[3].as<Scalar>().to_double() != 0) {
    fail("pad: mode '", mode, "' takes no value, got ", to_string(args[3].as<Scalar>()));
  }
  const size_t dims = pad.size() / 2, rank = x->sizes.size();
  if (pad.size() % 2 || dims == 0 || dims > 3 || (rank != dims + 1 && rank != dims + 2)) {
    fail("pad: mode '", mode, "' pads the last 1, 2 or 3 dimensions of a tensor with 1 or 2 more, got pad ",
         to_string(pad), " and shape ", to_string(x->sizes));
  }
  for (size_t i = 0; i < dims; i++) {
    const size_t dim = rank - 1 - i;
    SymInt n = x->sizes[dim], before = pad[2 * i], after = pad[2 * i + 1];
    const bool fits = mode == "replicate" || (mode == "reflect" ? before < n && after < n : before <= n && after <= n);
    if (!fits) {
      fail("pad: mode '", mode, "' takes a padding ", mode == "reflect" ? "below" : "up to", " the size, got ",
           to_string(pad), " for shape ", to_string(x->sizes));
    }
    if (n + before + after <= 0) {
      fail("pad: pad ", to_string(pad), " leaves nothing of dim ", dim, " of shape ", to_string(x->sizes));
    }
  }
  // Outer dimensions come first: their rows are copied whole, while they are narrow.
  Tensor out = x;
  for (size_t i = dims; i-- > 0;) {
    const size_t dim = rank - 1 - i;
    SymInt before = pad[2 * i], after = pad[2 * i + 1];
    if (before == 0 && after == 0) continue;
    if (i == 0 && before >= 0 && after >= 0) {
      out = joined_padding(mode, out, int64_t(dim), before, after);
      continue;
    }
    Tensor at = padded_positions(mode, x, x->sizes[dim], before, after);
    out = index_select(out, int_arg(int64_t(dim)), at);
  }
  return {out};
}

// -- pixels and channels
namespace {
// Splits the last three dimensions (channels, height, width) of x into five, permutes these, and joins them to three.
// The lists are for these dimensions only.
Tensor rearranged(const Tensor& x, std::initializer_list<SymInt> five, std::initializer_list<int64_t> order,
                  std::initializer_list<SymInt> three) {
  const size_t before = x->sizes.size() - 3;
  Sizes split, dims, joined;
  for (size_t d = 0; d < before; d++) {
    split.push_back(x->sizes[d]), dims.push_back(int64_t(d)), joined.push_back(x->sizes[d]);
  }
  for (SymInt s : five) split.push_back(s);
  for (int64_t d : order) dims.push_back(int64_t(before) + d);
  for (SymInt s : three) joined.push_back(s);
  return apart(reshape(permute(reshape(x, split), dims), joined), x);
}
}  // namespace

Results decompose_pixel_shuffle(const Args& args) {
  Tensor x = args[0].tensor();
  check_rank(OpId::pixel_shuffle, x, 3);
  const int64_t r = args[1].sym_int().guard(), rank = x->dim();
  if (r <= 0) fail("pixel_shuffle: upscale_factor must be positive, got ", r);
  SymInt c = x->sizes[size_t(rank - 3)], h = x->sizes[size_t(rank - 2)], w = x->sizes[size_t(rank - 1)];
  if (floor_mod(c, r * r) != 0) {
    fail("pixel_shuffle: ", c.hint, " channels cannot be divided by the square of upscale_factor ", r);
  }
  SymInt left = floor_div(c, r * r);
  return {rearranged(x, {left, SymInt(r), SymInt(r), h, w}, {0, 3, 1, 4, 2}, {left, h * SymInt(r), w * SymInt(r)})};
}

Results decompose_pixel_unshuffle(const Args& args) {
  Tensor x = args[0].tensor();
  check_rank(OpId::pixel_unshuffle, x, 3);
  const int64_t r = args[1].sym_int().guard(), rank = x->dim();
  if (r <= 0) fail("pixel_unshuffle: downscale_factor must be positive, got ", r);
  SymInt c = x->sizes[size_t(rank - 3)], h = x->sizes[size_t(rank - 2)], w = x->sizes[size_t(rank - 1)];
  if (floor_mod(h, r) != 0 || floor_mod(w, r) != 0) {
    fail("pixel_unshuffle: a picture of ", h.hint, " x ", w.hint, " cannot be divided by downscale_factor ", r);
  }
  return {rearranged(x, {c, floor_div(h, r), SymInt(r), floor_div(w, r), SymInt(r)}, {0, 2, 4, 1, 3},
                     {c * SymInt(r * r), floor_div(h, r), floor_div(w, r)})};
}

Results decompose_channel_shuffle(const Args& args) {
  Tensor x = args[0].tensor();
  check_rank(OpId::channel_shuffle, x, 3);
  const int64_t groups = args[1].sym_int().guard();
  SymInt c = x->sizes[1];
  if (groups <= 0) fail("channel_shuffle: groups must be positive, got ", groups);
  if (floor_mod(c, groups) != 0)
    fail("channel_shuffle: ", c.hint, " channels cannot be divided by ", groups, " groups");
  Sizes split = {x->sizes[0], groups, floor_div(c, groups)};
  for (size_t d = 2; d < x->sizes.size(); d++) split.push_back(x->sizes[d]);
  return {apart(reshape(transpose(reshape(x, split), int_arg(1), int_arg(2)), x->sizes), x)};
}

// -- differences
Results decompose_diff(const Args& args) {
  Tensor x = args[0].tensor();
  check_rank(OpId::diff, x, 1);
  const int64_t n = args[1].sym_int().guard();
  const int64_t dim = wrap_dim(OpId::diff, args[2].sym_int().guard(), x->sizes.size());
  if (n < 0) fail("diff: n must not be negative, got ", n);
  for (size_t i : {3, 4}) {
    if (args[i].is_none() || args[i].tensor()->dim() == x->dim()) continue;
    fail("diff: ", i == 3 ? "prepend" : "append", " must have as many dimensions as the input, got shapes ",
         to_string(args[i].tensor()->sizes), " and ", to_string(x->sizes));
  }
  List joined;
  if (!args[3].is_none()) joined.push_back(args[3].tensor());
  joined.push_back(x);
  if (!args[4].is_none()) joined.push_back(args[4].tensor());
  if (joined.size() > 1 && n > 0) x = cat(joined, dim);
  if (n == 0) return {op1(OpId::clone, {x})};
  for (int64_t i = 0; i < n; i++) {
    SymInt size = x->sizes[size_t(dim)];
    if (size == 0) break;
    Tensor right = part(x, dim, 1, size), left = part(x, dim, 0, size - 1);
    x = is_bool(x->dtype) ? op1(OpId::logical_xor, {right, left}) : sub(right, left);
  }
  return {x};
}

}  // namespace lutra
