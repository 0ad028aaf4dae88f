// Tests how many dropped objects a thread keeps: as many as it makes again, and few of those that other threads made.
#include "ops/core/pooled.h"

#include <catch2/catch.hpp>

#include <vector>

namespace lutra {
namespace {

constexpr size_t kBytes = 96;

// Returns n blocks from the allocator, which stand for blocks that another thread made.
std::vector<void*> made_elsewhere(size_t n) {
  std::vector<void*> all(n);
  for (void*& p : all) p = ::operator new(kBytes);
  return all;
}

void drop(DroppedObjects& list, const std::vector<void*>& all) {
  for (void* p : all) list.put(p);
}

// n objects are made, then dropped. Returns how many of them the list had not.
size_t burst(DroppedObjects& list, size_t n) {
  const size_t kept = list.count();
  std::vector<void*> all(n);
  for (void*& p : all) p = list.take(kBytes);
  drop(list, all);
  return n > kept ? n - kept : 0;
}

TEST_CASE("a thread that drops what others made keeps few objects") {
  DroppedObjects list;
  drop(list, made_elsewhere(10000));
  CHECK(list.count() == 64);
}

TEST_CASE("a thread that makes objects again finds those that it dropped") {
  DroppedObjects list;
  CHECK(burst(list, 1000) == 1000);
  CHECK(burst(list, 1000) == 0);
  CHECK(list.count() == 1000);
  for (int i = 0; i < 3; i++) burst(list, 20000);
  CHECK(list.count() > 2000);
  CHECK(list.count() <= 4096);
}

TEST_CASE("a list grows short again where its thread only drops") {
  DroppedObjects list;
  burst(list, 3000), burst(list, 3000);
  CHECK(list.count() == 3000);
  drop(list, made_elsewhere(16000));
  CHECK(list.count() < 1200);
  drop(list, made_elsewhere(16000));
  CHECK(list.count() == 64);
}

TEST_CASE("few objects are kept on demand") {
  DroppedObjects list;
  burst(list, 3000);
  list.keep_few();
  CHECK(list.count() == 64);
  CHECK(burst(list, 500) == 436);
}

}  // namespace
}  // namespace lutra
