// Kernels of indices, sorting, searching and scans against the CPU's.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/cuda_extern/calls.h"

namespace lutra::cuda {
namespace {

const DType kSome[] = {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool};

Operand index_of(std::vector<int64_t> sizes, int64_t n, DType type = DType::kInt64) {
  return random_operand(type, std::move(sizes), 0, double(n - 1));
}
Operand none() { return {}; }

TEST_CASE("cuda extern: index_add, index_copy, index_fill, index_reduce") {
  HostMachine m;
  for (DType t : kSome) {
    INFO(name(t));
    for (int64_t rows : {5, 100}) {
      const Operand x = random_operand(t, {9, 6}, 0, 3), y = make_operand(t, {9, 6});
      const Operand i = index_of({rows}, 9), s = random_operand(t, {rows, 6}, 0, 3, {1, 0});
      CHECK(difference(m, {OpId::index_add, {x, i, s}, {y}, {0}, {1}, {}}) == 0);
      CHECK(difference(m, {OpId::index_add, {x, i, s}, {y}, {0}, {0.3}, {}, true}) == 0);
      CHECK(difference(m, {OpId::index_copy, {x, i, s}, {y}, {0}, {}, {}}) == 0);
      CHECK(difference(m, {OpId::index_fill, {x, i}, {y}, {0}, {2}, {}}) == 0);
      CHECK(difference(m, {OpId::index_fill, {x, i, random_operand(DType::kFloat64, {}, 0, 3)}, {y}, {0}, {}, {}}) ==
            0);
      for (const char* how : {"prod", "mean", "amax", "amin"}) {
        for (int64_t self : {0, 1}) {
          INFO(how << self);
          CHECK(difference(m, {OpId::index_reduce, {x, i, s}, {y}, {0, self}, {}, {how}}) == 0);
        }
      }
      const Operand across = random_operand(t, {9, rows}, 0, 3), wide = index_of({rows}, 6, DType::kInt32);
      CHECK(difference(m, {OpId::index_add, {x, wide, across}, {y}, {1}, {1}, {}}) == 0);
    }
  }
  std::string error;
  const DType t = DType::kFloat32;
  Case bad{OpId::index_add,
           {random_operand(t, {3, 2}, 0, 1), index_of({4}, 9), random_operand(t, {4, 2}, 0, 1)},
           {make_operand(t, {3, 2})},
           {0},
           {1},
           {}};
  reinterpret_cast<int64_t*>(bad.in[1].bytes.data())[0] = 7;
  for (int k = 1; k < 4; k++) reinterpret_cast<int64_t*>(bad.in[1].bytes.data())[k] = 1;
  CHECK(difference(m, bad, &error) == 0);
  CHECK(error == "index_add: index 7 is out of bounds for dimension 0 with size 3");
}

TEST_CASE("cuda extern: embedding_bag") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    INFO(name(t));
    const DType wide = is_half(t) ? DType::kFloat32 : t;
    // 101 features are parts of every size. Bags have none, few and many rows.
    const Operand table = random_operand(t, {9, 101}, -3, 3), turned = random_operand(t, {9, 101}, -3, 3, {1, 0});
    const Operand ids = index_of({300}, 9), narrow = index_of({300}, 9, DType::kInt32), rows = index_of({4, 75}, 9);
    const Operand scales = random_operand(t, {300}, -2, 2);
    Operand offsets = index_of({4}, 1);
    const int64_t given[] = {0, 0, 7, 290};
    std::memcpy(offsets.bytes.data(), given, sizeof given);
    const Operand out = make_operand(wide, {4, 101}), counts = make_operand(DType::kInt64, {4});
    const Operand places = make_operand(DType::kInt64, {4, 101});
    const Operand three = make_operand(wide, {3, 101}), three_counts = make_operand(DType::kInt64, {3});
    for (const Operand& from : {table, turned}) {
      for (int64_t padding : {-1, 4}) {
        for (const auto& [index, at] : {std::pair(ids, offsets), std::pair(narrow, offsets), std::pair(rows, none())}) {
          for (int64_t mean : {0, 1}) {
            CHECK(difference(m, {OpId::embedding_bag_sum,
                                 {from, index, at, none()},
                                 {out, counts},
                                 {padding, 0, mean, 0},
                                 {},
                                 {}}) == 0);
          }
          CHECK(difference(m, {OpId::embedding_bag_max, {from, index, at}, {places}, {padding, 0}, {}, {}}) == 0);
        }
        CHECK(difference(m, {OpId::embedding_bag_sum,
                             {from, ids, offsets, scales},
                             {three, three_counts},
                             {padding, 0, 0, 1},
                             {},
                             {}}) == 0);
      }
    }
  }
  const Operand table = random_operand(DType::kFloat32, {3, 2}, 0, 1), ids = make_operand(DType::kInt64, {4});
  const auto error_of = [&](std::vector<int64_t> id, std::vector<int64_t> offset) {
    Case c{OpId::embedding_bag_max,
           {table, ids, make_operand(DType::kInt64, {2})},
           {make_operand(DType::kInt64, {2, 2})},
           {-1, 0},
           {},
           {}};
    std::memcpy(c.in[1].bytes.data(), id.data(), 32), std::memcpy(c.in[2].bytes.data(), offset.data(), 16);
    std::string error;
    CHECK(difference(m, c, &error) == 0);
    return error;
  };
  CHECK(error_of({0, 1, 2, 3}, {0, 1}) == "embedding_bag: an id is no row of weight: 3, which has 3");
  CHECK(error_of({0, 1, 2, 0}, {1, 1}) ==
        "embedding_bag: offsets[0] must be 0: the first bag begins with the first id, got 1");
  CHECK(error_of({0, 1, 2, 0}, {0, 5}) == "embedding_bag: an offset is greater than the number of ids, got 5");
  CHECK(error_of({0, 1, 2, 0}, {0, -1}) == "embedding_bag: offsets must not descend, got -1");
}

TEST_CASE("cuda extern: scatter and kin") {
  HostMachine m;
  for (DType t : kSome) {
    INFO(name(t));
    for (int64_t n : {3, 70}) {
      const Operand x = random_operand(t, {4, 8, 5}, 0, 3), y = make_operand(t, {4, 8, 5});
      const Operand i = index_of({4, n, 4}, 8), s = random_operand(t, {4, n, 5}, 0, 3);
      CHECK(difference(m, {OpId::scatter_add, {x, i, s}, {y}, {1}, {}, {}}) == 0);
      CHECK(difference(m, {OpId::scatter, {x, i, s}, {y}, {1}, {}, {""}}) == 0);
      CHECK(difference(m, {OpId::scatter, {x, i, s}, {y}, {1}, {}, {"multiply"}}) == 0);
      CHECK(difference(m, {OpId::scatter, {x, i}, {y}, {1}, {2}, {"add"}, true}) == 0);
      for (const char* how : {"sum", "prod", "mean", "amax", "amin"}) {
        for (int64_t self : {0, 1}) {
          INFO(how << self);
          CHECK(difference(m, {OpId::scatter_reduce, {x, i, s}, {y}, {-2, self}, {}, {how}}) == 0);
        }
      }
    }
  }
}

TEST_CASE("cuda extern: scatter by warps and by sorted positions") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kBFloat16, DType::kInt8, DType::kInt64, DType::kBool}) {
    INFO(name(t));
    // Lines of 70 positions, of which many meet; along the other dim they lie apart.
    const Operand i = index_of({40, 70}, 9), s = random_operand(t, {40, 70}, 0, 3), y = make_operand(t, {40, 9});
    const Operand x = random_operand(t, {40, 9}, 0, 3);
    CHECK(difference(m, {OpId::scatter_add, {x, i, s}, {y}, {1}, {}, {}}) == 0);
    CHECK(difference(m, {OpId::scatter, {x, i, s}, {y}, {1}, {}, {""}}) == 0);
    CHECK(difference(m, {OpId::scatter, {x, i, s}, {y}, {1}, {}, {"multiply"}}) == 0);
    const Operand turned = random_operand(t, {70, 40}, 0, 3), z = make_operand(t, {9, 40});
    const Operand j = random_operand(DType::kInt64, {70, 40}, 0, 8, {1, 0});
    CHECK(difference(m, {OpId::scatter_add, {random_operand(t, {9, 40}, 0, 3), j, turned}, {z}, {0}, {}, {}}) == 0);
    CHECK(m.launches["scatter_sorted"] == 0);
    CHECK(m.launches["scatter_warp"] == 4);
    // One line of several parts, to few places and to many.
    for (int64_t places : {3, 7000}) {
      const Operand to = random_operand(t, {places}, 0, 3), at = index_of({9000}, places);
      const Operand from = random_operand(t, {9000}, 0, 1);
      CHECK(difference(m, {OpId::scatter_add, {to, at, from}, {make_operand(t, {places})}, {0}, {}, {}}) == 0);
    }
    m.launches.clear();
  }
}

TEST_CASE("cuda extern: long rows are sorted by digits") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat16, DType::kFloat64, DType::kInt64, DType::kUInt8, DType::kBool}) {
    INFO(name(t));
    const Operand x = random_operand(t, {2, 9000}, is_bool(t) || t == DType::kUInt8 ? 0 : -90, 90);
    const Operand values = make_operand(t, {2, 9000}), indices = make_operand(DType::kInt64, {2, 9000});
    for (int64_t descending : {0, 1}) {
      CHECK(difference(m, {OpId::sort, {x}, {values, indices}, {1, descending, 1}, {}, {}}) == 0);
    }
    CHECK(m.launches["place_digits"] == 2 * int(size_of(t)));
    m.launches.clear();
  }
}

TEST_CASE("cuda extern: index_put") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat16, DType::kInt32}) {
    const Operand x = random_operand(t, {6, 4, 5}, 0, 3), y = make_operand(t, {6, 4, 5});
    for (int64_t add : {0, 1}) {
      const Operand i = random_operand(DType::kInt64, {50}, -6, 5), j = index_of({3, 1}, 5);
      CHECK(difference(
                m, {OpId::index_put, {x, i, random_operand(t, {50, 4, 5}, 0, 3)}, {y}, {0, add}, {}, {"index"}}) == 0);
      // Indices at dims 0 and 2: their dims come first.
      CHECK(difference(
                m, {OpId::index_put, {x, i, j, random_operand(t, {3, 50, 4}, 0, 3)}, {y}, {0, 2, add}, {}, {"put"}}) ==
            0);
      CHECK(difference(m, {OpId::index_put, {x, j, random_operand(t, {1}, 0, 3)}, {y}, {2, add}, {}, {"put"}, true}) ==
            0);
    }
  }
}

TEST_CASE("cuda extern: the gradient of embedding") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kBFloat16}) {
    const Operand g = random_operand(t, {3, 40, 7}, -1, 1), i = index_of({3, 40}, 11), y = make_operand(t, {11, 7});
    for (int64_t pad : {-1, 2}) {
      for (int64_t scale : {0, 1}) {
        CHECK(difference(m, {OpId::embedding_dense_backward, {g, i}, {y}, {11, pad, scale}, {}, {}}) == 0);
      }
    }
  }
  const DType t = DType::kFloat32;
  m.launches.clear();
  // More than a chunk, more than a batch to a row, more than a tile of features, 32-bit indices.
  const Operand g = random_operand(t, {2, 2100, 40}, -1, 1), i = index_of({2, 2100}, 3, DType::kInt32);
  CHECK(difference(m, {OpId::embedding_dense_backward, {g, i}, {make_operand(t, {3, 40})}, {3, -1, 0}, {}, {}}) == 0);
  CHECK(m.launches["embedding_rows"] == 1);
  CHECK(m.launches["scatter_sorted"] == 0);
  // Many rows: sorted, and many of one row.
  const Operand wide = random_operand(t, {150, 2}, -1, 1), many = make_operand(t, {20000, 2});
  Operand at = index_of({150}, 20000);
  for (int k = 20; k < 75; k++) reinterpret_cast<int64_t*>(at.bytes.data())[2 * k] = 777;
  CHECK(difference(m, {OpId::embedding_dense_backward, {wide, at}, {many}, {20000, -1, 0}, {}, {}}) == 0);
  CHECK(m.launches["scatter_sorted"] == 1);
  CHECK(m.launches["rank_keys"] == 1);
  Case bad{OpId::embedding_dense_backward, {wide, at}, {make_operand(t, {9, 2})}, {9, -1, 0}, {}, {}};
  for (int k = 0; k < 150; k++) reinterpret_cast<int64_t*>(bad.in[1].bytes.data())[k] = k == 77 ? 9 : 1;
  std::string error;
  CHECK(difference(m, bad, &error) == 0);
  CHECK(error == "embedding: index 9 is out of bounds for dimension 0 with size 9");
}

TEST_CASE("cuda extern: masked_scatter and masked_gather") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kUInt8, DType::kFloat64}) {
    const Operand x = random_operand(t, {50, 60}, 0, 9, {1, 0}), y = make_operand(t, {50, 60});
    const Operand mask = random_operand(DType::kBool, {50, 60}, 0, 1), row = random_operand(DType::kBool, {60}, 0, 1);
    CHECK(difference(m, {OpId::masked_scatter, {x, mask, random_operand(t, {3000}, 0, 9)}, {y}, {}, {}, {}}) == 0);
    CHECK(difference(m, {OpId::masked_scatter, {x, row, random_operand(t, {70, 50}, 0, 9)}, {y}, {}, {}, {}}) == 0);
    CHECK(difference(m, {OpId::masked_scatter, {x, mask, random_operand(t, {7}, 0, 9)}, {y}, {}, {}, {}}) == 0);
    CHECK(difference(m, {OpId::masked_assign, {x, mask, random_operand(t, {3000}, 0, 9)}, {y}, {}, {}, {}}) == 0);
    CHECK(difference(m, {OpId::masked_gather, {x, mask}, {make_operand(t, {40, 60})}, {40, 60}, {}, {}}) == 0);
  }
}

TEST_CASE("cuda extern: sort and topk") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt8}) {
    INFO(name(t));
    for (int64_t n : {1, 7, 300, 5000}) {
      Operand x = random_operand(t, {2, n, 2}, -20, 20);
      if (t == DType::kFloat32) {
        auto* p = reinterpret_cast<float*>(x.bytes.data());
        p[0] = NAN, p[n] = -0.0f, p[n / 2] = INFINITY;
      }
      const Operand y = make_operand(t, {2, n, 2}), i = make_operand(DType::kInt64, {2, n, 2});
      for (int64_t down : {0, 1}) CHECK(difference(m, {OpId::sort, {x}, {y, i}, {1, down, 0}, {}, {}}) == 0);
      const int64_t k = std::min<int64_t>(n, 5);
      CHECK(difference(m, {OpId::topk,
                           {x},
                           {make_operand(t, {2, k, 2}), make_operand(DType::kInt64, {2, k, 2})},
                           {k, -2, 1, 1},
                           {},
                           {}}) == 0);
    }
  }
}

TEST_CASE("cuda extern: the first of long rows are found in tiles") {
  HostMachine m;
  // The last tile of a row has fewer keys than are wanted; equal elements; few rows and many.
  for (const auto& [rows, n, k] : {std::tuple{2, 4100, 70}, {1, 4353, 5}, {30, 4600, 3}}) {
    const Operand x = random_operand(DType::kInt8, {rows, n}, -20, 20);
    const Operand y = make_operand(DType::kInt8, {rows, k}), i = make_operand(DType::kInt64, {rows, k});
    CHECK(difference(m, {OpId::topk, {x}, {y, i}, {k, 1, 1, 1}, {}, {}}) == 0);
  }
  CHECK(m.launches["rank_tiles"] > 4);
  CHECK(m.launches["top_of_tiles"] == 1);
}

TEST_CASE("cuda extern: many rows are sorted in tiles") {
  HostMachine m;
  const Operand x = random_operand(DType::kInt8, {400, 300}, -20, 20), y = make_operand(DType::kInt8, {400, 300});
  CHECK(difference(m, {OpId::sort, {x}, {y, make_operand(DType::kInt64, {400, 300})}, {1, 0, 0}, {}, {}}) == 0);
  CHECK(m.launches["sort_tiles"] == 1);
}

TEST_CASE("cuda extern: searchsorted, isin, histc") {
  HostMachine m;
  Operand b = random_operand(DType::kFloat32, {3, 40}, 0, 9), x = random_operand(DType::kInt64, {3, 11}, 0, 9);
  for (int r = 0; r < 3; r++) {
    auto* p = reinterpret_cast<float*>(b.bytes.data()) + r * 40;
    std::sort(p, p + 40);
  }
  CHECK(difference(m, {OpId::searchsorted, {b, x, none()}, {make_operand(DType::kInt64, {3, 11})}, {0, 0}, {}, {""}}) ==
        0);
  CHECK(difference(
            m, {OpId::searchsorted, {b, x, none()}, {make_operand(DType::kInt32, {3, 11})}, {1, 0}, {}, {"right"}}) ==
        0);
  Operand order = make_operand(DType::kInt64, {40});
  for (int i = 0; i < 40; i++) reinterpret_cast<int64_t*>(order.bytes.data())[i] = 39 - i;
  Operand down = make_operand(DType::kFloat32, {40});
  for (int i = 0; i < 40; i++) reinterpret_cast<float*>(down.bytes.data())[i] = float(40 - i) / 3;
  CHECK(difference(m, {OpId::searchsorted, {down, order}, {make_operand(DType::kInt64, {})}, {0, 1}, {4}, {""}}) == 0);
  CHECK(difference(
            m, {OpId::searchsorted, {down, x, order}, {make_operand(DType::kInt64, {3, 11})}, {0, 1}, {}, {""}}) == 0);
  reinterpret_cast<int64_t*>(order.bytes.data())[3] = 40;
  CHECK(difference(
            m, {OpId::searchsorted, {down, x, order}, {make_operand(DType::kInt64, {3, 11})}, {0, 1}, {}, {""}}) == 0);
  for (DType t : {DType::kFloat32, DType::kInt16, DType::kFloat16}) {
    const Operand e = random_operand(t, {30, 3}, 0, 99, {1, 0}), tests = random_operand(t, {20}, 0, 99);
    for (int64_t invert : {0, 1}) {
      CHECK(difference(m, {OpId::isin_tensors, {e, tests}, {make_operand(DType::kBool, {30, 3})}, {invert}, {}, {}}) ==
            0);
    }
    if (!is_float(t)) continue;
    CHECK(difference(m, {OpId::histc, {e}, {make_operand(t, {10})}, {10}, {0, 0}, {}}) == 0);
    CHECK(difference(m, {OpId::histc, {e}, {make_operand(t, {10})}, {10}, {5, 50}, {}}) == 0);
    CHECK(difference(m, {OpId::histc, {e}, {make_operand(t, {10})}, {10}, {5, 2}, {}}) == 0);
  }
}

TEST_CASE("cuda extern: the incomplete gamma functions") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat64}) {
    for (int64_t upper : {0, 1}) {
      for (const double most : {1.0, 30.0, 3000.0, 1e7}) {
        const Operand a = random_operand(t, {300}, 0, most), x = random_operand(t, {300}, 0, most);
        CHECK(difference(m, {OpId::incomplete_gamma, {a, x}, {make_operand(t, {300})}, {upper}, {}, {}}) < 1e-12);
      }
    }
  }
}

TEST_CASE("cuda extern: scans") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kUInt8}) {
    INFO(name(t));
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{3, 20, 4}, std::vector<int64_t>{2, 2500, 3}}) {
      const Operand x = random_operand(t, sizes, -1, 3), y = make_operand(t, sizes);
      const Operand i = make_operand(DType::kInt64, sizes);
      for (int64_t reverse : {0, 1}) {
        CHECK(difference(m, {OpId::scan_sum, {x}, {y}, {1, reverse}, {}, {}}) < 1e-6);
        if (is_float(t)) CHECK(difference(m, {OpId::scan_logsumexp, {x}, {y}, {1, reverse}, {}, {}}) < 1e-6);
      }
      if (sizes[1] < 100) CHECK(difference(m, {OpId::scan_prod, {x}, {y}, {1, 0}, {}, {}}) < 1e-6);
      CHECK(difference(m, {OpId::scan_max, {x}, {y, i}, {1, 0}, {}, {}}) == 0);
      CHECK(difference(m, {OpId::scan_min, {x}, {y, i}, {1, 0}, {}, {}}) == 0);
    }
  }
}

}  // namespace
}  // namespace lutra::cuda
