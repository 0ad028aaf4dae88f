// Reductions: combines partial results of threads in the order of loop IR's halving tree. Invariant: of L partials,
// p[j] = of(p[j], p[j + w]) for w = L/2 .. 1, whichever thread holds them. A thread's array a holds lanes t*V + j of
// each T*V lanes, one after the other.
template <class T>
struct Limits {
  static inline T low() { return T(T(0) < T(-1) ? 0 : i64(1) << (8 * sizeof(T) - 1)); }
  static inline T high() { return T(~low()); }
};
template <>
struct Limits<float> {
  static inline float low() { return __uint_as_float(0xff800000u); }
  static inline float high() { return __uint_as_float(0x7f800000u); }
};
template <>
struct Limits<double> {
  static inline double low() { return __longlong_as_double(i64(0xfff0000000000000ull)); }
  static inline double high() { return __longlong_as_double(i64(0x7ff0000000000000ull)); }
};

struct Exact {
  template <class T>
  static inline T round(T x) {
    return x;
  }
};
struct F16 {
  static inline float round(float x) { return f16(x); }
};
struct BF16 {
  static inline float round(float x) { return bf16(x); }
};

template <class T, class R = Exact>
struct Sum {
  typedef T A;
  static constexpr bool kCommutes = true;
  static inline T none() { return T(0); }
  static inline T of(T a, T b) { return R::round(add(a, b)); }
};
template <class T, class R = Exact>
struct Prod {
  typedef T A;
  static constexpr bool kCommutes = true;
  static inline T none() { return T(1); }
  static inline T of(T a, T b) { return R::round(mul(a, b)); }
};
template <class T, class R = Exact>
struct Max {
  typedef T A;
  static constexpr bool kCommutes = false;
  static inline T none() { return Limits<T>::low(); }
  static inline T of(T a, T b) { return maximum(a, b); }
};
template <class T, class R = Exact>
struct Min {
  typedef T A;
  static constexpr bool kCommutes = false;
  static inline T none() { return Limits<T>::high(); }
  static inline T of(T a, T b) { return minimum(a, b); }
};
template <class T>
struct Any {
  typedef bool A;
  static constexpr bool kCommutes = true;
  static inline bool none() { return false; }
  static inline bool of(bool a, bool b) { return a || b; }
};
template <class T>
struct All {
  typedef bool A;
  static constexpr bool kCommutes = true;
  static inline bool none() { return true; }
  static inline bool of(bool a, bool b) { return a && b; }
};
template <class T>
struct At {
  T value;
  i64 at;
};
template <class T, class R = Exact>
struct ArgMax {
  typedef At<T> A;
  static constexpr bool kCommutes = true;
  static inline A none() { return {Limits<T>::low(), 0x7fffffffffffffffll}; }
  static inline A of(A a, A b) {
    const T x = a.value, y = b.value;
    const bool better = y > x || (y != y && x == x), same = x == y || (x != x && y != y);
    return better || (same && b.at < a.at) ? b : a;
  }
};
template <class T, class R = Exact>
struct ArgMin {
  typedef At<T> A;
  static constexpr bool kCommutes = true;
  static inline A none() { return {Limits<T>::high(), 0x7fffffffffffffffll}; }
  static inline A of(A a, A b) {
    const T x = a.value, y = b.value;
    const bool better = y < x || (y != y && x == x), same = x == y || (x != x && y != y);
    return better || (same && b.at < a.at) ? b : a;
  }
};

// Sums "by B" (jit/loop/loop.h): the sum of a partial's earlier blocks, and what was rounded off it. Before the first
// block the sum is 0, so the first block is added without rounding.
template <class T>
struct Earlier {
  T sum = 0, rest = 0;
};
template <class T>
inline void end_block(T& partial, Earlier<T>& earlier) {
  const T sum = earlier.sum + partial;
  earlier.rest += partial - (sum - earlier.sum);
  earlier.sum = sum, partial = 0;
}
template <class T>
inline T of_blocks(T partial, Earlier<T> earlier) {
  end_block(partial, earlier);
  return earlier.rest == earlier.rest ? earlier.sum + earlier.rest : earlier.sum;
}

// Combines kFrom partials in a to kTo.
template <class O, int kFrom, int kTo>
inline void halve(typename O::A* a) {
  if constexpr (kFrom > kTo) {
    constexpr int kHalf = kFrom / 2;
    if constexpr (kFrom > 32) {
#pragma unroll 1
      for (int j = 0; j < kHalf; j++) a[j] = O::of(a[j], a[j + kHalf]);
    } else {
#pragma unroll
      for (int j = 0; j < kHalf; j++) a[j] = O::of(a[j], a[j + kHalf]);
    }
    halve<O, kHalf, kTo>(a);
  }
}

template <class T>
inline T from_thread(T x, int apart) {
  return T(__shfl_xor_sync(0xffffffffu, x, apart));
}
inline uint8_t from_thread(uint8_t x, int apart) { return uint8_t(__shfl_xor_sync(0xffffffffu, int(x), apart)); }
inline int8_t from_thread(int8_t x, int apart) { return int8_t(__shfl_xor_sync(0xffffffffu, int(x), apart)); }
inline int16_t from_thread(int16_t x, int apart) { return int16_t(__shfl_xor_sync(0xffffffffu, int(x), apart)); }
inline bool from_thread(bool x, int apart) { return __shfl_xor_sync(0xffffffffu, int(x), apart) != 0; }
template <class T>
inline At<T> from_thread(At<T> x, int apart) {
  return {from_thread(x.value, apart), from_thread(x.at, apart)};
}

// Combines the V partials of each of kThreads threads, at most a warp, to one. All threads get the result.
template <class O, int kThreads, int V>
inline void exchange(typename O::A* a, int t) {
  if constexpr (kThreads > 1) {
    constexpr int kApart = kThreads / 2;
#pragma unroll
    for (int j = 0; j < V; j++) {
      const typename O::A other = from_thread(a[j], kApart);
      if (O::kCommutes)
        a[j] = O::of(a[j], other);
      else
        a[j] = (t & kApart) ? O::of(other, a[j]) : O::of(a[j], other);
    }
    exchange<O, kApart, V>(a, t);
  }
}
template <class O, int kThreads, int V>
inline typename O::A of_warp(typename O::A* a, int t) {
  exchange<O, kThreads, V>(a, t);
  halve<O, V, 1>(a);
  return a[0];
}

// For more than a warp: all threads store their partials in shared memory, and one warp combines them.
template <int kThreads, int V, class A>
inline void park(A* area, const A* a, int t) {
#pragma unroll
  for (int j = 0; j < V; j++) area[j * kThreads + t] = a[j];
}
template <class O, int kThreads, int V>
inline typename O::A of_block(const typename O::A* area, int lane) {
  typename O::A a[kThreads / 32 * V];
#pragma unroll
  for (int w = 0; w < kThreads / 32; w++) {
#pragma unroll
    for (int j = 0; j < V; j++) a[w * V + j] = area[j * kThreads + w * 32 + lane];
  }
  halve<O, kThreads / 32 * V, V>(a);
  return of_warp<O, 32, V>(a, lane);
}
// For adjacent columns: thread (x, y) has one partial of column x.
template <class O, int kThreads>
inline typename O::A of_column(const typename O::A* area, int x) {
  typename O::A a[kThreads];
#pragma unroll
  for (int y = 0; y < kThreads; y++) a[y] = area[y * 32 + x];
  halve<O, kThreads, 1>(a);
  return a[0];
}
