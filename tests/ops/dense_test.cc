// Tests dense memory: blocks do not overlap, are whole cache lines, and are used again.
#include "ops/core/dense.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace lutra {

TEST_CASE("dense memory: pieces of any size do not overlap, and come again", "[core]") {
  struct Piece {
    unsigned char* at;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Piece> pieces;
  for (int round = 0; round < 3; round++) {
    for (size_t bytes = 1; bytes < 6000; bytes += 37) {
      auto* at = static_cast<unsigned char*>(take_dense(bytes));
      CHECK(reinterpret_cast<uintptr_t>(at) % 64 == 0);
      pieces.push_back({at, bytes, static_cast<unsigned char>(bytes + size_t(round))});
      std::memset(at, pieces.back().mark, bytes);
    }
    for (size_t i = 0; i < pieces.size(); i++) {
      const Piece& p = pieces[i];
      CHECK((p.at[0] == p.mark && p.at[p.bytes / 2] == p.mark && p.at[p.bytes - 1] == p.mark));
    }
    for (size_t i = pieces.size(); i-- > pieces.size() / 2;) give_back_dense(pieces[i].at, pieces[i].bytes);
    pieces.resize(pieces.size() / 2);
  }
  for (const Piece& p : pieces) give_back_dense(p.at, p.bytes);
}

TEST_CASE("dense memory: objects by new and by allocate_shared", "[core]") {
  struct Base : Dense {
    virtual ~Base() = default;
  };
  struct Large : Base {
    double values[100] = {};
  };
  for (int i = 0; i < 100; i++) {
    std::unique_ptr<Base> one = std::make_unique<Large>();
    const auto shared = std::allocate_shared<Large>(DenseAllocator<Large>());
    CHECK(static_cast<Base*>(shared.get()) != one.get());
  }
}

}  // namespace lutra
