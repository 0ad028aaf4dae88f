// call_op: schemas, arguments, modes, views, in-place conditions.
#include <catch2/catch.hpp>

#include "ops/core/overlap.h"
#include "ops/decompose/emit.h"
#include "tests/message.h"
#include "tests/ops/naive_executor.h"

namespace lutra {
namespace {

// Notes the ops it sees and passes them on.
struct Notes : Mode {
  std::string name, seen;
  std::string* log;
  Notes(std::string n, std::string* l) : name(std::move(n)), log(l) {}
  Results call(OpId op, Args& args) override {
    *log += name + ":" + lutra::name(op) + " ";
    return call_op(op, args);
  }
  Tensor call_inplace(OpId op, Args& args) override {
    *log += name + ":" + lutra::name(op) + "_ ";
    return lutra::call_inplace(op, args);
  }
};

Tensor iota(const Sizes& sizes, DType type = DType::kFloat32) {
  std::vector<double> v(size_t(numel(sizes).hint));
  for (size_t i = 0; i < v.size(); i++) v[i] = double(i);
  return tensor_of(sizes, v, type);
}

using List = std::vector<double>;

}  // namespace

TEST_CASE("schemas", "[ops]") {
  auto args = parse_schema("Tensor input, int[]? dim!=None, bool keepdim!=False, *, Scalar alpha=1.5, str how='mean'");
  REQUIRE(args.size() == 5);
  CHECK(args[0].name == "input");
  CHECK_FALSE(args[0].has_default);
  CHECK(args[1].optional);
  CHECK(args[1].specialises);
  CHECK(args[1].has_default);
  CHECK(args[1].def.is_none());
  CHECK(args[2].def.as<bool>() == false);
  CHECK_FALSE(args[2].keyword_only);
  CHECK(args[3].keyword_only);
  CHECK(args[3].def.as<Scalar>().d == 1.5);
  CHECK(args[4].def.as<std::string>() == "mean");
  CHECK_THROWS_AS(parse_schema("Tensr input"), Error);
  CHECK_THROWS_AS(parse_schema("int x=None"), Error);
  CHECK_THROWS_AS(parse_schema("Tensor"), Error);
}

TEST_CASE("the table of ops", "[ops]") {
  for (size_t i = 0; i < size_t(OpId::kCount); i++) {
    const OpInfo& op = info(OpId(i));
    CHECK(op.id == OpId(i));
    CHECK(find_op(op.name) == OpId(i));
    if (op.id != OpId::input) CHECK(op.meta_rule);
  }
  CHECK(find_op("no_such_op") == OpId::kCount);
  CHECK(find_op("") == OpId::kCount);
  CHECK(info(OpId::softmax).is_composite());
  CHECK(info(OpId::mean).vjp_decomposes);
  CHECK_FALSE(info(OpId::argmax).vjp);
}

TEST_CASE("modes run from the top, each with those below it", "[ops]") {
  NaiveScope naive;
  std::string log;
  Notes a("a", &log), b("b", &log);
  Tensor x = iota({3});
  {
    ModeScope below(&a);
    ModeScope above(&b);
    CHECK(values(add(x, Scalar(1.0))) == List{1, 2, 3});
    CHECK(log == "b:add a:add ");
    log.clear();
    call_inplace(OpId::add, {x, Scalar(1.0)});
    CHECK(log == "b:add_ a:add_ ");
    CHECK(x->storage->version == 1);
  }
  log.clear();
  add(x, x);
  CHECK(log.empty());
}

TEST_CASE("a mode pushed by a handler lies on top of those below the handler", "[ops]") {
  NaiveScope naive;
  std::string log;
  struct Pusher : Notes {
    using Notes::Notes;
    Results call(OpId op, Args& args) override {
      *log += "p ";
      Notes inner("inner", log);
      ModeScope scope(&inner);
      return call_op(op, args);
    }
  };
  Notes bottom("bottom", &log);
  Pusher pusher("p", &log);
  ModeScope one(&bottom);
  ModeScope two(&pusher);
  neg(iota({2}));
  CHECK(log == "p inner:neg bottom:neg ");
  struct Thrower : Notes {
    using Notes::Notes;
    Results call(OpId, Args&) override { fail("no"); }
  };
  Thrower thrower("t", &log);
  {
    ModeScope three(&thrower);
    CHECK_THROWS_AS(neg(iota({2})), Error);
    CHECK(current_mode() == &thrower);
  }
  CHECK(current_mode() == &pusher);
}

TEST_CASE("views alias, copies do not", "[ops]") {
  NaiveScope naive;
  Tensor x = iota({2, 3});
  Tensor t = transpose(x, int_arg(0), int_arg(1));
  CHECK(t->storage == x->storage);
  CHECK(values(t) == List{0, 3, 1, 4, 2, 5});
  CHECK(reshape(x, Sizes{6})->storage == x->storage);
  CHECK_FALSE(op1(OpId::reshape, {x, Sizes{2, 3}}).same(x));
  CHECK_FALSE(reshape(t, Sizes{6})->storage == x->storage);
  CHECK(values(reshape(t, Sizes{6})) == List{0, 3, 1, 4, 2, 5});
  CHECK(contiguous(x).same(x));
  CHECK(contiguous(t)->is_contiguous());
  CHECK(op1(OpId::to_dtype, {t, DType::kFloat32}).same(t));
  CHECK(op1(OpId::clone, {t})->strides[0].hint == 1);
  Tensor s = op1(OpId::slice, {x, int_arg(1), int_arg(-2), int_arg(9)});
  CHECK(values(s) == List{1, 2, 4, 5});
  call_inplace(OpId::mul, {s, Scalar(10.0)});
  CHECK(values(x) == List{0, 10, 20, 3, 40, 50});
  CHECK(x->storage->version == 1);
  CHECK(s->base.same(x));
  CHECK_FALSE(op1(OpId::detach, {x})->base);
}

TEST_CASE("conditions of writing in place", "[ops]") {
  NaiveScope naive;
  Tensor x = iota({3}), ids = iota({3}, DType::kInt64);
  CHECK(message([&] {
          call_inplace(OpId::add, {x, iota({2, 3})});
        }) == "add_: output with shape {3} doesn't match the broadcast shape {2, 3}");
  CHECK(message([&] {
          call_inplace(OpId::add, {ids, Scalar(0.5)});
        }) == "add_: result type float32 can't be cast to the desired output type int64");
  CHECK(message([&] { call_inplace(OpId::sum, {x}); }) == "sum: has no in-place form");
  CHECK(message([&] { call_inplace(OpId::add, {Scalar(1.0), x}); }) == "add_: argument 'input' must be a tensor");
  Tensor wide = expand(iota({1}), Sizes{3});
  CHECK(message([&] {
          call_inplace(OpId::add, {wide, Scalar(1.0)});
        }) ==
        "add_: more than one element of the written-to tensor refers to a single memory location; clone() it before "
        "writing");
  Tensor head = op1(OpId::slice, {x, int_arg(0), int_arg(0), int_arg(2)});
  Tensor tail = op1(OpId::slice, {x, int_arg(0), int_arg(1), int_arg(3)});
  CHECK(message([&] { call_op(OpId::copy_, {tail, head}); }).find("share some memory") != std::string::npos);
  CHECK(values(x) == List{0, 1, 2});
  call_op(OpId::copy_, {ids, tensor_of({}, {2.9})});
  CHECK(values(ids) == List{2, 2, 2});
  CHECK(ids->storage->version == 1);
  call_op(OpId::copy_, {x, x});
  CHECK(x->storage->version == 0);
}

TEST_CASE("overlap that is not plain is read before it is written", "[ops]") {
  NaiveScope naive;
  // Every second element of one row, and of a range that interleaves with it.
  Tensor x = iota({9});
  Tensor a = op1(OpId::slice, {x, int_arg(0), int_arg(0), int_arg(7), int_arg(2)});
  Tensor b = op1(OpId::slice, {x, int_arg(0), int_arg(2), int_arg(9), int_arg(2)});
  CHECK(overlap(a, b) == Overlap::kUnknown);
  call_inplace(OpId::add, {b, a});
  CHECK(values(x) == List{0, 1, 2, 3, 6, 5, 10, 7, 14});
}

TEST_CASE("freed storages and fakes are errors", "[ops]") {
  NaiveScope naive;
  Tensor x = iota({3});
  x->storage->free();
  CHECK(message([&] { add(iota({3}), x); }) == "add: argument 'other' was freed (x:free())");
  Tensor f = make_fake({3}, {1}, DType::kFloat32);
  CHECK(message([&] { neg(f); }).find("FakeTensor") != std::string::npos);
}

TEST_CASE("memory", "[ops]") {
  int64_t before = allocated_bytes();
  {
    Tensor x = make_tensor({1024}, DType::kFloat32);
    CHECK(allocated_bytes() == before + 4096);
    CHECK(reinterpret_cast<uintptr_t>(x->data()) % 64 == 0);
  }
  CHECK(allocated_bytes() == before);
  static int asked = 0;
  set_memory_pressure_hook([](size_t) { return ++asked, true; });
  CHECK(message([] { make_tensor({int64_t(1) << 50}, DType::kFloat32); }) ==
        "out of memory: tried to allocate 4503599627370496 bytes");
  set_memory_pressure_hook(nullptr);
  CHECK(asked == 1);
  CHECK(message([] {
          make_tensor({int64_t(1) << 40, int64_t(1) << 40}, DType::kFloat32);
        }).find("overflow the address space") != std::string::npos);
  CHECK(message([] { make_tensor({-1}, DType::kFloat32); }).find("negative size") != std::string::npos);
}

}  // namespace lutra
