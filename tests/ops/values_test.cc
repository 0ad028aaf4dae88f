// Tests every op in generated code against PyTorch's recorded answers. values.txt holds an op, its arguments in the
// order of its schema, "->", and the results or "error".
#include <catch2/catch.hpp>

#include <cmath>

#include "ops/core/overlap.h"
#include "ops/decompose/emit.h"
#include "tests/golden.h"
#include "tests/ops/naive_executor.h"

namespace lutra {
namespace {

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, by);) out.push_back(item);
  return out;
}

Sizes sizes_of(const std::string& text) {
  Sizes out;
  for (const std::string& s : split(text, ',')) out.push_back(std::stoll(s));
  return out;
}

double number(const std::string& text) { return text == "true" ? 1 : text == "false" ? 0 : std::stod(text); }

// The same elements, laid out as the mark says: T with dims in reverse order, S at every second place.
Tensor laid_out(const Tensor& t, char mark) {
  Sizes strides;
  SymInt next = mark == 'S' ? 2 : 1;
  for (size_t i = 0; i < t->sizes.size(); i++) {
    size_t d = mark == 'T' ? i : t->sizes.size() - 1 - i;
    strides.resize(t->sizes.size());
    strides[d] = next;
    next = next * sym_max(t->sizes[d], 1);
  }
  Tensor out = make_tensor(t->sizes, strides, t->dtype);
  each_index(t->sizes, [&](const Index& at) { set(out, at, get(t, at)); });
  return out;
}

// dtype[sizes]mark:elements
Tensor read_tensor(const std::string& text) {
  size_t open = text.find('['), close = text.find(']'), colon = text.find(':');
  Sizes sizes = sizes_of(text.substr(open + 1, close - open - 1));
  std::vector<double> elements;
  for (const std::string& s : split(text.substr(colon + 1), ',')) elements.push_back(number(s));
  Tensor t = tensor_of(sizes, elements, dtype_from_name(text.substr(0, open)));
  return colon == close + 1 ? t : laid_out(t, text[close + 1]);
}

Value read_value(const std::string& text) {
  if (text == "none") return {};
  if (text == "true" || text == "false") return text == "true";
  switch (text[0]) {
    case '#': return text == "#true" ? Scalar::of_bool(true) : Scalar(number(text.substr(1)));
    case '@': return dtype_from_name(text.substr(1));
    case '\'': return text.substr(1);
    case '(': return sizes_of(text.substr(1, text.size() - 2));
    default: return read_tensor(text);
  }
}

bool close(double got, double want, DType type) {
  if (got == want || (got != got && want != want)) return true;
  double limit = type == DType::kFloat32 ? 3e-6 : type == DType::kFloat64 ? 1e-13 : 0;
  return std::fabs(got - want) <= limit * std::max(1.0, std::fabs(want));
}

void check_same(const Tensor& got, const Tensor& want) {
  REQUIRE(got->dtype == want->dtype);
  REQUIRE(to_string(got->sizes) == to_string(want->sizes));
  std::vector<double> a = values(got), b = values(want);
  for (size_t i = 0; i < a.size(); i++) {
    INFO("element " << i << " is " << a[i] << ", not " << b[i]);
    CHECK(close(a[i], b[i], want->dtype));
  }
}

void run_case(const std::string& line) {
  INFO(line);
  std::vector<std::string> words = split(line, ' ');
  size_t arrow = size_t(std::find(words.begin(), words.end(), "->") - words.begin());
  OpId op = find_op(words[0]);
  REQUIRE(op != OpId::kCount);
  Args args;
  for (size_t i = 1; i < arrow; i++) args.push_back(read_value(words[i]));
  Results results;
  try {
    results = call_op(op, args);
  } catch (const Error& e) {
    INFO(e.what());
    CHECK(words[arrow + 1] == "error");
    CHECK(e.kind != ErrorKind::kInternal);
    return;
  }
  REQUIRE(words.size() - arrow - 1 == results.size());
  REQUIRE(words[arrow + 1] != "error");
  for (size_t i = 0; i < results.size(); i++) check_same(results[i], read_tensor(words[arrow + 1 + i]));
  // In place, where the op has that form and the result fits.
  bool fits = info(op).has(kInplace) && args[0].is<Tensor>() && results[0]->dtype == args[0].tensor()->dtype &&
              to_string(results[0]->sizes) == to_string(args[0].tensor()->sizes);
  if (!fits || overlap(args[0].tensor(), results[0]) != Overlap::kNone) return;
  check_same(call_inplace(op, args), read_tensor(words[arrow + 1]));
}

}  // namespace

TEST_CASE("values are PyTorch's", "[ops][eager]") {
  std::istringstream in(read_text("tests/ops/values.txt"));
  size_t cases = 0;
  for (std::string line; std::getline(in, line); cases++) run_case(line);
  CHECK(cases > 900);
}

}  // namespace lutra
