// Decomposes products of matrices, vectors and tensors of more dimensions into mm, bmm and sums.
#include <algorithm>
#include <cmath>
#include <optional>

#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_rank(OpId op, const char* what, const Tensor& t, size_t rank) {
  if (t->sizes.size() == rank) return;
  fail(name(op), ": '", what, "' must have ", rank, rank == 1 ? " dimension" : " dimensions", ", got shape ",
       to_string(t->sizes));
}

void check_same(OpId op, const Tensor& a, const Tensor& b) {
  if (a->dtype == b->dtype) return;
  fail(name(op), ": expected both tensors of one dtype, got ", name(a->dtype), " and ", name(b->dtype));
}

[[noreturn]] void unequal(OpId op, const Tensor& a, const Tensor& b, SymInt m, SymInt n) {
  fail(name(op), ": shapes ", to_string(a->sizes), " and ", to_string(b->sizes), " cannot be multiplied (", m.hint,
       " != ", n.hint, ")");
}

// Truncates a factor of integers to a whole number, as in PyTorch.
Value factor(OpId op, const char* argument, DType dtype, const Value& v) {
  const Scalar& s = v.as<Scalar>();
  if (is_float(dtype) || s.kind != Scalar::kNumber || s.is_whole()) return v;
  const double d = pin(s).to_double();
  if (!std::isfinite(d)) fail(name(op), ": ", argument, " ", d, " cannot be converted to ", name(dtype));
  return Scalar::of_int(int64_t(d));
}

// Returns beta * input + alpha * product. If beta is 0, input is not read, not even a NaN, and its gradient is zeros.
Tensor blend(OpId op, const Value& input, Tensor product, Value beta, Value alpha) {
  Tensor t = input.tensor();
  check_same(op, t, product);
  if (op != OpId::addr) {
    beta = factor(op, "beta", t->dtype, beta), alpha = factor(op, "alpha", t->dtype, alpha);
  }
  product = scaled(product, alpha.as<Scalar>());
  const Tensor wide = same_sizes(t->sizes, product->sizes) ? t : expand(t, product->sizes);
  if (scalar_ask(SymCmp::kEq, beta.as<Scalar>(), Scalar(0.0))) {
    if (!grad_enabled() || !t->requires_grad) return product;
    return where(full({}, Scalar::of_bool(true), DType::kBool, t->device()), product, wide);
  }
  return add(scaled(wide, beta.as<Scalar>()), product);
}

Tensor matmul(const Tensor& a, const Tensor& b) { return op1(OpId::matmul, {a, b}); }

}  // namespace

// (input, a, b, beta, alpha)
Results decompose_addmm(const Args& args) {
  check_rank(OpId::addmm, "mat1", args[1].tensor(), 2), check_rank(OpId::addmm, "mat2", args[2].tensor(), 2);
  return {blend(OpId::addmm, args[0], mm(args[1], args[2]), args[3], args[4])};
}

Results decompose_baddbmm(const Args& args) {
  check_rank(OpId::baddbmm, "batch1", args[1].tensor(), 3), check_rank(OpId::baddbmm, "batch2", args[2].tensor(), 3);
  return {blend(OpId::baddbmm, args[0], bmm(args[1], args[2]), args[3], args[4])};
}

// Sums over the batch by joining it to the inner dimension.
Results decompose_addbmm(const Args& args) {
  Tensor a = args[1].tensor(), b = args[2].tensor();
  check_rank(OpId::addbmm, "batch1", a, 3), check_rank(OpId::addbmm, "batch2", b, 3);
  if (a->sizes[0] != b->sizes[0]) unequal(OpId::addbmm, a, b, a->sizes[0], b->sizes[0]);
  if (a->sizes[2] != b->sizes[1]) unequal(OpId::addbmm, a, b, a->sizes[2], b->sizes[1]);
  Tensor left = reshape(permute(a, Sizes{1, 0, 2}), {a->sizes[1], a->sizes[0] * a->sizes[2]});
  Tensor right = reshape(b, {b->sizes[0] * b->sizes[1], b->sizes[2]});
  return {blend(OpId::addbmm, args[0], mm(left, right), args[3], args[4])};
}

Results decompose_addmv(const Args& args) {
  return {blend(OpId::addmv, args[0], op1(OpId::mv, {args[1], args[2]}), args[3], args[4])};
}

namespace {
bool is_whole(const Value& v) { return v.as<Scalar>().is_whole(); }
}  // namespace

Results decompose_addr(const Args& args) {
  Tensor a = args[1].tensor(), b = args[2].tensor();
  check_rank(OpId::addr, "vec1", a, 1), check_rank(OpId::addr, "vec2", b, 1);
  Tensor product = mul(unsqueeze(a, int_arg(1)), b);
  Tensor input = args[0].tensor();
  if (is_bool(input->dtype) && is_bool(product->dtype) && is_whole(args[3]) && is_whole(args[4])) {
    const auto counts = [](const Value& v) {
      return scalar_ask(SymCmp::kEq, v.as<Scalar>(), Scalar(0.0)) ? vnum(0) : vnum(1);
    };
    const Value beta = counts(args[3]), alpha = counts(args[4]);
    return {
        ne(blend(OpId::addr, to_dtype(input, DType::kInt64), to_dtype(product, DType::kInt64), beta, alpha), vnum(0))};
  }
  DType type = promote_types(input->dtype, product->dtype);
  for (size_t i : {3, 4}) {
    if (is_float(type) || is_whole(args[i])) continue;
    fail("addr: ", i == 3 ? "beta" : "alpha", " must not be a fraction for ", name(type), " tensors");
  }
  return {blend(OpId::addr, to_dtype(input, type), to_dtype(product, type), args[3], args[4])};
}

Results decompose_mv(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  check_rank(OpId::mv, "input", a, 2), check_rank(OpId::mv, "vec", b, 1);
  return {matmul(a, b)};
}

namespace {

Tensor dot(OpId op, const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  check_dot(op, a, b);
  return op1(OpId::sum, {mul(a, b), Value(), false, a->dtype});
}

Tensor outer(OpId op, const Args& args) {
  check_rank(op, "input", args[0].tensor(), 1), check_rank(op, "vec2", args[1].tensor(), 1);
  return mul(unsqueeze(args[0], int_arg(1)), args[1]);
}

}  // namespace

Results decompose_dot(const Args& args) { return {dot(OpId::dot, args)}; }
Results decompose_vdot(const Args& args) { return {dot(OpId::vdot, args)}; }
Results decompose_outer(const Args& args) { return {outer(OpId::outer, args)}; }

Results decompose_inner(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  if (a->dim() == 0 || b->dim() == 0) return {mul(a, b)};
  if (a->sizes.back() != b->sizes.back()) {
    fail("inner: the last dimensions must have one size, got shapes ", to_string(a->sizes), " and ",
         to_string(b->sizes));
  }
  return {op1(OpId::tensordot, {a, b, Sizes{-1}, Sizes{-1}})};
}

// -- tensordot: the summed dimensions become the last of a and the first of b
Results decompose_tensordot(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  const Sizes &da = args[2].as<Sizes>(), &db = args[3].as<Sizes>();
  if (da.size() != db.size()) {
    fail("tensordot: dims ", to_string(da), " and ", to_string(db), " differ in length");
  }
  check_same(OpId::tensordot, a, b);
  std::vector<int64_t> sa, sb;
  for (size_t i = 0; i < da.size(); i++) {
    sa.push_back(wrap_dim(OpId::tensordot, da[i].guard(), a->sizes.size()));
    sb.push_back(wrap_dim(OpId::tensordot, db[i].guard(), b->sizes.size()));
    SymInt m = a->sizes[size_t(sa.back())], n = b->sizes[size_t(sb.back())];
    if (m == n) continue;
    if (m == 1 || n == 1) {
      // If one size is 1, the other tensor is summed along its dimension first.
      if (m == 1) b = op1(OpId::sum, {b, Sizes{sb.back()}, true, b->dtype});
      if (n == 1) a = op1(OpId::sum, {a, Sizes{sa.back()}, true, a->dtype});
      continue;
    }
    unequal(OpId::tensordot, a, b, m, n);
  }
  auto has = [](const std::vector<int64_t>& list, int64_t d) { return std::count(list.begin(), list.end(), d) > 0; };
  Sizes order_a, order_b, out;
  SymInt rows = 1, columns = 1, summed = 1;
  for (int64_t d = 0; d < a->dim(); d++) {
    if (has(sa, d)) continue;
    order_a.push_back(d), out.push_back(a->sizes[size_t(d)]);
    rows = rows * a->sizes[size_t(d)];
  }
  for (int64_t d : sa) order_a.push_back(d), summed = summed * a->sizes[size_t(d)];
  for (int64_t d : sb) order_b.push_back(d);
  for (int64_t d = 0; d < b->dim(); d++) {
    if (has(sb, d)) continue;
    order_b.push_back(d), out.push_back(b->sizes[size_t(d)]);
    columns = columns * b->sizes[size_t(d)];
  }
  if (order_a.size() != a->sizes.size() || order_b.size() != b->sizes.size()) {
    fail("tensordot: a dim appears twice in ", to_string(da), " or ", to_string(db));
  }
  Tensor left = reshape(permute(a, order_a), {rows, summed}), right = reshape(permute(b, order_b), {summed, columns});
  return {reshape(mm(left, right), out)};
}

Results decompose_kron(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  const size_t rank = std::max(a->sizes.size(), b->sizes.size());
  Sizes wide_a, wide_b, out;
  for (size_t d = 0; d < rank; d++) {
    auto size = [&](const Tensor& t) {
      const size_t skip = rank - t->sizes.size();
      return d < skip ? SymInt(1) : t->sizes[d - skip];
    };
    wide_a.push_back(size(a)), wide_a.push_back(1);
    wide_b.push_back(1), wide_b.push_back(size(b));
    out.push_back(size(a) * size(b));
  }
  return {reshape(mul(reshape(a, wide_a), reshape(b, wide_b)), out)};
}

// Returns x1 W x2 for each of W's matrices.
Results decompose_bilinear(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor(), w = args[2].tensor();
  check_rank(OpId::bilinear, "weight", w, 3);
  bool fits = a->dim() == b->dim() && a->dim() > 0;
  for (int64_t d = 0; fits && d + 1 < a->dim(); d++) fits = a->sizes[size_t(d)] == b->sizes[size_t(d)];
  if (!fits || a->sizes.back() != w->sizes[1] || b->sizes.back() != w->sizes[2]) {
    fail("bilinear: inputs of shapes ", to_string(a->sizes), " and ", to_string(b->sizes),
         " do not fit a weight of shape ", to_string(w->sizes));
  }
  for (const Tensor& t : {b, w, args[3].tensor()}) {
    if (t && t->dtype != a->dtype) {
      fail("bilinear: expected tensors of one dtype, got ", name(a->dtype), " and ", name(t->dtype));
    }
  }
  Sizes out(a->sizes.begin(), a->sizes.end() - 1);
  SymInt n = numel(out), in1 = w->sizes[1], in2 = w->sizes[2], features = w->sizes[0];
  out.push_back(features);
  Tensor right = reshape(permute(w, Sizes{1, 0, 2}), {in1, features * in2});
  Tensor half = reshape(mm(reshape(a, {n, in1}), right), {n, features, in2});
  Tensor r = reshape(bmm(half, reshape(b, {n, in2, 1})), out);
  return {args[3].is_none() ? r : add(r, args[3])};
}

Results decompose_linalg_vecdot(const Args& args) {
  const Tensor a = args[0].tensor(), b = args[1].tensor();
  check_same(OpId::linalg_vecdot, a, b);
  if (!is_float(a->dtype)) fail("linalg_vecdot: not defined for ", name(a->dtype), " tensors");
  Tensor products = mul(a, b);
  return {op1(OpId::sum, {products, Sizes{args[2].sym_int()}, false, products->dtype})};
}

// -- multi_dot: multiplies in the order that takes the fewest multiplications
Results decompose_linalg_multi_dot(const Args& args) {
  const OpId op = OpId::linalg_multi_dot;
  std::vector<Tensor> list = args[0].as<std::vector<Tensor>>();
  const size_t n = list.size();
  if (n < 2) fail(name(op), ": expects at least 2 tensors, got ", n);
  const bool row = list[0]->dim() == 1, column = list[n - 1]->dim() == 1;
  if (row) list[0] = unsqueeze(list[0], int_arg(0));
  if (column) list[n - 1] = unsqueeze(list[n - 1], int_arg(1));
  for (size_t i = 0; i < n; i++) {
    check_rank(op, "tensors", list[i], 2);
    if (i && list[i - 1]->sizes[1] != list[i]->sizes[0]) {
      unequal(op, list[i - 1], list[i], list[i - 1]->sizes[1], list[i]->sizes[0]);
    }
  }
  std::vector<double> p;
  for (const Tensor& t : list) p.push_back(n == 2 ? double(t->sizes[0].hint) : double(t->sizes[0].guard()));
  p.push_back(n == 2 ? 1 : double(list[n - 1]->sizes[1].guard()));
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> cut(n, std::vector<size_t>(n, 0));
  for (size_t length = 2; length <= n; length++) {
    for (size_t i = 0; i + length <= n; i++) {
      const size_t j = i + length - 1;
      cost[i][j] = HUGE_VAL;
      for (size_t k = i; k < j; k++) {
        const double c = cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1];
        if (c < cost[i][j]) cost[i][j] = c, cut[i][j] = k;
      }
    }
  }
  const auto product = [&](auto& self, size_t i, size_t j) -> Tensor {
    if (i == j) return list[i];
    return mm(self(self, i, cut[i][j]), self(self, cut[i][j] + 1, j));
  };
  Tensor r = product(product, 0, n - 1);
  Sizes out;
  if (!row) out.push_back(list[0]->sizes[0]);
  if (!column) out.push_back(list[n - 1]->sizes[1]);
  return {reshape(r, out)};
}

Results decompose_matrix_power(const Args& args) {
  Tensor x = args[0].tensor();
  int64_t n = args[1].sym_int().guard();
  if (x->dim() < 2 || x->sizes[size_t(x->dim() - 1)] != x->sizes[size_t(x->dim() - 2)]) {
    fail("matrix_power: expects square matrices, got shape ", to_string(x->sizes));
  }
  if (n < 0) fail("matrix_power: n must not be negative, got ", n, "; invert the matrix first");
  if (n == 0) {
    Sizes diagonal(x->sizes.begin(), x->sizes.end() - 1);
    return {op1(OpId::diag_embed, {full(diagonal, 1.0, x->dtype, x->device())})};
  }
  Tensor result, power = x;
  for (; n > 0; n /= 2) {
    if (n % 2) result = result ? matmul(result, power) : power;
    if (n > 1) power = matmul(power, power);
  }
  return {result.same(x) ? op1(OpId::clone, {x}) : result};
}

// -- einsum: every operand gets all labels as dimensions (of size 1 if it lacks a label). Operands are contracted from
// the left. A label that neither the result nor a later operand has is summed.
namespace {

constexpr int kLetters = 52;  // labels from there on stand for dimensions of "..."

int label_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  fail("einsum: '", std::string(1, c), "' is no label (letters are)");
}

// Returns the label as the equation writes it.
std::string label_text(int label) {
  if (label >= kLetters) return "...";
  return std::string(1, char(label < 26 ? 'A' + label : 'a' + label - 26));
}

struct Term {
  std::vector<int> labels;  // -1: the ellipsis
};

Term parse_term(const std::string& text) {
  Term term;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == ' ') continue;
    if (text[i] != '.') {
      term.labels.push_back(label_of(text[i]));
      continue;
    }
    if (text.compare(i, 3, "...") != 0) fail("einsum: '.' stands for nothing but '...' in '", text, "'");
    if (std::count(term.labels.begin(), term.labels.end(), -1)) fail("einsum: two '...' in '", text, "'");
    term.labels.push_back(-1);
    i += 2;
  }
  return term;
}

struct Equation {
  std::vector<Term> operands;
  std::optional<Term> result;
};

Equation parse_equation(const std::string& text, size_t operands) {
  Equation e;
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  if (arrow != std::string::npos) e.result = parse_term(text.substr(arrow + 2));
  for (size_t from = 0; from <= left.size();) {
    const size_t comma = std::min(left.find(',', from), left.size());
    e.operands.push_back(parse_term(left.substr(from, comma - from)));
    from = comma + 1;
  }
  if (e.operands.size() != operands) {
    fail("einsum: '", text, "' is for ", e.operands.size(), e.operands.size() == 1 ? " operand" : " operands", ", got ",
         operands, operands == 1 ? " tensor" : " tensors");
  }
  return e;
}

// Returns the labels of t's dimensions. The ellipsis becomes labels counted from its end.
std::vector<int> spelled(const Term& term, const Tensor& t, size_t number, int ellipsis) {
  std::vector<int> out;
  const bool dots = std::count(term.labels.begin(), term.labels.end(), -1) > 0;
  const auto named = int64_t(term.labels.size()) - dots;
  if (dots ? named > t->dim() : named != t->dim()) {
    fail("einsum: ", named, " labels do not fit operand ", number, " of shape ", to_string(t->sizes));
  }
  for (int label : term.labels) {
    if (label >= 0) out.push_back(label);
    if (label >= 0) continue;
    const int64_t covered = t->dim() - named;
    for (int64_t k = 0; k < covered; k++) out.push_back(kLetters + ellipsis - int(covered - k));
  }
  return out;
}

// Replaces dimensions with repeated labels by their diagonal.
Tensor take_diagonals(Tensor t, std::vector<int>& labels) {
  for (size_t i = 0; i < labels.size(); i++) {
    for (size_t j = i + 1; j < labels.size(); j++) {
      if (labels[i] != labels[j]) continue;
      if (t->sizes[i] != t->sizes[j]) {
        fail("einsum: label '", label_text(labels[i]), "' has sizes ", t->sizes[i].hint, " and ", t->sizes[j].hint,
             " in one operand");
      }
      t = op1(OpId::diagonal, {t, int_arg(0), int_arg(int64_t(i)), int_arg(int64_t(j))});
      // The diagonal is the last dimension. Moves it to the place of i.
      Sizes order;
      for (int64_t d = 0; d + 1 < t->dim(); d++) order.push_back(d);
      order.insert(i, t->dim() - 1);
      t = permute(t, order);
      labels.erase(labels.begin() + long(j));
      j = i;
    }
  }
  return t;
}

// Returns t with one dimension for each of `all`, in their order.
Tensor aligned(const Tensor& t, const std::vector<int>& labels, const std::vector<int>& all) {
  Sizes order, sizes;
  for (int label : all) {
    auto it = std::find(labels.begin(), labels.end(), label);
    if (it != labels.end()) order.push_back(it - labels.begin());
    sizes.push_back(it != labels.end() ? t->sizes[size_t(it - labels.begin())] : SymInt(1));
  }
  return reshape(permute(t, order), sizes);
}

// A size of 1 has formulas of its own, which give other zeros (-0, not 0). So a guard keeps it apart.
bool is_one(SymInt s) { return s == 1; }

Tensor sum_kept(const Tensor& t, const Sizes& dims) {
  return dims.empty() ? t : op1(OpId::sum, {t, dims, true, t->dtype});
}

// Groups of dimensions of two aligned tensors, and the number of elements of each group.
struct Groups {
  Sizes both, left, right, inner;
  SymInt nb = 1, nl = 1, nr = 1, ni = 1;
};
// left holds the dimensions of size 1 in b, right those of size 1 in a.
Groups groups_of(const Tensor& a, const Tensor& b, const std::vector<bool>& summed) {
  Groups g;
  const auto has_no = [](SymInt size) { return size.is_constant() && size.hint == 1; };  // label, as far as is known
  for (size_t d = 0; d < summed.size(); d++) {
    const SymInt na = a->sizes[d], nb = b->sizes[d];
    const auto at = int64_t(d);
    if (summed[d]) {
      g.inner.push_back(at), g.ni = g.ni * na;
    } else if (has_no(nb) || (!has_no(na) && is_one(nb))) {
      g.left.push_back(at), g.nl = g.nl * na;
    } else if (is_one(na)) {
      g.right.push_back(at), g.nr = g.nr * nb;
    } else {
      g.both.push_back(at), g.nb = g.nb * na;
    }
  }
  return g;
}

Sizes joined(std::initializer_list<Sizes> groups) {
  Sizes out;
  for (const Sizes& g : groups) {
    for (SymInt d : g) out.push_back(d);
  }
  return out;
}

// Sums the product of two aligned tensors over `summed` by one bmm. Summed dimensions stay as ones.
Tensor contract(Tensor a, Tensor b, const std::vector<bool>& summed) {
  const size_t rank = a->sizes.size();
  Sizes only_a, only_b;
  bool product = false;
  for (size_t d = 0; d < rank; d++) {
    if (!summed[d]) continue;
    const bool one_a = is_one(a->sizes[d]), one_b = is_one(b->sizes[d]);
    if (one_b && !one_a) only_a.push_back(int64_t(d));
    if (one_a && !one_b) only_b.push_back(int64_t(d));
    product = product || (!one_a && !one_b);
  }
  a = sum_kept(a, only_a), b = sum_kept(b, only_b);
  if (!product) return mul(a, b);
  const Groups g = groups_of(a, b, summed);
  // Dimensions of size 1 go last.
  Tensor x = permute(a, joined({g.both, g.left, g.inner, g.right}));
  Tensor y = permute(b, joined({g.both, g.inner, g.right, g.left}));
  Tensor r = g.both.empty() ? mm(reshape(x, {g.nl, g.ni}), reshape(y, {g.ni, g.nr}))
                            : bmm(reshape(x, {g.nb, g.nl, g.ni}), reshape(y, {g.nb, g.ni, g.nr}));
  Sizes shape, now = joined({g.both, g.left, g.right, g.inner}), back(rank, SymInt(0));
  for (SymInt d : g.both) shape.push_back(a->sizes[size_t(d.hint)]);
  for (SymInt d : g.left) shape.push_back(a->sizes[size_t(d.hint)]);
  for (SymInt d : g.right) shape.push_back(b->sizes[size_t(d.hint)]);
  for (size_t i = 0; i < g.inner.size(); i++) shape.push_back(1);
  for (size_t i = 0; i < rank; i++) back[size_t(now[i].hint)] = int64_t(i);
  return permute(reshape(r, shape), back);
}

// Returns how many dimensions the longest ellipsis stands for.
int ellipsis_of(const Equation& e, const std::vector<Tensor>& list) {
  int ellipsis = 0;
  for (size_t i = 0; i < list.size(); i++) {
    const auto& labels = e.operands[i].labels;
    if (std::count(labels.begin(), labels.end(), -1)) {
      ellipsis = std::max(ellipsis, int(list[i]->dim()) - int(labels.size()) + 1);
    }
  }
  return ellipsis;
}

// Returns the result's labels: the written ones, else the ellipsis and the labels that occur once, in order.
std::vector<int> result_labels(const std::string& text, const Equation& e, const std::vector<int>& uses, int ellipsis) {
  std::vector<int> result;
  auto dots = [&] {
    for (int k = 0; k < ellipsis; k++) result.push_back(kLetters + k);
  };
  if (e.result) {
    for (int l : e.result->labels) l < 0 ? dots() : result.push_back(l);
  } else {
    dots();
    for (int l = 0; l < kLetters; l++) {
      if (uses[size_t(l)] == 1) result.push_back(l);
    }
  }
  for (size_t i = 0; i < result.size(); i++) {
    const std::string label = "einsum: label '" + label_text(result[i]) + "' ";
    if (std::count(result.begin(), result.end(), result[i]) > 1) fail(label, "is twice in the result of '", text, "'");
    if (result[i] < kLetters && !uses[size_t(result[i])]) {
      fail(label, "is in the result of '", text, "' but in no operand");
    }
  }
  return result;
}

// Checks that all dimensions of a label have the same size, or size 1.
void check_sizes(const std::string& text, const std::vector<std::vector<int>>& labels,
                 const std::vector<Tensor>& list) {
  for (size_t i = 0; i < list.size(); i++) {
    for (size_t d = 0; d < labels[i].size(); d++) {
      const SymInt size = list[i]->sizes[d];
      for (size_t k = 0; k < i; k++) {
        const auto at = std::find(labels[k].begin(), labels[k].end(), labels[i][d]) - labels[k].begin();
        if (size_t(at) == labels[k].size()) continue;
        const SymInt other = list[k]->sizes[size_t(at)];
        if (size == other || is_one(size) || is_one(other)) continue;
        fail("einsum: label '", label_text(labels[i][d]), "' of '", text, "' has size ", other.hint, " in operand ", k,
             " and ", size.hint, " in operand ", i);
      }
    }
  }
}

}  // namespace

Results decompose_einsum(const Args& args) {
  std::vector<Tensor> list = args[1].as<std::vector<Tensor>>();
  if (list.empty()) fail("einsum: expects at least one tensor");
  const std::string& text = args[0].as<std::string>();
  Equation e = parse_equation(text, list.size());
  const int ellipsis = ellipsis_of(e, list);
  std::vector<std::vector<int>> labels;
  std::vector<int> uses(size_t(kLetters + ellipsis), 0);
  for (size_t i = 0; i < list.size(); i++) {
    labels.push_back(spelled(e.operands[i], list[i], i, ellipsis));
    for (int l : labels.back()) uses[size_t(l)]++;
    list[i] = take_diagonals(list[i], labels.back());
  }
  check_sizes(text, labels, list);
  const std::vector<int> result = result_labels(text, e, uses, ellipsis);
  std::vector<int> all = result;
  for (int l = 0; l < kLetters + ellipsis; l++) {
    if (uses[size_t(l)] && !std::count(all.begin(), all.end(), l)) all.push_back(l);
  }
  for (size_t i = 0; i < list.size(); i++) list[i] = aligned(list[i], labels[i], all);
  // Sums each label at the last operand that has it.
  Tensor r = list[0];
  for (size_t i = 0; i < list.size(); i++) {
    std::vector<bool> summed(all.size(), false);
    Sizes now;
    for (size_t d = result.size(); d < all.size(); d++) {
      bool later = false;
      for (size_t k = i + 1; k < list.size(); k++) {
        later = later || std::count(labels[k].begin(), labels[k].end(), all[d]) > 0;
      }
      summed[d] = !later && (i == 0 || !is_one(r->sizes[d]) || !is_one(list[i]->sizes[d]));
      if (summed[d]) now.push_back(int64_t(d));
    }
    // A sum of a single integer operand becomes int64, as in sum.
    if (list.size() == 1 && !now.empty() && !is_float(r->dtype)) r = to_dtype(r, DType::kInt64);
    r = i == 0 ? sum_kept(r, now) : contract(r, list[i], summed);
  }
  Sizes shape(r->sizes.begin(), r->sizes.begin() + long(result.size()));
  return {reshape(r, shape)};
}

}  // namespace lutra
