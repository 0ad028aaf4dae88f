// A C++11 host that uses lutra.hpp: tensors, functions, ops, its own functions, errors as exceptions.
#include "vm/capi/lutra.hpp"

#include "tests/host/check.h"

namespace {

template <class F>
void fails(int code, const char* text, F&& f) {
  try {
    f();
    check(false, text);
  } catch (const lutra::Error& e) {
    check(e.code == code && std::strstr(e.what(), text), e.what());
  }
}

void tensors(lutra::State& S) {
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  lutra::Tensor x = S.tensor(data.data(), {2, 3}), same = x;
  check(x.sizes() == lutra::Sizes{2, 3} && x.strides() == lutra::Sizes{3, 1} && same.data<float>() == data.data(), "x");
  lutra::Tensor t = S.tensor(data.data(), {3, 2}, {1, 3});
  check(t.to_vector<float>() == std::vector<float>({1, 4, 2, 5, 3, 6}), "strides");
  lutra::Tensor owned = S.tensor(std::vector<std::int64_t>{1, 2, 3}, {3});
  check(owned.dtype() == LUTRA_INT64 && owned.numel() == 3, "elements that were moved in");
  check(S.op("matmul", {x, t}).sizes() == lutra::Sizes({2, 2}), "matmul");
  const lutra::Tensor sum = S.op("sum", {x, lutra::Sizes{1}, lutra::Value::keyword("keepdim", true)});
  check(sum.sizes() == lutra::Sizes({2, 1}) && sum.to_vector<float>()[1] == 15, "sum by keyword");
  check(S.op("sum", {owned}).item<std::int64_t>() == 6, "item");
  const std::vector<lutra::Value> most = S.op("max", {x, 1}, 2);
  check(most[0].tensor().to_vector<float>()[0] == 3 && most[1].tensor().dtype() == LUTRA_INT64, "two results");
  check(S.from_dlpack(x.to_dlpack()).data<float>() == data.data(), "DLPack");
  check(S.from_dlpack(x.to_dlpack_unversioned()).data<float>() == data.data(), "DLPack before version 1");
  S.empty(LUTRA_FLOAT32, {2}).copy_from(std::vector<float>{1, 2});
  fails(LUTRA_ERROR_ARGUMENT, "a tensor of float64 is needed, this one is float32", [&] { x.item<double>(); });
  fails(LUTRA_ERROR_ARGUMENT, "there is no op 'matmool'", [&] { S.op("matmool", {x}); });
  fails(LUTRA_ERROR_RUN, "matmul: shapes {2, 3} and {2, 3} cannot be multiplied", [&] { S.op("matmul", {x, x}); });
  fails(LUTRA_ERROR_ARGUMENT, "another number", [&] { S.tensor(std::vector<float>{1}, {2}); });
}

void functions(lutra::State& S) {
  S.run("step = lt.compile(function(x, y) return x * 2, y end)");
  lutra::Function step = S.function("step");
  const lutra::Tensor x = S.tensor(std::vector<float>{1, 2}, {2});
  check(step(x).to_vector<float>()[1] == 4, "a call");
  const std::vector<lutra::Tensor> both = step.call({x, x}, 3);
  check(both[1].to_vector<float>()[0] == 1 && !both[2], "nil");
  const auto back = S.function("function(a, b, c) return c, b, a end").call_values({1.5, "text", nullptr}, 3);
  check(back[0].kind() == LUTRA_NIL && back[1].string() == "text" && back[2].number() == 1.5, "values");
  S.register_function("host.join", [&](const std::vector<lutra::Value>& in) -> std::vector<lutra::Value> {
    if (in.size() < 2) throw std::runtime_error("join what?");
    return {in[0].string() + in[1].string(), S.op("add", {x, x})};
  });
  S.run("local s, t = host.join('a', 'b') assert(s == 'ab' and t[1]:item() == 4)");
  fails(LUTRA_ERROR_RUN, "join what?", [&] { S.run("host.join()"); });
  fails(LUTRA_ERROR_SYNTAX, "host:1:", [&] { S.run("x = = 1"); });
  fails(LUTRA_ERROR_FILE, "no such file", [&] { S.run_file("no such file.lua"); });
}

// Integers of any type as values.
void integers(lutra::State& S) {
  const lutra::Tensor x = S.tensor(std::vector<float>{1, 2, 3}, {3});
  const std::vector<float> list(2);
  check(S.op("narrow", {x, 0, 1u, list.size()}).to_vector<float>()[1] == 3, "sizes of C++ as arguments");
  check(S.op("mul", {x, short(2)}).to_vector<float>()[0] == 2 && lutra::Value(true).kind() == LUTRA_BOOLEAN, "short");
  fails(LUTRA_ERROR_ARGUMENT, "does not fit", [] { lutra::Value(~std::uint64_t(0)); });
}

// Tests what a tensor's last reference frees, what ends a call, and a state dictionary in memory.
void owners(lutra::State& S) {
  static int deleted = 0;
  float data[2] = {1, 2};
  S.tensor(
      data, {2}, {1}, [](void*, void* arg) { deleted += *static_cast<int*>(arg); }, &(deleted = 1));
  check(deleted == 2, "a deleter");
  S.set_limits(0.05);
  fails(LUTRA_ERROR_LIMIT, "limits: 0.05 seconds are over", [&] { S.run("while true do end"); });
  S.set_limits(0);
  S.register_function("host.stop", [&](const std::vector<lutra::Value>&) -> std::vector<lutra::Value> {
    S.interrupt();
    return {};
  });
  fails(LUTRA_ERROR_LIMIT, "interrupted!", [&] { S.run("host.stop() while true do end"); });
  S.run("net = lt.nn.Linear(1, 1, {bias = false})");
  const std::string header = R"({"weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = char(header.size());
  bytes += header + std::string(4, '\0');
  const float weight = 7;
  std::memcpy(&bytes[bytes.size() - 4], &weight, 4);
  S.load_state("net", bytes.data(), bytes.size());
  S.run("assert(net.weight:item() == 7)");
  fails(LUTRA_ERROR_RUN, "", [&] { S.load_state("net", bytes.data(), 4); });
}

// Tables, as arguments, as results and from functions of the host.
void tables(lutra::State& S) {
  using lutra::Value;
  const lutra::Tensor x = S.tensor(std::vector<float>{1, 2}, {2});
  const Value settings = Value::table({x, "second", Value::keyword("lr", 0.5),
                                       Value::keyword("inner", Value::table({1, Value::keyword("t", x), true})),
                                       Value::keyword("empty", Value::table({}))});
  const Value copy = settings;
  S.run(
      "function look(t) assert(#t == 2 and t[2] == 'second' and t.lr == 0.5 and next(t.empty) == nil) "
      "assert(t[1] == t.inner.t and t.inner[1] == 1 and t.inner[2] == true) return t.inner.t:sum() end");
  check(S.function("look").call_values({copy}, 1)[0].tensor().item<float>() == 3, "a table in");
  const std::vector<Value> out =
      S.function("function(t) return {t.inner, {}, name = 'n', [3] = 7}, nil end").call_values({settings}, 2);
  const Value& t = out[0];
  check(t.kind() == LUTRA_TABLE && out[1].kind() == LUTRA_NIL && t.values().size() == 4, "a table out");
  check(t["name"].string() == "n" && t.names()[3] == "name" && t.names()[2].empty() && t.values()[2].number() == 7,
        "fields");
  check(t.values()[0]["t"].tensor().data<float>() == x.data<float>() && t.values()[0].values()[1].boolean(), "nested");
  check(t.values()[1].values().empty() && !t.find("other"), "an empty table, a field that is not there");
  check(S.function("look")
                .call_values(
                    {Value::table({t.values()[0]["t"], "second", Value::keyword("lr", 0.5),
                                   Value::keyword("inner", t.values()[0]), Value::keyword("empty", t.values()[1])})},
                    1)[0]
                .tensor()
                .item<float>() == 3,
        "a table out and in again");
  S.register_function("host.report", [&](const std::vector<Value>&) -> std::vector<Value> {
    return {
        Value::table({x, Value::keyword("text", std::string(100, 'x')), Value::keyword("deep", Value::table({x}))})};
  });
  S.run("local r = host.report() assert(r[1] == r.deep[1] and r.text == ('x'):rep(100))");
  fails(LUTRA_ERROR_ARGUMENT, "the table has no field 'other'", [&] { t["other"].number(); });
  fails(LUTRA_ERROR_ARGUMENT, "the value is of another kind", [&] { out[1].values(); });
  fails(LUTRA_ERROR_ARGUMENT, "for which there is no value",
        [&] { S.function("function(x) return {x, {print}} end").call_values({x}, 1); });
  Value deep = 1;
  for (int i = 0; i < 17; i++) deep = Value::table({deep});
  fails(LUTRA_ERROR_ARGUMENT, "more than 16 deep", [&] { S.function("print").call_values({deep}, 0); });
}

int throws(lutra_State*, void*, const lutra_Value*, int, lutra_Value*, int*) { throw std::runtime_error("thrown"); }
int throws_int(lutra_State*, void*, const lutra_Value*, int, lutra_Value*, int*) { throw 42; }

int op_throws(lutra_State*, void*, const lutra_Value* in, int, lutra_Tensor* const* out, int) {
  if (lutra_tensor_numel(in[0].as.tensor) == 3) throw std::runtime_error("thrown by a kernel");
  if (lutra_tensor_numel(in[0].as.tensor) == 4) throw 42;
  std::memset(lutra_tensor_data(out[0]), 0, size_t(lutra_tensor_numel(out[0])) * 4);
  return LUTRA_OK;
}

using Values = std::vector<lutra::Value>;
using Tensors = std::vector<lutra::Tensor>;

// rotate(Tensor[] xs, int by): each tensor's elements moved on, with a gradient.
void ops(lutra::State& S) {
  const auto move = [](const lutra::Tensor& from, const lutra::Tensor& to, std::int64_t by) {
    const std::int64_t n = from.numel();
    for (std::int64_t i = 0; i < n; i++) to.data<float>()[(i + by + n) % n] = from.data<float>()[i];
  };
  lutra::Op rotate;
  rotate.shape = [](const Values& in, std::vector<lutra_Shape>& out) {
    if (in[0].values().size() != 2) throw std::runtime_error("two tensors, please");
    out[1].sizes[0] = in[0].values()[1].tensor().numel();
  };
  rotate.kernel = [move](const Values& in, const Tensors& out) {
    for (size_t k = 0; k < 2; k++) move(in[0].values()[k].tensor(), out[k], std::int64_t(in[1].number()));
  };
  rotate.gradient = [move](const Values& in, const Tensors&, const Tensors& g, const Tensors& to) {
    for (size_t k = 0; k < 2; k++) {
      if (to[k]) move(g[k], to[k], -std::int64_t(in[1].number()));
    }
  };
  S.register_op("rotate(Tensor[] xs, int by=1) -> (Tensor, Tensor)", rotate);
  S.run(
      "local f = function(a, b) local x, y = lt.ops.rotate({a * 1, b}, {by = 1}) return x * lt.tensor({1, 2, 3}), y "
      "end\n"
      "for _, f in ipairs {f, lt.compile(f, {fullgraph = true})} do\n"
      "  for i = 1, 2 do local a, b = lt.tensor({1, 2, 3}, {requires_grad = true}), lt.tensor({4, 5})\n"
      "    local x, y = f(a, b) x:sum():backward()\n"
      "    assert(x:equal(lt.tensor({3, 2, 6})) and y:equal(lt.tensor({5, 4})))\n"
      "    assert(a.grad:equal(lt.tensor({2, 3, 1}))) end end");
  fails(LUTRA_ERROR_RUN, "rotate: two tensors, please", [&] { S.run("lt.ops.rotate({lt.ones(1)})"); });
  fails(LUTRA_ERROR_ARGUMENT, "no schema", [&] { S.register_op("rotate", rotate); });
  fails(LUTRA_ERROR_ARGUMENT, "the kernel must not be NULL", [&] { S.register_op("r(Tensor x) -> Tensor", {}); });
}

// Tests exceptions that leave the kernel of an op, in eager and compiled code.
void exceptions_of_ops(lutra::State& S) {
  lutra_OpCallbacks rules = {};
  rules.size = sizeof rules, rules.kernel = op_throws;
  lutra::check(lutra_register_op(S.handle(), "zero(Tensor x) -> Tensor", &rules), S.handle());
  S.run("f = lt.compile(function(x) local y = x * 2 return lt.ops.zero(y) + 1 end)");
  for (int i = 0; i < 3; i++) {
    S.run("assert(f(lt.ones(2)):sum():item() == 2)");
    fails(LUTRA_ERROR_RUN, "zero: thrown by a kernel", [&] { S.run("lt.ops.zero(lt.ones(3))"); });
    fails(LUTRA_ERROR_RUN, "zero: thrown by a kernel", [&] { S.run("f(lt.ones(3))"); });
    S.run("assert(not pcall(lt.ops.zero, lt.ones(4)) and not pcall(f, lt.ones(4)))");
  }
  S.run("assert(f(lt.ones(5)):sum():item() == 5)");
}

// Exceptions that leave a callback of C.
void exceptions(lutra::State& S) {
  lutra_register(S.handle(), "host.throws", throws, nullptr);
  lutra_register(S.handle(), "host.throws_int", throws_int, nullptr);
  S.run("local ok, e = pcall(host.throws) assert(not ok and e:find 'thrown', e)");
  S.run("for i = 1, 100 do assert(not pcall(host.throws_int)) end");
  fails(LUTRA_ERROR_RUN, "thrown", [&] { S.run("host.throws()"); });
  S.run("assert(lt.ones(2):sum():item() == 2)");
}

}  // namespace

int main() {
  try {
    lutra::State S;
    tensors(S);
    functions(S);
    tables(S);
    integers(S);
    owners(S);
    exceptions(S);
    ops(S);
    exceptions_of_ops(S);
  } catch (const std::exception& e) {
    check(false, e.what());
  }
  return failures;
}
