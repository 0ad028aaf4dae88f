// A gradient's dense dims from the innermost outwards; those of stride 0 repeat what lies there.
#include "jit/autograd/gradient_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "ops/defs/control.h"

namespace lutra {
namespace {

struct Order {
  std::vector<size_t> dense, repeated;
};

// A size of 1 has any stride, and what is empty any strides.
std::optional<Order> order_of(const Tensor& t) {
  std::vector<size_t> dims(t->sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::reverse(dims.begin(), dims.end());
  const bool empty = std::any_of(t->sizes.begin(), t->sizes.end(), [](const SymInt& n) { return n.hint == 0; });
  if (empty) return Order{dims, {}};
  std::stable_sort(dims.begin(), dims.end(),
                   [&](size_t a, size_t b) { return t->strides[a].hint < t->strides[b].hint; });
  Order order;
  int64_t expected = 1;
  for (const size_t d : dims) {
    const int64_t size = t->sizes[d].hint, stride = t->strides[d].hint;
    if (stride == 0 && size != 1) {
      order.repeated.push_back(d);
      continue;
    }
    if (size != 1 && stride != expected) return {};
    order.dense.push_back(d);
    expected *= size;
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
  for (const size_t d : order->dense) text += str(d, " ");
  text += ",";
  for (const size_t d : order->repeated) text += str(" ", d);
  return text + ")";
}

Sizes strides_like(const Sizes& sizes, const Tensor& gradient) {
  const std::optional<Order> order = order_of(gradient);
  if (!order || !is_symbolic(sizes)) return gradient->strides;
  Sizes strides = gradient->strides;
  SymInt next = 1;
  for (const size_t d : order->dense) {
    strides[d] = next;
    next = next * sizes[d];
  }
  return strides;
}

Tensor said_by_sizes(const Tensor& gradient, const Sizes& sizes) {
  return !gradient || !is_symbolic(sizes) || order_of(gradient) ? gradient : contiguous_copy(gradient);
}

}  // namespace lutra
