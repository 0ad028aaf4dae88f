// embedding_bag: the sum or mean of a table's rows over each bag of ids, or the row that has its largest element. A bag
// is a row of ids, or the ids between two offsets. No copy of all rows is made.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/core/cpu.h"
#include "ops/core/interrupt.h"
#include "ops/extern/bags.h"
#include "ops/extern/cpu/bag_rows.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/half_rows.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/strided.h"

namespace lutra {
namespace {

constexpr int64_t kBagWork = 32768;  // elements that are worth a thread

#include "ops/extern/cpu/bag_rows.inc"

template <class A>
const BagRows<A>& bag_rows() {
  if constexpr (cpu::kX64) {
    if (cpu::has_avx2()) return bag_rows_avx2<A>();
  }
  return kBagRows<A>;
}

// Returns v's elements in row-major order, or a copy in `own` if they are not.
template <class T>
const T* in_order(const ExternView& v, std::vector<T>& own) {
  if (is_contiguous(v)) return static_cast<const T*>(v.data);
  own.reserve(size_t(v.numel()));
  each_element(v, [&](int64_t at) { own.push_back(static_cast<const T*>(v.data)[at]); });
  return own.data();
}
const int64_t* integers(const ExternView& v, std::vector<int64_t>& own) {
  if (size_of(v.dtype) == sizeof(int64_t)) return in_order(v, own);
  own.reserve(size_t(v.numel()));
  each_element(v, [&](int64_t at) { own.push_back(static_cast<const int32_t*>(v.data)[at]); });
  return own.data();
}

void check_bag_offset(int64_t bag, int64_t offset, int64_t before, int64_t ids) {
  if (bag == 0 && offset != 0) throw wrong_bag_offset(BagOffset::kFirst, offset);
  if (offset > ids) throw wrong_bag_offset(BagOffset::kLarge, offset);
  if (offset < before) throw wrong_bag_offset(BagOffset::kDescends, offset);
}

// Bag b has the ids from bounds[b] to bounds[b + 1]. The row `padding` counts in none.
struct Bags {
  const ExternView& table;
  std::vector<int64_t> own, own_offsets, bounds;
  const int64_t* ids;
  int64_t count, padding;

  Bags(const ExternCall& call, int64_t padding_idx)
      : table(call.in[0]), ids(integers(call.in[1], own)), count(call.out[0].sizes[0]), padding(padding_idx) {
    const ExternView& offsets = call.in[2];
    const int64_t n = call.in[1].numel(), rows = table.sizes[0];
    bounds.resize(size_t(count) + 1);
    if (offsets.data) {
      const int64_t *given = integers(offsets, own_offsets), all = offsets.numel();
      for (int64_t b = 0; b < all; b++) check_bag_offset(b, given[b], b ? given[b - 1] : 0, n);
      for (int64_t b = 0; b <= count; b++) bounds[size_t(b)] = b < all ? given[b] : n;
    } else {
      for (int64_t b = 0; b <= count; b++) bounds[size_t(b)] = b * call.in[1].sizes[1];
    }
    in_stretches(n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        if (uint64_t(ids[i]) >= uint64_t(rows)) throw wrong_bag_id(ids[i], rows);
      }
    });
  }

  // Calls f(bag, first feature, number of features) for parts of up to `vectors` vectors of all bags, on several
  // threads. A part less than a vector takes features of the one before it.
  template <class A, class F>
  void each_part(const ExternCall& call, int64_t vectors, F&& f) const {
    const int64_t features = table.sizes[1], work = bounds.back() * features;
    const auto run = [&](int64_t begin, int64_t end) {
      int64_t unseen = 0;
      for (int64_t b = begin; b < end; b++) {
        for (int64_t k = 0, end; k < features; k = end) {
          end = std::min(k + vectors * kBagLanes<A>, features);
          const int64_t first = std::max<int64_t>(0, std::min(k, end - kBagLanes<A>));
          f(b, first, end - first);
        }
        unseen += (bounds[size_t(b) + 1] - bounds[size_t(b)] + 1) * features;
        if (unseen >= kStretch) unseen = 0, look_in_loop();
      }
    };
    if (work < kBagWork || !call.parallel) return run(0, count);
    call.parallel(count, std::max<int64_t>(1, kBagWork * count / work), run);
  }
};

// The parts of up to kBagBlock rows of a bag that count, widened.
template <class T>
struct Block {
  using A = typename Arithmetic<T>::type;
  const A* rows[kBagBlock];
  A scales[kBagBlock];
  int64_t ids[kBagBlock], count = 0;
  A wide[kBagBlock][kBagVectors * kBagLanes<A>];

  // Reads from id `at` on, and returns the next one. scales: of all ids, or null. It may end the loop around it.
  int64_t read(const Bags& bags, const T* all_scales, int64_t at, int64_t end, int64_t feature, int64_t n) {
    if (count > 0) look_in_loop();  // a bag may be long
    // In registers: the stores below could change what they are read from.
    const int64_t stride = bags.table.strides[1], row_stride = bags.table.strides[0], padding = bags.padding;
    const int64_t* given = bags.ids;
    const T* data = static_cast<const T*>(bags.table.data) + feature * stride;
    int64_t found = 0;
    for (; at < end && found < kBagBlock; at++) {
      const int64_t id = given[at];
      const T* row = data + id * row_stride;
      if (id == padding) continue;
      if (sizeof(T) > 2 && stride == 1) {
        rows[found] = static_cast<const A*>(static_cast<const void*>(row));
      } else {
        widen(bags.table.dtype, row, stride, wide[found], n);
        rows[found] = wide[found];
      }
      ids[found] = id, scales[found] = all_scales ? A(all_scales[at]) : A(1);
      found++;
    }
    count = found;
    return at;
  }

  static void widen(DType type, const T* row, int64_t stride, A* to, int64_t n) {
    if constexpr (sizeof(T) == 2) {
      widen_row(type, static_cast<const uint16_t*>(static_cast<const void*>(row)), stride, to, n);
    } else {
      for (int64_t k = 0; k < n; k++) to[k] = row[k * stride];
    }
  }
};

// Adds up a part of a bag's rows. The sums of blocks are added with compensation, as in every long sum. Returns how
// many rows count.
template <class T, class A>
int64_t sum_part(const Bags& bags, const T* scales, int64_t bag, int64_t feature, int64_t n, A* to) {
  Block<T> block;
  A part[kBagVectors * kBagLanes<A>], lost[kBagVectors * kBagLanes<A>];
  const BagRows<A>& rows = bag_rows<A>();
  const int64_t end = bags.bounds[size_t(bag) + 1];
  int64_t counted = 0;
  for (int64_t at = bags.bounds[size_t(bag)]; at < end;) {
    at = block.read(bags, scales, at, end, feature, n);
    if (block.count == 0) break;
    if (counted == 0) {
      rows.add(block.rows, block.scales, block.count, n, to);
      std::fill_n(lost, n, A(0));
    } else {
      rows.add(block.rows, block.scales, block.count, n, part);
      rows.add_part(part, n, to, lost);
    }
    counted += block.count;
  }
  if (counted == 0) std::fill_n(to, n, A(0));
  if (counted > kBagBlock) rows.end(lost, n, to);
  return counted;
}

// Finds the row of the largest element of each feature.
template <class T>
void find_most(const Bags& bags, int64_t bag, int64_t feature, int64_t n, int64_t* to) {
  using A = typename Arithmetic<T>::type;
  Block<T> block;
  A most[kBagVectors * kBagLanes<A>];
  typename BagRows<A>::Place at[kBagVectors * kBagLanes<A>];
  const int64_t end = bags.bounds[size_t(bag) + 1];
  bool first = true;
  std::fill_n(to, n, -1);
  for (int64_t next = bags.bounds[size_t(bag)]; next < end;) {
    next = block.read(bags, nullptr, next, end, feature, n);
    if (block.count == 0) break;
    if (first) std::copy_n(block.rows[0], n, most);
    std::fill_n(at, n, first ? 0 : -1);
    bag_rows<A>().exceed(block.rows, block.count, n, most, at);
    for (int64_t k = 0; k < n; k++) to[k] = at[k] < 0 ? to[k] : block.ids[at[k]];
    first = false;
  }
}

}  // namespace

void run_embedding_bag_sum(const ExternCall& call) {
  const Bags bags(call, call.ints[0]);
  const bool mean = call.ints[2] != 0;
  auto* counts = static_cast<int64_t*>(call.out[1].data);
  with_float_type(bags.table.dtype, [&]<class T>() {
    using A = typename Arithmetic<T>::type;
    std::vector<T> own;
    const T* scales = call.in[3].data ? in_order(call.in[3], own) : nullptr;
    A* out = static_cast<A*>(call.out[0].data);
    if (bags.table.sizes[1] == 0) std::fill_n(counts, bags.count, 0);
    bags.each_part<A>(call, kBagVectors, [&](int64_t b, int64_t feature, int64_t n) {
      A* to = out + b * bags.table.sizes[1] + feature;
      counts[b] = sum_part(bags, scales, b, feature, n, to);
      if (mean) bag_rows<A>().divide(to, n, A(std::max<int64_t>(counts[b], 1)));
    });
  });
}

void run_embedding_bag_max(const ExternCall& call) {
  const Bags bags(call, call.ints[0]);
  auto* out = static_cast<int64_t*>(call.out[0].data);
  with_float_type(bags.table.dtype, [&]<class T>() {
    constexpr int64_t vectors = kBagVectors / 2;  // a vector of elements needs one of places
    bags.each_part<typename Arithmetic<T>::type>(call, vectors, [&](int64_t b, int64_t feature, int64_t n) {
      find_most<T>(bags, b, feature, n, out + b * bags.table.sizes[1] + feature);
    });
  });
}

}  // namespace lutra
