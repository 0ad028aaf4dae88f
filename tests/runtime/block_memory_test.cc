// Tests blocks of all sizes from several threads: they do not overlap, are aligned, and are returned when freed.
#include "ops/core/block_memory.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace lutra {
namespace {

struct Block {
  char* data;
  size_t bytes;
  char mark;
};

// Whether the block holds its mark from the first byte to the last.
bool is_whole(const Block& b) {
  for (size_t i = 0; i < b.bytes; i += 509) {
    if (b.data[i] != b.mark) return false;
  }
  return b.data[b.bytes - 1] == b.mark;
}

// How many blocks were bad.
int churn(uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Block> blocks;
  int bad = 0;
  const auto drop = [&](size_t i) {
    bad += !is_whole(blocks[i]);
    free_block(blocks[i].data, blocks[i].bytes);
    blocks[i] = blocks.back();
    blocks.pop_back();
  };
  for (int round = 0; round < 600; round++) {
    if (blocks.size() > 40 || (!blocks.empty() && rng() % 3 == 0)) drop(rng() % blocks.size());
    const size_t bytes = (1 + rng() % 64) * (size_t(64) << rng() % 10);
    Block b{static_cast<char*>(new_block(bytes)), bytes, char(rng())};
    if (!b.data || reinterpret_cast<uintptr_t>(b.data) % kBlockAlignment) return 1000;
    std::memset(b.data, b.mark, bytes);
    blocks.push_back(b);
  }
  while (!blocks.empty()) drop(0);
  return bad;
}

size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("blocks of several threads lie apart", "[runtime]") {
  std::vector<int> bad(4, -1);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; i++) threads.emplace_back([&, i] { bad[i] = churn(i + 1); });
  for (std::thread& t : threads) t.join();
  CHECK(bad == std::vector<int>(4, 0));
}

TEST_CASE("memory of freed blocks goes back while others of their chunk live", "[runtime]") {
  constexpr size_t kBytes = size_t(256) << 10, kCount = 256;
  std::vector<void*> blocks;
  for (size_t i = 0; i < kCount; i++) std::memset(blocks.emplace_back(new_block(kBytes)), 1, kBytes);
  const size_t full = resident_bytes();
  // One in sixteen stays, so that no chunk is free.
  for (size_t i = 0; i < kCount; i++) {
    if (i % 16) free_block(blocks[i], kBytes);
  }
  CHECK(resident_bytes() + kCount * kBytes * 3 / 4 < full);
  for (size_t i = 0; i < kCount; i += 16) free_block(blocks[i], kBytes);
}

}  // namespace lutra
