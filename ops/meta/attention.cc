// Meta rules of attention.
#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_float(OpId op, const char* what, const Tensor& t) {
  if (!is_float(t->dtype)) fail(name(op), ": expected a floating point ", what, ", got ", name(t->dtype));
}

bool equal(SymInt a, SymInt b) { return a.hint == b.hint && a == b; }

// Describes a {batch, head, position, feature} tensor with positions outermost but for the batch: the layout that the
// next layer wants.
ResultSpec by_position(const Sizes& s, DType dtype) {
  ResultSpec spec;
  spec.sizes = s;
  spec.strides = {s[2] * s[1] * s[3], s[3], s[1] * s[3], 1};
  spec.dtype = dtype;
  return spec;
}

void check_mask(OpId op, const Tensor& q, const Tensor& mask, bool causal) {
  if (causal) fail(name(op), ": attn_mask and is_causal cannot both be given");
  if (!is_bool(mask->dtype) && mask->dtype != q->dtype && mask->dtype != DType::kFloat32) {
    fail(name(op), ": attn_mask must be bool, float32 or of the query's dtype ", name(q->dtype), ", got ",
         name(mask->dtype));
  }
}

// Broadcasts the sizes before the last two of q, k and v. With enable_gqa a head of k and v serves several of q.
Sizes leading(OpId op, const Tensor& q, const Tensor& k, const Tensor& v, bool gqa) {
  const auto lead = [](const Tensor& t) {
    Sizes s;
    for (size_t d = 0; d + 2 < t->sizes.size(); d++) s.push_back(t->sizes[d]);
    return s;
  };
  Sizes a = lead(q), b = lead(k), c = lead(v);
  if (gqa) {
    if (a.empty() || b.empty() || c.empty()) fail(name(op), ": enable_gqa needs a dimension of heads");
    for (Sizes* s : {&b, &c}) {
      const int64_t heads = a.back().guard(), shared = s->back().guard();
      if (shared == 0 || heads % shared) {
        fail(name(op), ": ", heads, " heads of the query cannot share ", shared, " heads of key and value");
      }
      s->back() = a.back();
    }
  }
  return broadcast(op, broadcast(op, a, b), c);
}

}  // namespace

void check_attention(OpId op, const Args& args) {
  const Tensor &q = args[0].as<Tensor>(), &k = args[1].as<Tensor>(), &v = args[2].as<Tensor>();
  for (size_t i = 0; i < 3; i++) {
    const Tensor& t = args[i].as<Tensor>();
    if (t->sizes.size() < 2) {
      fail(name(op), ": ", info(op).args[i].name, " must have at least 2 dimensions, got shape ", to_string(t->sizes));
    }
    check_float(op, info(op).args[i].name.c_str(), t);
    if (t->dtype != q->dtype) {
      fail(name(op), ": query, key and value must have one dtype, got ", name(q->dtype), " and ", name(t->dtype));
    }
  }
  const size_t nq = q->sizes.size(), nk = k->sizes.size(), nv = v->sizes.size();
  if (!equal(q->sizes[nq - 1], k->sizes[nk - 1])) {
    fail(name(op), ": query of shape ", to_string(q->sizes), " and key of shape ", to_string(k->sizes),
         " differ in their last dimension");
  }
  if (!equal(k->sizes[nk - 2], v->sizes[nv - 2])) {
    fail(name(op), ": key of shape ", to_string(k->sizes), " and value of shape ", to_string(v->sizes),
         " differ in the number of positions");
  }
  const double dropout = args[4].as<Scalar>().to_double();
  if (!(dropout >= 0 && dropout <= 1)) fail(name(op), ": dropout_p must be between 0 and 1, got ", dropout);
  Sizes scores = leading(op, q, k, v, args[7].as<bool>());
  if (args[3].is_none()) return;
  check_mask(op, q, args[3].as<Tensor>(), args[5].as<bool>());
  scores.push_back(q->sizes[nq - 2]), scores.push_back(k->sizes[nk - 2]);
  if (!same_sizes(broadcast(op, scores, args[3].as<Tensor>()->sizes), scores)) {
    fail(name(op), ": attn_mask of shape ", to_string(args[3].as<Tensor>()->sizes), " does not fit scores of shape ",
         to_string(scores));
  }
}

ResultSpecs meta_flash_attention(OpId op, const Args& args) {
  for (size_t i = 0; i < 3; i++) check_internal(op, args[i].as<Tensor>()->dim() == 4, "operands have 4 dimensions");
  const Tensor &q = args[0].as<Tensor>(), &v = args[2].as<Tensor>();
  const Sizes& s = q->sizes;
  return {by_position({s[0], s[1], s[2], v->sizes[3]}, q->dtype), contiguous_spec({s[0], s[1], s[2]}, DType::kFloat32)};
}

ResultSpecs meta_flash_attention_backward(OpId op, const Args& args) {
  for (size_t i = 0; i < 5; i++) check_internal(op, args[i].as<Tensor>()->dim() == 4, "operands have 4 dimensions");
  ResultSpecs specs;
  for (size_t i = 1; i <= 3; i++) {
    const Tensor& t = args[i].as<Tensor>();
    specs.push_back(by_position(t->sizes, t->dtype));
  }
  return specs;
}

}  // namespace lutra
