// Tests bindings over a reader of arguments other than Lua's: FakeTensors and symbolic numbers, as capture passes them.
#include "vm/bind/binding.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>

#include "jit/graph/graph.h"

using namespace lutra;

namespace {

// A value of the test: monostate is nil.
struct Item {
  std::variant<std::monostate, bool, Scalar, std::string, Tensor> v;
  std::vector<Item> list;
  std::map<std::string, Item> fields;
  bool table = false;
};
Item of(Tensor t) { return {t}; }
Item of(double d) { return {Scalar(d)}; }
Item of(Scalar s) { return {s}; }
Item of(const char* s) { return {std::string(s)}; }
Item list_of(std::vector<Item> items) { return {std::monostate{}, std::move(items), {}, true}; }
Item keywords(std::map<std::string, Item> fields) { return {std::monostate{}, {}, std::move(fields), true}; }

class TestReader : public ArgReader {
 public:
  explicit TestReader(std::vector<Item> args) : items_(std::move(args)), count_(int(items_.size())) {
    items_.reserve(64);
  }
  int count() const override { return count_; }
  LuaKind kind(H h) override {
    if (h >= int(items_.size())) return LuaKind::kNil;
    if (items_[h].table) return LuaKind::kTable;
    static const LuaKind kinds[] = {LuaKind::kNil, LuaKind::kBoolean, LuaKind::kNumber, LuaKind::kString,
                                    LuaKind::kTensor};
    return kinds[items_[h].v.index()];
  }
  bool boolean(H h) override { return std::get<bool>(items_[h].v); }
  Scalar number(H h) override { return std::get<Scalar>(items_[h].v); }
  std::string string(H h) override { return std::get<std::string>(items_[h].v); }
  Tensor tensor(H h) override { return std::get<Tensor>(items_[h].v); }
  int64_t length(H h) override { return int64_t(items_[h].list.size()); }
  H index(H h, int64_t i) override { return push(i <= length(h) ? Item(items_[h].list[i - 1]) : Item{}); }
  H field(H h, const char* key) override { return push(Item(items_[h].fields[key])); }
  std::vector<std::string> keys(H h) override {
    std::vector<std::string> out;
    for (auto& [key, value] : items_[h].fields) out.push_back(key);
    out.insert(out.end(), items_[h].list.size(), "?");
    return out;
  }
  std::string describe(H) override { return "a value"; }

 private:
  H push(Item item) {
    items_.push_back(std::move(item));
    return H(items_.size()) - 1;
  }
  std::vector<Item> items_;
  int count_;
};

struct Trace {
  Graph graph;
  SymScope scope{graph.env.get()};
  GraphRecorder recorder{graph};
  ModeScope mode{&recorder};
  Tensor x = graph.add_input("x", {2, 3}, {3, 1}, DType::kFloat32);

  LuaResults call(const char* name, std::vector<Item> args) {
    const Binding* binding = find_method(name);
    REQUIRE(binding);
    TestReader in(std::move(args));
    return binding->fn(*binding, in);
  }
  std::string ops() const {
    std::string out;
    for (auto& node : graph.nodes) out += std::string(name(node->op)) + " ";
    return out;
  }
};

}  // namespace

TEST_CASE("ops are recorded with symbolic numbers", "[bind]") {
  Trace t;
  const Scalar lr = t.graph.add_scalar("lr", 0.5);
  LuaResults out = t.call("mul", {of(t.x), of(lr)});
  CHECK(t.ops() == "mul ");
  CHECK(t.graph.nodes[0]->args[1].as<Scalar>().expr == lr.expr);
  CHECK(to_string(out[0].tensor()->sizes) == "{2, 3}");
  CHECK(t.graph.env->guards().empty());
}

TEST_CASE("a symbolic number as a dimension is pinned", "[bind]") {
  Trace t;
  LuaResults out = t.call("sum", {of(t.x), of(t.graph.add_scalar("d", 1))});
  CHECK(to_string(out[0].tensor()->sizes) == "{2}");
  CHECK(t.graph.env->guards().size() == 2);  // that it is whole, and which
}

TEST_CASE("keywords, overloads and views of FakeTensors", "[bind]") {
  Trace t;
  CHECK(to_string(t.call("sum", {of(t.x), keywords({{"dim", of(0.0)}})})[0].tensor()->sizes) == "{3}");
  CHECK(t.call("max", {of(t.x), of(1)}).size() == 2);
  CHECK(to_string(t.call("view", {of(t.x), of(3), of(-1)})[0].tensor()->sizes) == "{3, 2}");
  CHECK(t.call("to", {of(t.x), of("int64")})[0].tensor()->dtype == DType::kInt64);
  CHECK(t.call("size", {of(t.x)}).size() == 2);
}

TEST_CASE("indices of FakeTensors", "[bind]") {
  Trace t;
  TestReader in({of(t.x), list_of({of("1:"), list_of({of(0.0), of(2)})}), of(7)});
  CHECK(to_string(index_get(t.x, in, 1)->sizes) == "{1, 2}");
  index_set(t.x, in, 1, 2);
  CHECK(t.ops().find("copy_") != std::string::npos);
  Tensor rows = t.graph.add_input("rows", {4}, {1}, DType::kInt64);
  TestReader by_rows({of(t.x), of(rows)});
  CHECK(to_string(index_get(t.x, by_rows, 1)->sizes) == "{4, 3}");
}

TEST_CASE("what reads elements says so", "[bind]") {
  Trace t;
  CHECK_THROWS_AS(t.call("allclose", {of(t.x), of(t.x)}), NeedsData);
  CHECK(find_method("item")->flags & kNeedsData);
  CHECK(find_method("totable")->raw != nullptr);
  Tensor one = t.graph.add_input("one", {}, {}, DType::kFloat32);
  CHECK_THROWS_AS(t.call("item", {of(one)}), NeedsData);
  Tensor mask = t.graph.add_input("mask", {2}, {1}, DType::kBool);
  TestReader in({of(t.x), of(mask)});
  CHECK_THROWS_AS(index_get(t.x, in, 1), NeedsData);
}

TEST_CASE("every binding can be called and found", "[bind]") {
  for (const Binding& b : bindings()) {
    INFO(b.name);
    CHECK((b.fn != nullptr) != (b.raw != nullptr));
    if (b.raw) CHECK((b.flags & (kNeedsData | kHostEffect)) != 0);
    // Some take other arguments as a method.
    const Binding* method = find_method(b.name);
    if (b.flags & kMethod) CHECK((method && method->name == b.name));
  }
  for (const char* event : {"__add", "__sub", "__mul", "__div", "__pow", "__mod", "__unm", "__len", "__lt", "__le"}) {
    CHECK(find_metamethod(event));
  }
  CHECK(!find_metamethod("__call"));
  CHECK(find_attribute("shape"));
}
