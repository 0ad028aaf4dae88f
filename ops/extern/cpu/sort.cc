// sort and topk: a tensor's elements in order along one dim, and their former positions. Equal elements keep their
// order and NaNs are the largest. So there is one right answer, whatever the method and the threads.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <new>
#include <utility>

#include "ops/core/block_memory.h"
#include "ops/core/interrupt.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/order.h"
#include "ops/extern/cpu/strided.h"

namespace lutra {
namespace {

constexpr int64_t kRadixFrom = 256;         // elements from which counting is faster than comparing
constexpr int64_t kParallelRow = 1 << 16;   // and from which a row is divided among threads
constexpr int64_t kParallelWork = 1 << 14;  // elements of rows that are worth a thread
constexpr int kParts = 4;                   // of a divided row
constexpr int64_t kLongRow = 1 << 22;       // elements from which each row is divided, one row after the other
constexpr int64_t kPartStretch = 1 << 20;   // elements of a part between two checks for a stop
constexpr int64_t kFreshBytes = 1 << 24;    // memory that the system may have to clear between two checks
constexpr int64_t kBucketItems = 2048;      // items of a bucket that is sorted in the processor's cache

// A key and a position, ordered by both. It is one word if the key leaves room for the position.
struct Narrow {
  uint64_t word;
  static Narrow make(uint64_t key, uint32_t at) { return {key << 32 | at}; }
  uint32_t at() const { return uint32_t(word); }
  uint64_t key() const { return word >> 32; }
  bool operator<(const Narrow& o) const { return word < o.word; }
};
struct Wide {
  uint64_t value;
  uint32_t position;
  static Wide make(uint64_t key, uint32_t at) { return {key, at}; }
  uint32_t at() const { return position; }
  uint64_t key() const { return value; }
  bool operator<(const Wide& o) const { return value != o.value ? value < o.value : position < o.position; }
};
template <class T>
using Item = std::conditional_t<(sizeof(T) > 4), Wide, Narrow>;

// Counting sort by digits of kBits, the lowest first. Passes in which all digits are equal are skipped.
template <class I, int kBits>
class Radix {
 public:
  Radix(I* items, I* spare, int64_t n, int key_bits, ParallelFor parallel)
      : a_(items), b_(spare), n_(n), key_bits_(key_bits) {
    parts_ = parallel && n >= kParallelRow ? kParts : 1;
    parallel_ = parallel;
  }

  static constexpr int kDigits = 1 << kBits;

  // Returns where the sorted items are.
  I* run() {
    for (int shift = 0; shift < key_bits_; shift += kBits) pass(shift);
    return a_;
  }
  // Sorts by a single digit, which must differ somewhere. `ends` gets the end of each digit's items.
  I* split(int shift, int64_t* ends) {
    pass(shift);
    std::copy_n(counts_[size_t(parts_ - 1)].begin(), kDigits, ends);
    return a_;
  }

 private:
  int64_t begin(int part) const { return n_ / parts_ * part + std::min<int64_t>(part, n_ % parts_); }

  // Calls f(part, begin, end) for stretches, with a check for a stop between two of them.
  template <class F>
  void each_part(const F& f) {
    if (parts_ == 1) return in_stretches(n_, [&](int64_t from, int64_t to) { f(0, from, to); });
    for (int64_t done = 0; done < n_ - n_ / parts_ * (parts_ - 1); done += kPartStretch) {
      parallel_(parts_, 1, [&](int64_t lo, int64_t hi) {
        for (int64_t p = lo; p < hi; p++) {
          const int64_t end = begin(int(p) + 1), from = std::min(begin(int(p)) + done, end);
          f(int(p), from, std::min(from + kPartStretch, end));
        }
      });
    }
  }

  void pass(int shift) {
    for (int p = 0; p < parts_; p++) counts_[size_t(p)].fill(0);
    each_part([&](int p, int64_t from, int64_t to) {
      auto& count = counts_[size_t(p)];
      for (int64_t i = from; i < to; i++) count[a_[i].key() >> shift & (kDigits - 1)]++;
    });
    int64_t sum = 0;
    for (int d = 0; d < kDigits; d++) {
      int64_t here = 0;
      for (int p = 0; p < parts_; p++) {
        const int64_t c = counts_[size_t(p)][size_t(d)];
        counts_[size_t(p)][size_t(d)] = sum + here;
        here += c;
      }
      if (here == n_) return;  // all items have the same digit
      sum += here;
    }
    each_part([&](int p, int64_t from, int64_t to) {
      auto& place = counts_[size_t(p)];
      for (int64_t i = from; i < to; i++) b_[place[a_[i].key() >> shift & (kDigits - 1)]++] = a_[i];
    });
    std::swap(a_, b_);
  }

  I *a_, *b_;
  int64_t n_;
  int key_bits_, parts_;
  ParallelFor parallel_;
  std::array<std::array<int64_t, kDigits>, kParts> counts_;
};

// Sorts items of wide keys. First it splits them into buckets by the highest bits that differ. Then it sorts each
// bucket in the processor's cache by the bits below. Last it sorts the few items whose bits are still equal by the
// whole key. Random keys take three passes, not six.
template <class I>
class Buckets {
 public:
  Buckets(I* items, I* spare, int64_t n, ParallelFor parallel)
      : items_(items), spare_(spare), n_(n), parallel_(parallel) {}

  // Returns where the sorted items are. Subtracts `base`, the least key, from all keys.
  I* run(uint64_t* base) {
    uint64_t least = items_[0].key(), most = least;
    in_stretches(n_, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; i++) {
        least = std::min(least, items_[i].key());
        most = std::max(most, items_[i].key());
      }
    });
    *base = least;
    in_stretches(n_, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; i++) items_[i] = I::make(items_[i].key() - least, items_[i].at());
    });
    const int bits = int(std::bit_width(most - least));
    if (bits <= 2 * kBits) return std::make_unique<Radix<I, kBits>>(items_, spare_, n_, bits, parallel_)->run();
    rest_ = bits - kBits;
    const auto radix = std::make_unique<Radix<I, kBits>>(items_, spare_, n_, bits, parallel_);
    std::array<int64_t, kDigits> ends;
    I* split = radix->split(rest_, ends.data());
    I* other = split == items_ ? spare_ : items_;
    const auto body = [&](int64_t lo, int64_t hi) {
      for (int64_t d = lo; d < hi; d++) {
        const int64_t begin = d ? ends[size_t(d - 1)] : 0, n = ends[size_t(d)] - begin;
        if (n > 1) sort_bucket(split + begin, other + begin, n);
      }
    };
    parallel_&& n_ >= kParallelRow ? parallel_(kDigits, kDigits / 16, body) : body(0, kDigits);
    return split;
  }

 private:
  static constexpr int kBits = 11, kDigits = 1 << kBits, kByte = 8;

  // Sorts in place. `spare` is working memory.
  void sort_bucket(I* items, I* spare, int64_t n) const {
    if (n <= 16) return std::sort(items, items + n);
    if (n > kBucketItems) {
      const I* sorted = std::make_unique<Radix<I, kBits>>(items, spare, n, rest_, nullptr)->run();
      if (sorted != items) std::copy(sorted, sorted + n, items);
      return;
    }
    const int from = rest_ - 2 * kByte;  // bits below the two bytes
    by_byte(items, spare, n, std::max(from, 0));
    by_byte(spare, items, n, rest_ - kByte);
    if (from <= 0) return;
    for (int64_t i = 1, begin = 0; i <= n; i++) {
      if (i < n && (items[i].key() ^ items[begin].key()) >> from == 0) continue;
      if (i - begin > 1) std::sort(items + begin, items + i);
      begin = i;
    }
  }
  static void by_byte(const I* from, I* to, int64_t n, int shift) {
    constexpr size_t kValues = size_t(1) << kByte;
    std::array<uint32_t, kValues> place{};
    for (int64_t i = 0; i < n; i++) place[from[i].key() >> shift & (kValues - 1)]++;
    uint32_t sum = 0;
    for (uint32_t& p : place) sum += std::exchange(p, sum);
    for (int64_t i = 0; i < n; i++) to[place[from[i].key() >> shift & (kValues - 1)]++] = from[i];
  }

  I *items_, *spare_;
  int64_t n_;
  ParallelFor parallel_;
  int rest_ = 0;  // bits below the buckets' digit
};

// Memory for n items, in large pages if n is large.
template <class I>
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  ~Block() { give_back(); }
  void make(int64_t n) {
    give_back();
    bytes_ = (size_t(n) * sizeof(I) + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
    first_ = static_cast<I*>(new_block(bytes_));
    if (!first_) throw std::bad_alloc();
  }
  I* get() const { return first_; }
  I& operator[](size_t i) const { return first_[i]; }

 private:
  void give_back() {
    if (first_) free_block(first_, bytes_);
    first_ = nullptr;
  }
  I* first_ = nullptr;
  size_t bytes_ = 0;
};

// Writes the ranks of a few elements and returns the least one. It has no branches, so that it is vectorised.
constexpr int64_t kRanked = 32;
template <class T>
[[gnu::optimize("O3")]] order::Key<T> rank_elements(const T* from, int64_t count, int64_t stride, bool descending,
                                                    order::Key<T>* ranks) {
  using K = order::Key<T>;
  const K turn = descending ? K(~K(0)) : K(0);
  K best = K(~K(0));
  if (stride == 1) {
    for (int64_t i = 0; i < count; i++) ranks[i] = K(order::key(from[i]) ^ turn);
  } else {
    for (int64_t i = 0; i < count; i++) ranks[i] = K(order::key(from[i * stride]) ^ turn);
  }
  for (int64_t i = 0; i < count; i++) best = std::min(best, ranks[i]);
  return best;
}

// The memory in which one thread sorts its rows.
template <class T>
struct Row {
  using I = Item<T>;
  Block<I> items, spare;
  I* sorted = nullptr;
  uint64_t base = 0;  // was subtracted from the keys
  int64_t capacity = 0;

  void load(const T* from, int64_t n, int64_t stride, bool descending, ParallelFor parallel = nullptr) {
    if (n > capacity) {
      capacity = 0, items.make(n), spare.make(n), capacity = n;
      if (n >= kParallelRow) touch(spare.get(), size_t(n) * sizeof(I), parallel);  // digits write anywhere in it
    }
    using K = order::Key<T>;
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const K k = order::key(from[i * stride]);
        items[size_t(i)] = I::make(descending ? K(~k) : k, uint32_t(i));
      }
    };
    parallel ? parallel(n, kParallelWork, body) : in_stretches(n, body);
  }
  void sort(int64_t n, ParallelFor parallel) {
    constexpr int kKeyBits = int(8 * sizeof(order::Key<T>));
    sorted = items.get();
    base = 0;
    if (n < kRadixFrom) {
      std::sort(sorted, sorted + n);
    } else if (n < 8192 || kKeyBits <= 16) {
      sorted = std::make_unique<Radix<I, 8>>(items.get(), spare.get(), n, kKeyBits, parallel)->run();
    } else if (kKeyBits > 32) {
      sorted = Buckets<I>(items.get(), spare.get(), n, parallel).run(&base);
    } else {
      sorted = std::make_unique<Radix<I, 11>>(items.get(), spare.get(), n, kKeyBits, parallel)->run();
    }
  }
  static auto less() { return with_looks(std::less<I>()); }
  // Selects the first k in order. It skips elements that cannot be among them, and cuts the others down to k whenever
  // they are 2 * k.
  void select(const T* from, int64_t n, int64_t stride, bool descending, int64_t k) {
    if (k * 4 >= n) {
      load(from, n, stride, descending);
      return sort(n, nullptr);
    }
    const int64_t room = 2 * k + 64;
    if (room > capacity) capacity = 0, items.make(room), spare.make(room), capacity = room;
    using K = order::Key<T>;
    int64_t kept = 0;
    bool full = false;
    K worst = 0;
    const auto first_k = [&] { std::nth_element(items.get(), items.get() + k - 1, items.get() + kept, less()); };
    const auto take = [&](K rank, int64_t i) {
      if (full && rank >= worst) return;  // an equal one that came before is better
      items[size_t(kept++)] = I::make(rank, uint32_t(i));
      if (kept < room) return;
      first_k();
      worst = K(items[size_t(k - 1)].key());
      kept = k, full = true;
    };
    std::array<K, kRanked> ranks;
    in_stretches(n, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kRanked) {
        const int64_t count = std::min(kRanked, end - at);
        const K best = rank_elements(from + at * stride, count, stride, descending, ranks.data());
        if (full && best >= worst) continue;
        for (int64_t i = 0; i < count; i++) take(ranks[size_t(i)], at + i);
      }
    });
    if (kept > k) first_k();
    sorted = items.get();
    base = 0;
    std::sort(sorted, sorted + k, less());
  }
};

// The rows of a view along dim, numbered in row-major order of the other dims.
struct Rows {
  const ExternView& v;
  int dim;
  int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < v.dim; d++) n *= d == dim ? 1 : v.sizes[d];
    return n;
  }
  int64_t offset(int64_t row) const {
    int64_t o = 0;
    for (int d = v.dim; d-- > 0;) {
      if (d == dim) continue;
      o += row % v.sizes[d] * v.strides[d];
      row /= v.sizes[d];
    }
    return o;
  }
  int64_t size() const { return v.dim ? v.sizes[dim] : 1; }
  int64_t stride() const { return v.dim ? v.strides[dim] : 1; }
};

template <class T>
struct Strided {
  T* data;
  int64_t stride;
  T& operator[](int64_t i) const { return data[i * stride]; }
};

// Writes elements [begin, end) of the sorted row `from`, and their indices.
template <class T>
void put_sorted(const Row<T>& row, Strided<const T> from, Strided<T> values, Strided<int64_t> indices, bool descending,
                int64_t begin, int64_t end) {
  const int64_t step = values.stride * int64_t(sizeof(T)) + indices.stride * int64_t(sizeof(int64_t));
  const auto put = [&](int64_t lo, int64_t hi) {
    for (int64_t i = begin + lo; i < begin + hi; i++) {
      const uint32_t at = row.sorted[i].at();
      if constexpr (std::is_same_v<T, int64_t>) {  // the key determines the integer
        const uint64_t key = row.sorted[i].key() + row.base;
        values[i] = int64_t((descending ? ~key : key) ^ order::kSign<uint64_t>);
      } else {
        values[i] = from[int64_t(at)];
      }
      indices[i] = at;
    }
  };
  in_stretches(end - begin, put, std::clamp<int64_t>(kFreshBytes / std::max<int64_t>(step, 1), 16, kStretch));
}

// select: only sorts the first k of each row.
template <class T>
void order_rows(const ExternCall& call, int64_t dim, bool descending, bool select) {
  const int at = int(dim < 0 ? dim + std::max(call.in[0].dim, 1) : dim);
  const Rows in{call.in[0], at}, values{call.out[0], at}, indices{call.out[1], at};
  const int64_t n = in.size(), k = values.size(), rows = in.count();
  if (n == 0 || k == 0 || rows == 0) return;
  if (n > int64_t(UINT32_MAX)) fail(name(call.op), ": dim ", at, " of size ", n, " is too large");
  const T* from = static_cast<const T*>(call.in[0].data);
  T* to = static_cast<T*>(call.out[0].data);
  auto* where = static_cast<int64_t*>(call.out[1].data);
  const bool share_row = !select && n >= (rows == 1 ? kParallelRow : kLongRow) && call.parallel;
  const auto body = [&](int64_t begin, int64_t end) {
    Row<T> row;
    for (int64_t r = begin; r < end; r++) {
      const T* x = from + in.offset(r);
      if (select) {
        row.select(x, n, in.stride(), descending, k);
      } else {
        const ParallelFor parallel = share_row ? call.parallel : nullptr;
        row.load(x, n, in.stride(), descending, parallel);
        row.sort(n, parallel);
      }
      const auto put = [&](int64_t lo, int64_t hi) {
        put_sorted<T>(row, {x, in.stride()}, {to + values.offset(r), values.stride()},
                      {where + indices.offset(r), indices.stride()}, descending, lo, hi);
      };
      share_row ? call.parallel(k, kParallelWork, put) : put(0, k);
    }
  };
  if (rows == 1 || share_row || !call.parallel) return body(0, rows);
  call.parallel(rows, std::max<int64_t>(1, kParallelWork / n), body);
}

}  // namespace

void run_sort(const ExternCall& call) {
  with_element_type(call.in[0].dtype, [&]<class T>() { order_rows<T>(call, call.ints[0], call.ints[1] != 0, false); });
}

void run_topk(const ExternCall& call) {
  with_element_type(call.in[0].dtype, [&]<class T>() { order_rows<T>(call, call.ints[1], call.ints[2] != 0, true); });
}

std::vector<uint32_t> stable_order(const ExternView& v, ParallelFor parallel) {
  const int64_t n = v.numel();
  LUTRA_CHECK(v.dim <= 1 && n <= int64_t(UINT32_MAX));
  std::vector<uint32_t> out;
  out.reserve(size_t(n));
  with_element_type(v.dtype, [&]<class T>() {
    Row<T> row;
    row.load(static_cast<const T*>(v.data), n, v.dim ? v.strides[0] : 1, false, parallel);
    row.sort(n, parallel);
    in_stretches(n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) out.push_back(row.sorted[i].at());
    });
  });
  return out;
}

}  // namespace lutra
