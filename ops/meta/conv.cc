// Meta rules of convolutions: PyTorch's conditions on sizes, and the results' sizes and memory formats.
#include "ops/meta/spatial.h"

namespace lutra {

Pair pair_of(OpId op, const char* argument, const Value& v, int dims, int64_t height) {
  const Sizes& list = v.as<Sizes>();
  if (list.size() != 1 && list.size() != size_t(dims)) {
    fail(name(op), ": ", argument, " must be a number or a list of ", dims, ", got ", to_string(list));
  }
  const int64_t last = list.back().guard();
  return {dims == 1 ? height : list[0].guard(), last};
}

bool is_channels_last(const Tensor& t) {
  if (t->dim() != 4) return false;
  // A row-major layout is never channels last. Comparing the expressions asks nothing.
  const Sizes rows = contiguous_strides(t->sizes);
  bool row_major = true;
  for (size_t d = 0; d < 4; d++) {
    row_major = row_major && rows[d].expr == t->strides[d].expr && rows[d].hint == t->strides[d].hint;
  }
  if (row_major) return false;
  SymInt least = 0;
  for (size_t d : {1, 3, 2, 0}) {
    if (t->sizes[d] == 0 || t->strides[d] < least) return false;
    if (d == 0 && least == t->strides[1]) return false;  // every layout fits {n, 1, 1, 1}
    least = t->strides[d];
    if (t->sizes[d] > 1) least = least * t->sizes[d];
  }
  return true;
}

bool is_contiguous_as(const Tensor& t, const std::string& format) {
  if (format != "channels_last" || t->dim() != 4) return format == "contiguous_format" && t->is_contiguous();
  const Sizes strides = channels_last_strides(t->sizes);
  for (SymInt s : t->sizes) {
    if (s == 0) return true;
  }
  for (size_t d = 0; d < 4; d++) {
    if (t->sizes[d] != 1 && t->strides[d] != strides[d]) return false;
  }
  return true;
}

Sizes channels_last_strides(const Sizes& s) { return {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]}; }

ResultSpec image_spec(const Sizes& sizes, bool channels_last, DType dtype) {
  ResultSpec spec = contiguous_spec(sizes, dtype);
  if (channels_last) spec.strides = channels_last_strides(sizes);
  return spec;
}

Sizes caller_sizes(const Sizes& s, int dims, bool batched) {
  Sizes out;
  if (batched) out.push_back(s[0]);
  out.push_back(s[1]);
  if (dims == 2) out.push_back(s[2]);
  out.push_back(s[3]);
  return out;
}

namespace {

bool is_transposed(OpId op) { return op == OpId::conv_transpose1d || op == OpId::conv_transpose2d; }

void check_positive(OpId op, const char* argument, const Pair& p, int64_t least) {
  if (p[0] < least || p[1] < least) {
    fail(name(op), ": ", argument, least ? " must be positive" : " must not be negative", ", got ",
         std::min(p[0], p[1]));
  }
}

// A list of 4 is {top, left, bottom, right}, one of 2 in one dimension is {left, right}: padding="same" may be uneven.
std::array<int64_t, 4> padding_of(OpId op, const Value& v, int dims) {
  const Sizes& list = v.as<Sizes>();
  std::array<int64_t, 4> p;
  if (dims == 2 && list.size() == 4) {
    for (size_t i = 0; i < 4; i++) p[i] = list[i].guard();
  } else if (dims == 1 && list.size() == 2) {
    p = {0, list[0].guard(), 0, list[1].guard()};
  } else {
    const Pair pair = pair_of(op, "padding", v, dims, 0);
    p = {pair[0], pair[1], pair[0], pair[1]};
  }
  check_positive(op, "padding", {std::min(p[0], p[2]), std::min(p[1], p[3])}, 0);
  return p;
}

void check_ranks(OpId op, const Tensor& x, const Tensor& w, int dims) {
  if (w->dim() != dims + 2) {
    fail(name(op), ": the weight must have ", dims + 2, " dimensions, got shape ", to_string(w->sizes));
  }
  if (x->dim() != dims + 2 && x->dim() != dims + 1) {
    fail(name(op), ": the input must have ", dims + 1, " (unbatched) or ", dims + 2,
         " (batched) dimensions, got shape ", to_string(x->sizes));
  }
}

void check_dtypes(OpId op, const Tensor& x, const Tensor& w, const Tensor& b) {
  if (is_bool(x->dtype)) fail(name(op), ": not defined for ", name(x->dtype), " tensors");
  if (x->dtype != w->dtype || (b && b->dtype != x->dtype)) {
    fail(name(op), ": expected input, weight and bias of one dtype, got ", name(x->dtype), ", ", name(w->dtype),
         b ? str(" and ", name(b->dtype)) : "");
  }
}

void check_channels(OpId op, const Tensor& x, const Tensor& w, const Tensor& b, const ConvCall& c) {
  if (c.groups <= 0) fail(name(op), ": groups must be positive, got ", c.groups);
  const SymInt channels = x->sizes[c.batched ? 1 : 0];
  if (floor_mod(w->sizes[0], c.groups) != 0 || w->sizes[0] < c.groups) {
    fail(name(op), ": a weight of shape ", to_string(w->sizes), " cannot be split into ", c.groups, " groups");
  }
  const SymInt wanted = c.transposed ? w->sizes[0] : w->sizes[1] * c.groups;
  if (channels != wanted) {
    fail(name(op), ": with groups=", c.groups, " a weight of shape ", to_string(w->sizes), " expects an input of ",
         wanted.hint, " channels, got ", channels.hint, " in shape ", to_string(x->sizes));
  }
  const SymInt made = c.transposed ? w->sizes[1] * c.groups : w->sizes[0];
  if (b && (b->dim() != 1 || b->sizes[0] != made)) {
    fail(name(op), ": the bias must have shape {", made.hint, "}, got ", to_string(b->sizes));
  }
}

SymInt conv_size(OpId op, SymInt in, SymInt kernel, int64_t before, int64_t after, int64_t stride, int64_t dilation) {
  if (kernel < 1) fail(name(op), ": the kernel must not be empty");
  const SymInt padded = in + (before + after), spans = (kernel - 1) * dilation + 1;
  if (padded < spans) {
    fail(name(op), ": the kernel (", spans.hint, " with dilation) is larger than the padded input (", padded.hint, ")");
  }
  return floor_div(padded - spans, stride) + 1;
}

}  // namespace

ConvCall conv_call(OpId op, const Args& args) {
  const Tensor &x = args[0].as<Tensor>(), &w = args[1].as<Tensor>();
  const Tensor b = args[2].tensor();
  ConvCall c{};
  c.dims = op == OpId::conv1d || op == OpId::conv_transpose1d ? 1 : 2;
  c.transposed = is_transposed(op);
  check_ranks(op, x, w, c.dims);
  check_dtypes(op, x, w, b);
  c.batched = x->dim() == c.dims + 2;
  c.stride = pair_of(op, "stride", args[3], c.dims, 1);
  c.padding = padding_of(op, args[4], c.dims);
  c.dilation = pair_of(op, "dilation", args[c.transposed ? 7 : 5], c.dims, 1);
  c.groups = args[6].sym_int().guard();
  check_positive(op, "stride", c.stride, 1);
  check_positive(op, "dilation", c.dilation, 1);
  check_channels(op, x, w, b, c);
  const SymInt kh = c.dims == 1 ? SymInt(1) : w->sizes[2], kw = w->sizes.back();
  const SymInt h = c.dims == 1 ? SymInt(1) : x->sizes[x->sizes.size() - 2], ww = x->sizes.back();
  const SymInt n = c.batched ? x->sizes[0] : SymInt(1);
  if (!c.transposed) {
    c.out = {n, w->sizes[0], conv_size(op, h, kh, c.padding[0], c.padding[2], c.stride[0], c.dilation[0]),
             conv_size(op, ww, kw, c.padding[1], c.padding[3], c.stride[1], c.dilation[1])};
    return c;
  }
  const Pair extra = pair_of(op, "output_padding", args[5], c.dims, 0);
  check_positive(op, "output_padding", extra, 0);
  const SymInt sizes[] = {h, ww}, kernel[] = {kh, kw};
  c.out = {n, w->sizes[1] * c.groups};
  for (size_t i = 0; i < 2; i++) {
    if (extra[i] >= std::max(c.stride[i], c.dilation[i])) {
      fail(name(op), ": output_padding must be smaller than stride or dilation, got ", extra[i]);
    }
    const SymInt out = (sizes[i] - 1) * c.stride[i] - (c.padding[i] + c.padding[i + 2]) +
                       (kernel[i] - 1) * c.dilation[i] + (extra[i] + 1);
    if (out < 1) fail(name(op), ": an input of shape ", to_string(x->sizes), " gives an empty result");
    c.out.push_back(out);
    c.padding[i + 2] -= extra[i];
  }
  return c;
}

ResultSpecs meta_conv(OpId op, const Args& args) {
  const ConvCall c = conv_call(op, args);
  const Tensor &x = args[0].as<Tensor>(), &w = args[1].as<Tensor>();
  const bool last = c.dims == 2 && c.batched && (is_channels_last(x) || is_channels_last(w));
  if (last) return {image_spec(c.out, true, x->dtype)};
  return {contiguous_spec(caller_sizes(c.out, c.dims, c.batched), x->dtype)};
}

ResultSpecs meta_conv_transpose(OpId op, const Args& args) { return meta_conv(op, args); }

namespace {
void check_images(OpId op, const Args& args) {
  for (size_t i = 0; i < 2; i++) check_internal(op, args[i].as<Tensor>()->dim() == 4, "operands have 4 dimensions");
}
}  // namespace

ResultSpecs meta_convolution(OpId op, const Args& args) {
  check_images(op, args);
  const Tensor &x = args[0].as<Tensor>(), &w = args[1].as<Tensor>();
  const Sizes &s = args[3].as<Sizes>(), &p = args[4].as<Sizes>(), &d = args[5].as<Sizes>();
  Sizes out = {x->sizes[0], w->sizes[0]};
  for (size_t i = 0; i < 2; i++) {
    out.push_back(conv_size(op, x->sizes[i + 2], w->sizes[i + 2], p[i].hint, p[i + 2].hint, s[i].hint, d[i].hint));
  }
  return {image_spec(out, is_channels_last(x) || is_channels_last(w), x->dtype)};
}

ResultSpecs meta_convolution_input(OpId op, const Args& args) {
  check_images(op, args);
  const Tensor &g = args[0].as<Tensor>(), &w = args[1].as<Tensor>();
  return {image_spec(args[2].as<Sizes>(), is_channels_last(g) || is_channels_last(w), g->dtype)};
}

ResultSpecs meta_convolution_weight(OpId op, const Args& args) {
  check_images(op, args);
  const Tensor& g = args[0].as<Tensor>();
  const Sizes& sizes = args[2].as<Sizes>();
  const SymInt channels = args[7].as<bool>() ? sizes[0] : SymInt(0);
  return {contiguous_spec(sizes, g->dtype), contiguous_spec({channels}, g->dtype)};
}

}  // namespace lutra
