// searchsorted, isin and histc: find for each element its place among others, whether it is one of them, or how many
// elements each range has.
#include <algorithm>
#include <bit>
#include <mutex>
#include <tuple>
#include <utility>

#include "ops/core/interrupt.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/order.h"
#include "ops/extern/cpu/strided.h"
#include "ops/extern/search_type.h"

namespace lutra {
namespace {

constexpr int64_t kGrain = 4096;  // elements that are worth a thread

// Returns the value as which an element of T is compared.
template <class T>
auto comparable(T v) {
  if constexpr (std::is_same_v<T, Bool8>) {
    return v.v;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return v;
  } else {
    return float(v);
  }
}

// Returns the first of n places whose boundary is not below v (right: above v). A NaN is above all.
template <class T, class At>
int64_t search(const At& boundary, int64_t n, T v, bool right) {
  int64_t low = 0, high = n;
  const auto value = comparable(v);
  while (low < high) {
    const int64_t mid = low + (high - low) / 2;
    const auto b = comparable(boundary(mid));
    if (right ? !(b > value) : !(b >= value)) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

// Does the same for each of `count` contiguous values, a few at a time: their steps do not wait for each other, and no
// branch depends on an element. It compares with the same boundaries.
template <bool kRight, class T, class Out>
void search_row(const T* boundaries, int64_t n, const T* values, int64_t count, Out* out) {
  constexpr int64_t kTogether = 8;
  const int steps = std::bit_width(uint64_t(n));
  for (int64_t first = 0; first < count; first += kTogether) {
    const int64_t here = std::min(kTogether, count - first);
    int64_t low[kTogether], left[kTogether];
    decltype(comparable(T())) value[kTogether];
    for (int64_t i = 0; i < kTogether; i++) {
      low[i] = 0, left[i] = n, value[i] = comparable(values[first + std::min(i, here - 1)]);
    }
    for (int s = 0; s < steps; s++) {
      for (int64_t i = 0; i < kTogether; i++) {
        const int64_t half = left[i] / 2, mid = std::min(low[i] + half, n - 1);
        const auto b = comparable(boundaries[mid]);
        const bool below = kRight ? !(b > value[i]) : !(b >= value[i]);
        const int64_t goes_on = -int64_t(below & (left[i] > 0));
        low[i] += (half + 1) & goes_on;
        left[i] = half ^ ((half ^ (left[i] - half - 1)) & goes_on);
      }
    }
    for (int64_t i = 0; i < here; i++) out[first + i] = Out(low[i]);
  }
}

void check_sorter(const ExternView& sorter, int64_t n) {
  each_element(sorter, [&](int64_t at) {
    const int64_t v = static_cast<const int64_t*>(sorter.data)[at];
    if (v < 0 || v >= n) {
      throw Error(ErrorKind::kData, str("searchsorted: the sorter has ", v, ", beyond the ", n, " boundaries"));
    }
  });
}

// A view of a dtype: the given one, or a contiguous copy.
struct Converted {
  std::vector<char> own;
  ExternView view;

  Converted(const ExternView& v, DType type) : view(v) {
    if (v.dtype == type || !v.data) return;
    own.resize(size_t(v.numel()) * size_of(type));
    view.data = own.data(), view.dtype = type;
    int64_t stride = 1;
    for (int d = v.dim; d-- > 0;) view.strides[d] = stride, stride *= v.sizes[d];
    with_element_type(v.dtype, [&]<class From>() {
      with_element_type(type, [&]<class To>() {
        To* to = reinterpret_cast<To*>(own.data());
        const From* from = static_cast<const From*>(v.data);
        each_element(v, [&](int64_t at) {
          if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
            *to++ = To(from[at]);
          } else {
            *to++ = element_of<To>(to_double(from[at]));
          }
        });
      });
    });
  }
};

template <class T, class Out>
void search_all(const ExternCall& call, const ExternView& sorted, const ExternView& input, const T* values, bool right,
                Out* out) {
  const ExternView& sorter = call.in.back();
  const int last = sorted.dim - 1;
  const int64_t n = sorted.sizes[last], each = input.dim ? input.sizes[input.dim - 1] : 1;
  if (sorter.data) check_sorter(sorter, n);
  const auto row_at = [&](int64_t i) { return sorted.dim > 1 ? i / each : 0; };
  const auto boundaries = [&](int64_t row) {
    return static_cast<const T*>(sorted.data) + offset_of(sorted, row, last);
  };
  const auto by_rows = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin, next; i < end; i = next) {
      next = sorted.dim > 1 ? std::min(end, (row_at(i) + 1) * each) : end;
      const T* b = boundaries(row_at(i));
      right ? search_row<true>(b, n, values + i, next - i, out + i)
            : search_row<false>(b, n, values + i, next - i, out + i);
    }
  };
  const auto one_by_one = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const T* b = boundaries(row_at(i));
      const T v = values[offset_of(input, i, input.dim)];
      if (sorter.data) {
        const auto* order = static_cast<const int64_t*>(sorter.data) + offset_of(sorter, row_at(i), last);
        const auto boundary = [&](int64_t k) { return b[order[k * sorter.strides[last]] * sorted.strides[last]]; };
        out[i] = Out(search<T>(boundary, n, v, right));
      } else {
        out[i] = Out(search<T>([&](int64_t k) { return b[k * sorted.strides[last]]; }, n, v, right));
      }
    }
  };
  const int64_t total = input.numel();
  const auto run = [&](const auto& body) { call.parallel ? call.parallel(total, kGrain, body) : body(0, total); };
  if (!sorter.data && sorted.strides[last] == 1 && is_contiguous(input))
    run(by_rows);
  else
    run(one_by_one);
}

// Calls body(begin, end) for pieces of the elements of call.in[0], on several threads if there are many.
template <class F>
void in_pieces(const ExternCall& call, int64_t grain, const F& body) {
  const int64_t n = call.in[0].numel();
  call.parallel ? call.parallel(n, grain, body) : body(0, n);
}

// Returns the least and the largest element. Both are NaN if an element is.
template <class T, class A>
std::pair<A, A> extremes(const ExternCall& call, const ExternView& in) {
  constexpr A infinity = std::numeric_limits<A>::infinity();
  std::mutex mutex;
  A low = infinity, high = -infinity;
  bool nan = false;
  in_pieces(call, kGrain, [&](int64_t begin, int64_t end) {
    each_row_within(in, begin, end, [&](int64_t at, int64_t count, int64_t stride) {
      const T* from = static_cast<const T*>(in.data) + at;
      A least = infinity, most = -infinity;
      bool none = false;
      for (int64_t i = 0; i < count; i++) {
        const A v(from[i * stride]);
        least = std::min(least, v), most = std::max(most, v), none |= v != v;
      }
      const std::lock_guard lock(mutex);
      low = std::min(low, least), high = std::max(high, most), nan |= none;
    });
  });
  if (nan) low = high = std::numeric_limits<A>::quiet_NaN();
  return {low, high};
}

}  // namespace

void run_searchsorted(const ExternCall& call) {
  const bool right = call.ints[1] != 0 || call.strings[0] == "right";
  const bool number = call.in.size() == 2;  // boundaries and sorter
  const DType own = call.in[0].dtype;
  const DType type = number ? number_search_type(own, call.scalars[0]) : promote_types(own, call.in[1].dtype);
  const Converted sorted(call.in[0], type), input(number ? ExternView() : call.in[1], type);
  with_element_type(type, [&]<class T>() {
    const T value = number ? element_of<T>(call.scalars[0]) : T();
    const T* values = number ? &value : static_cast<const T*>(input.view.data);
    const ExternView& out = call.out[0];
    if (out.dtype == DType::kInt32)
      search_all<T>(call, sorted.view, input.view, values, right, static_cast<int32_t*>(out.data));
    else
      search_all<T>(call, sorted.view, input.view, values, right, static_cast<int64_t*>(out.data));
  });
}

void run_isin(const ExternCall& call) {
  const ExternView &in = call.in[0], &tests = call.in[1], &out = call.out[0];
  const bool invert = call.ints[0] != 0;
  auto* to = static_cast<uint8_t*>(out.data);
  with_element_type(in.dtype, [&]<class T>() {
    using K = order::Key<T>;
    std::vector<K> keys;
    keys.reserve(size_t(tests.numel()));
    const T* test = static_cast<const T*>(tests.data);
    const auto is_nan = [](T v) { return comparable(v) != comparable(v); };
    each_element(tests, [&](int64_t at) {
      if (!is_nan(test[at])) keys.push_back(order::key(test[at]));
    });
    std::sort(keys.begin(), keys.end(), with_looks(std::less<K>()));
    keys.erase(std::unique(keys.begin(), keys.end(), with_looks(std::equal_to<K>())), keys.end());
    const T* from = static_cast<const T*>(in.data);
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const T v = from[offset_of(in, i, in.dim)];
        const bool found = !is_nan(v) && std::binary_search(keys.begin(), keys.end(), order::key(v));
        to[i] = found != invert;
      }
    };
    in_pieces(call, kGrain, body);
  });
}

// As in PyTorch: equal ranges from min to max (the elements' own extremes if both are 0). The last range is closed.
void run_histc(const ExternCall& call) {
  const ExternView in = with_joined_dims(call.in[0]), &out = call.out[0];
  const int64_t bins = out.sizes[0], n = in.numel();
  with_element_type(in.dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, Bool8>) {
      using A = typename Arithmetic<T>::type;
      A low = A(T(A(call.scalars[0]))), high = A(T(A(call.scalars[1])));
      if (low == high && n > 0) std::tie(low, high) = extremes<T, A>(call, in);
      if (low == high) low -= 1, high += 1;
      if (!std::isfinite(low) || !std::isfinite(high)) {
        throw Error(ErrorKind::kData, str("histc: the range from ", low, " to ", high, " is not finite"));
      }
      if (low > high) throw Error(ErrorKind::kData, "histc: max must not be less than min");
      std::vector<int64_t> counts(size_t(bins), 0);
      const auto count_into = [=, &in](int64_t* into, int64_t begin, int64_t end) {
        each_row_within(in, begin, end, [=, &in](int64_t at, int64_t count, int64_t stride) {
          const T* from = static_cast<const T*>(in.data) + at;
          for (int64_t i = 0; i < count; i++) {
            const A v(from[i * stride]);
            if (!(v >= low && v <= high)) continue;
            const A bin = (v - low) * A(bins) / (high - low);
            into[bin < A(bins - 1) ? int64_t(bin) : bins - 1]++;
          }
        });
      };
      std::mutex mutex;
      in_pieces(call, std::max(4 * kGrain, bins), [&](int64_t begin, int64_t end) {
        if (end - begin == n) return count_into(counts.data(), begin, end);
        std::vector<int64_t> own(size_t(bins), 0);
        count_into(own.data(), begin, end);
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < own.size(); i++) counts[i] += own[i];
      });
      for (int64_t i = 0; i < bins; i++) static_cast<T*>(out.data)[i] = T(A(counts[size_t(i)]));
    } else {
      fail_internal("histc of integers");
    }
  });
}

}  // namespace lutra
