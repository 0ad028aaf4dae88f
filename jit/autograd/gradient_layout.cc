// Sorts a gradient's dims from the innermost outwards, and describes the gaps between their elements. Dims of stride 0
// repeat the same elements.
#include "jit/autograd/gradient_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "ops/defs/control.h"

namespace lutra {
namespace {

// A dim's stride in terms of the span of the dims within it: a multiple of the span, or the span and `more`.
struct Step {
  size_t dim;
  int64_t spans = 1, more = 0;
};

struct Order {
  std::vector<Step> steps;
  std::vector<size_t> repeated;
};

// A dim of size 1 may have any stride, and so may all dims of an empty tensor. Returns nothing if elements overlap
// other than by stride 0.
std::optional<Order> order_of(const Tensor& t) {
  std::vector<size_t> dims(t->sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::reverse(dims.begin(), dims.end());
  const bool empty = std::any_of(t->sizes.begin(), t->sizes.end(), [](const SymInt& n) { return n.hint == 0; });
  const auto stride_of = [&](size_t d) { return t->strides[d].hint; };
  if (!empty)
    std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return stride_of(a) < stride_of(b); });
  Order order;
  int64_t span = 1;
  for (const size_t d : dims) {
    const int64_t size = t->sizes[d].hint, stride = stride_of(d);
    if (empty || size == 1) {
      order.steps.push_back({d});
    } else if (stride == 0) {
      order.repeated.push_back(d);
    } else if (stride < span) {
      return {};
    } else {
      const bool whole = stride % span == 0;
      order.steps.push_back({d, whole ? stride / span : 1, whole ? 0 : stride - span});
      span = stride * size;
    }
  }
  return order;
}

}  // namespace

bool is_symbolic(const Sizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const SymInt& n) { return !n.is_constant(); });
}

std::string layout_of(const Tensor& gradient) {
  const std::optional<Order> order = order_of(gradient);
  if (!order) return to_string(gradient->strides);
  std::string text = "(";
  for (const Step& s : order->steps) {
    text += str(s.dim, s.spans > 1 ? str("*", s.spans) : "", s.more ? str("+", s.more) : "", " ");
  }
  text += ",";
  for (const size_t d : order->repeated) text += str(" ", d);
  return text + ")";
}

bool has_gaps(const Tensor& gradient) {
  const std::optional<Order> order = order_of(gradient);
  return order &&
         std::any_of(order->steps.begin(), order->steps.end(), [](const Step& s) { return s.spans > 1 || s.more > 0; });
}

Sizes strides_like(const Sizes& sizes, const Tensor& gradient) {
  const std::optional<Order> order = order_of(gradient);
  if (!order || !is_symbolic(sizes)) return gradient->strides;
  Sizes strides = gradient->strides;
  SymInt span = 1;
  for (const Step& s : order->steps) {
    strides[s.dim] = span * s.spans + s.more;
    span = strides[s.dim] * sizes[s.dim];
  }
  return strides;
}

Tensor said_by_sizes(const Tensor& gradient, const Sizes& sizes) {
  return !gradient || !is_symbolic(sizes) || order_of(gradient) ? gradient : contiguous_copy(gradient);
}

}  // namespace lutra
