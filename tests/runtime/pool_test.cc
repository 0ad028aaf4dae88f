// Tests the thread pool: every chunk runs once, failures are reported, and nested jobs and jobs from several threads at
// once work.
#include "jit/runtime/pool.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/runtime/threads.h"

namespace lutra {
namespace {

struct Counts {
  std::vector<std::atomic<int>> of;
  explicit Counts(size_t n) : of(n) {}
  bool all(int value) const {
    for (const auto& c : of) {
      if (c != value) return false;
    }
    return true;
  }
};

void count(void* arg, int i) { static_cast<Counts*>(arg)->of[size_t(i)]++; }

}  // namespace

TEST_CASE("the pool runs every chunk once", "[runtime][pool]") {
  for (int threads : {1, 2, 3, 8}) {
    Threads scope(threads);
    for (int chunks : {0, 1, 2, 7, 100, 70000}) {
      Counts counts{size_t(chunks)};
      for (int round = 0; round < 20; round++) run_chunks(chunks, count, &counts);
      CHECK(counts.all(20));
    }
  }
}

TEST_CASE("the pool wakes workers that sleep", "[runtime][pool]") {
  Threads scope(2);
  Counts counts{64};
  for (int round = 0; round < 5; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    run_chunks(64, count, &counts);
  }
  CHECK(counts.all(5));
}

TEST_CASE("a chunk's failure is the caller's", "[runtime][pool]") {
  Threads scope(2);
  auto fails = [](void*, int i) {
    if (i == 3) throw std::runtime_error("chunk 3");
  };
  for (int round = 0; round < 50; round++) CHECK_THROWS_WITH(run_chunks(16, fails, nullptr), "chunk 3");
  Counts counts{16};
  run_chunks(16, count, &counts);
  CHECK(counts.all(1));
}

TEST_CASE("workers go by the settings of who waits for them", "[runtime][pool]") {
  Settings own;
  own.num_threads = 4, own.isa = "avx2";
  std::atomic<int> others{0};
  {
    const SettingsScope scope(&own);
    run_chunks(
        200, [](void* arg, int) { *static_cast<std::atomic<int>*>(arg) += settings().isa != "avx2"; }, &others);
  }
  CHECK(others == 0);
  CHECK(settings().isa != "avx2");
}

TEST_CASE("jobs within jobs and of several threads", "[runtime][pool]") {
  Threads scope(2);
  Counts counts{32};
  auto nested = [](void* arg, int) { run_chunks(32, count, arg); };
  run_chunks(8, nested, &counts);
  CHECK(counts.all(8));
  std::vector<std::thread> hosts;
  for (int t = 0; t < 4; t++) {
    hosts.emplace_back([&] {
      for (int round = 0; round < 200; round++) run_chunks(32, count, &counts);
    });
  }
  for (std::thread& t : hosts) t.join();
  CHECK(counts.all(8 + 800));
}

}  // namespace lutra
