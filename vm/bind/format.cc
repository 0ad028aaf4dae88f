// Formats a tensor as PyTorch does: one width and notation for all shown elements; all elements if there are at most
// 1000, else 3 at each edge; lines of 80 characters; suffixes for properties that are not the default.
#include "vm/bind/format.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "ops/defs/element.h"
#include "ops/grad/tape.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

constexpr int64_t kThreshold = 1000, kEdge = 3;
constexpr int kLineWidth = 80;
constexpr const char* kPrefix = "tensor(";

std::string printed(const char* format, double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char text[400];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

// Returns the part of t that is shown. For a large tensor on a GPU the edges are joined there, and only they are copied
// to the host.
Tensor shown(const Tensor& t) {
  if (t->device() == Device{} || t->numel().hint <= kThreshold) return t;
  const GradModeScope no_grad(false);
  Tensor out = t;
  for (int64_t d = 0; d < t->dim(); d++) {
    const int64_t n = t->sizes[size_t(d)].hint;
    if (n <= 2 * kEdge) continue;
    const auto part = [&](int64_t from, int64_t to) {
      return op1(OpId::slice, {out, Scalar::of_int(d), Scalar::of_int(from), Scalar::of_int(to), Scalar::of_int(1)});
    };
    out = op1(OpId::cat, {std::vector<Tensor>{part(0, kEdge), part(n - kEdge, n)}, Scalar::of_int(d)});
  }
  return out;
}

// The notation of a tensor's numbers. It is the same for all and depends on the largest and the smallest one.
struct Style {
  bool whole = true, scientific = false;
  double least = INFINITY, most = 0;
  size_t width = 1;

  void look_at(double v) {
    if (v == 0 || !std::isfinite(v)) return;
    least = std::min(least, std::fabs(v)), most = std::max(most, std::fabs(v));
    if (v != std::ceil(v)) whole = false;
  }
  void choose() { scientific = most != 0 && (most / least > 1000.0 || most > 1.0e8 || least < 1.0e-4); }
  void widen(double v) {
    if (most != 0 && v != 0 && std::isfinite(v)) width = std::max(width, text(v).size());
  }
  std::string text(double v) const {
    if (scientific) return printed("%.4e", v);
    if (!whole) return printed("%.4f", v);
    return printed("%.0f", v) + (std::isfinite(v) ? "." : "");
  }
};

struct Printer {
  Tensor t;
  Elements elements;
  bool summarise;
  Style real, imag;

  explicit Printer(const Tensor& tensor)
      : t(tensor), elements(shown(tensor)), summarise(t->numel().hint > kThreshold) {}

  // Calls f for the positions along dim that are shown, among the elements that were copied. A gap follows position
  // kEdge - 1 if cut(dim).
  bool cut(size_t dim) const { return summarise && t->sizes[dim].hint > 2 * kEdge; }
  template <class F>
  void each_shown(size_t dim, F f) const {
    const int64_t n = elements.size(dim);
    for (int64_t i = 0; i < n; ++i) {
      if (cut(dim) && i == kEdge) i = n - kEdge;
      f(i);
    }
  }
  template <class F>
  void visit(size_t dim, int64_t offset, const F& f) const {
    if (dim == t->sizes.size()) return f(elements.at(offset));
    each_shown(dim, [&](int64_t i) { visit(dim + 1, offset + i * elements.stride(dim), f); });
  }

  void choose() {
    if (is_integral(t->dtype)) {
      return visit(0, 0, [&](const Scalar& s) { real.width = std::max(real.width, text(s).size()); });
    }
    visit(0, 0, [&](const Scalar& s) { real.look_at(s.d), imag.look_at(s.im); });
    real.choose(), imag.choose();
    visit(0, 0, [&](const Scalar& s) { real.widen(s.d), imag.widen(s.im); });
  }

  size_t width() const { return real.width + (is_complex(t->dtype) ? imag.width + 1 : 0); }

  std::string text(const Scalar& s) const {
    if (s.kind == Scalar::kBool) return s.i ? "True" : "False";
    return s.kind == Scalar::kNumber ? real.text(s.d) : to_string(s);
  }

  // Pads a number; of a complex one only the real part.
  std::string padded(const Scalar& s) const {
    std::string out = text(s);
    if (out.size() < real.width) out.insert(0, real.width - out.size(), ' ');
    if (!s.is_complex) return out;
    const std::string second = imag.text(s.im);
    return out + (second[0] == '-' ? "" : "+") + second + "j";
  }

  std::string vector(int64_t offset, size_t dim, int indent) const {
    const size_t per_line = std::max<int>(1, (kLineWidth - indent) / int(width() + 2));
    std::vector<std::string> items;
    each_shown(dim, [&](int64_t i) {
      items.push_back(padded(elements.at(offset + i * elements.stride(dim))));
      if (cut(dim) && i == kEdge - 1) items.push_back(" ...");
    });
    std::string out = "[";
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      out += items[i];
    }
    return out + "]";
  }

  std::string nested(size_t dim, int64_t offset, int indent) const {
    const size_t left = t->sizes.size() - dim;
    if (left == 0) return padded(elements.at(offset));
    if (left == 1) return vector(offset, dim, indent);
    const std::string between = "," + std::string(left - 1, '\n') + std::string(indent + 1, ' ');
    std::string out;
    each_shown(dim, [&](int64_t i) {
      out += (out.empty() ? "" : between) + nested(dim + 1, offset + i * elements.stride(dim), indent + 1);
      if (cut(dim) && i == kEdge - 1) out += between + "...";
    });
    return "[" + out + "]";
  }
};

std::vector<std::string> suffixes(const Tensor& t) {
  std::vector<std::string> out;
  const bool empty = t->numel().hint == 0;
  if (t->device().type != DeviceType::kCPU) out.push_back("device='" + to_string(t->device()) + "'");
  if (empty && t->dim() != 1) {
    std::string size = "size=(";
    for (size_t d = 0; d < t->sizes.size(); ++d) size += (d ? ", " : "") + std::to_string(t->sizes[d].hint);
    out.push_back(size + ")");
  }
  const auto is_one_of = [&](std::initializer_list<DType> list) {
    return std::count(list.begin(), list.end(), t->dtype);
  };
  const bool known =
      t->dtype == DType::kFloat32 || (!empty && is_one_of({DType::kInt64, DType::kBool, DType::kComplex64}));
  if (!known) out.push_back(std::string("dtype=") + name(t->dtype));
  if (const std::string fn = grad_fn_name(t); !fn.empty()) {
    out.push_back("grad_fn=<" + fn + ">");
  } else if (t->requires_grad) {
    out.push_back("requires_grad=True");
  }
  return out;
}

// Appends the suffixes to the last line while they fit, else on lines of their own.
std::string with_suffixes(std::string text, const std::vector<std::string>& list) {
  const size_t newline = text.rfind('\n'), indent = std::char_traits<char>::length(kPrefix);
  size_t line = newline == std::string::npos ? text.size() + 2 : text.size() - newline + 1;
  for (const std::string& suffix : list) {
    // PyTorch writes "torch." before a dtype; counting it makes lines break at the same places.
    const size_t width = suffix.size() + (suffix.rfind("dtype=", 0) == 0 ? 6 : 0);
    if (line + width + 2 > size_t(kLineWidth)) {
      text += ",\n" + std::string(indent, ' ') + suffix;
      line = indent + width;
    } else {
      text += ", " + suffix;
      line += width + 2;
    }
  }
  return text + ")";
}

}  // namespace

std::string grad_fn_name(const Tensor& t) {
  if (!t->autograd || !t->autograd->grad_fn) return "";
  const std::string op = t->autograd->grad_fn->name();
  static const char* const kOthers[][2] = {{"to_dtype", "ToCopy"}, {"max_dim", "Max"}, {"min_dim", "Min"}};
  for (const auto& row : kOthers) {
    if (op == row[0]) return std::string(row[1]) + "Backward0";
  }
  if (std::any_of(op.begin(), op.end(), [](unsigned char c) { return std::isupper(c); })) return op;
  std::string out;
  for (size_t i = 0; i < op.size(); ++i) {
    if (op[i] != '_') out += i == 0 || op[i - 1] == '_' ? char(std::toupper(op[i])) : op[i];
  }
  return out + "Backward0";
}

std::string format_tensor(const Tensor& t) {
  if (t->storage && t->storage->freed) return "tensor(<freed>)";
  need_data("tostring", t);
  if (t->numel().hint == 0) return with_suffixes(std::string(kPrefix) + "[]", suffixes(t));
  Printer printer(t);
  printer.choose();
  return with_suffixes(kPrefix + printer.nested(0, 0, int(std::char_traits<char>::length(kPrefix))), suffixes(t));
}

}  // namespace lutra
