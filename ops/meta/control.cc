// Meta rules of control flow: they check the arguments against the functions' parameters. The results are the
// functions'.
#include "ops/core/tensor_type.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;

const Tensors& list(const Args& args, size_t i) { return args[i].as<Tensors>(); }
const Function& function(const Args& args, size_t i) { return *args[i].as<FunctionRef>(); }

std::string text_of(const TensorType& t) {
  return str(info(t.dtype).ir_name, to_string(t.sizes), " strides ", to_string(t.strides));
}

void check_types(OpId op, const char* what, const std::vector<TensorType>& wanted,
                 const std::vector<TensorType>& given) {
  if (wanted.size() != given.size()) {
    fail(name(op), ": ", what, " are ", given.size(), " tensors, not ", wanted.size());
  }
  for (size_t i = 0; i < wanted.size(); i++) {
    if (are_equal(wanted[i], given[i])) continue;
    fail(name(op), ": ", what, ": tensor ", i, " is ", text_of(given[i]), ", not ", text_of(wanted[i]));
  }
}

void check_call(OpId op, const char* what, const Function& f, std::initializer_list<const Tensors*> lists) {
  std::vector<TensorType> given;
  for (const Tensors* l : lists) {
    for (const Tensor& t : *l) given.push_back(type_of(t));
  }
  check_types(op, what, f.parameters(), given);
}

void check_condition(OpId op, const char* what, const TensorType& t) {
  int64_t n = 1;
  for (SymInt s : t.sizes) n *= s.guard();
  if (n != 1) fail(name(op), ": ", what, " must have one element, has ", n);
}

ResultSpecs specs_of(const std::vector<TensorType>& types) {
  ResultSpecs specs;
  for (const TensorType& t : types) specs.push_back({t.sizes, t.strides, t.dtype, false, SymInt(0)});
  return specs;
}

// Describes the carried values, then stacks of n steps of the other results.
ResultSpecs stacked_behind(size_t carried, SymInt n, const std::vector<TensorType>& results) {
  ResultSpecs specs = specs_of(results);
  for (size_t i = carried; i < specs.size(); i++) {
    Sizes sizes = {n};
    for (SymInt s : results[i].sizes) sizes.push_back(s);
    specs[i] = contiguous_spec(sizes, results[i].dtype);
  }
  return specs;
}

}  // namespace

ResultSpecs meta_cond(OpId op, const Args& args) {
  const Function &f = function(args, 1), &g = function(args, 2);
  check_condition(op, "pred", type_of(args[0].as<Tensor>()));
  check_call(op, "f's arguments", f, {&list(args, 3)});
  check_call(op, "g's arguments", g, {&list(args, 4)});
  check_types(op, "g's results", f.results(), g.results());
  return specs_of(f.results());
}

ResultSpecs meta_while_loop(OpId op, const Args& args) {
  const Function &test = function(args, 0), &body = function(args, 1);
  const Tensors& carried = list(args, 2);
  check_call(op, "test's arguments", test, {&carried, &list(args, 3)});
  check_call(op, "body's arguments", body, {&carried, &list(args, 4)});
  const std::vector<TensorType> tests = test.results(), results = body.results();
  if (tests.size() != 1) fail("while_loop: test gives ", tests.size(), " tensors, not 1");
  check_condition(op, "what test gives", tests[0]);
  std::vector<TensorType> types;
  for (const Tensor& t : carried) types.push_back(type_of(t));
  const SymInt kept = args[5].sym_int();
  if (kept < 0) fail("while_loop: it keeps ", kept.hint, " steps");
  const bool keeps = kept > 0 && results.size() > carried.size();
  const size_t on = keeps ? carried.size() : results.size();
  check_types(op, "body's results", types, {results.begin(), results.begin() + ptrdiff_t(on)});
  return stacked_behind(carried.size(), kept, results);
}

ResultSpecs meta_while_loop_back(OpId op, const Args& args) {
  const Function &body = function(args, 0), &back = function(args, 1);
  const Tensors &carried = list(args, 3), &sums = list(args, 5);
  check_condition(op, "steps", type_of(args[2].as<Tensor>()));
  check_call(op, "body's arguments", body, {&carried, &list(args, 4)});
  const std::vector<TensorType> made = body.results(), wanted = back.parameters();
  if (made.size() < carried.size()) fail("while_loop_back: body gives ", made.size(), " tensors");
  std::vector<TensorType> on, given;
  for (const Tensor& t : carried) on.push_back(type_of(t));
  check_types(op, "what body carries on", on, {made.begin(), made.begin() + ptrdiff_t(carried.size())});
  for (const Tensor& t : sums) given.push_back(type_of(t));
  check_types(op, "back's results", given, back.results());
  const Tensors& saved = list(args, 7);
  if (!saved.empty()) {
    std::vector<TensorType> stacks, kept;
    for (const Tensor& t : saved) kept.push_back(type_of(t));
    for (const ResultSpec& s : stacked_behind(carried.size(), saved[0]->sizes[0], made))
      stacks.push_back({s.sizes, s.strides, s.dtype});
    check_types(op, "what is saved", {stacks.begin() + ptrdiff_t(carried.size()), stacks.end()}, kept);
  }
  given.insert(given.end(), made.begin() + ptrdiff_t(carried.size()), made.end());
  for (const Tensor& t : list(args, 6)) given.push_back(type_of(t));
  check_types(op, "back's arguments", wanted, given);
  return specs_of(back.results());
}

ResultSpecs meta_scan_slices(OpId op, const Args& args) {
  const Function& body = function(args, 0);
  const Tensors &carried = list(args, 1), &xs = list(args, 2), &reads = list(args, 5);
  const Sizes& dims = args[3].as<Sizes>();
  if (xs.empty() || dims.size() != xs.size()) fail("scan: ", xs.size(), " slices, but ", dims.size(), " dims");
  std::vector<TensorType> given;
  for (const Tensor& t : carried) given.push_back(type_of(t));
  SymInt n = 0;
  for (size_t k = 0; k < xs.size(); k++) {
    TensorType t = type_of(xs[k]);
    const int64_t d = dims[k].hint;
    if (d < 0 || size_t(d) >= t.sizes.size()) fail("scan: there is no dim ", d);
    if (k > 0 && t.sizes[size_t(d)] != n) fail("scan: slices of different number");
    n = t.sizes[size_t(d)];
    t.sizes.erase(size_t(d)), t.strides.erase(size_t(d));
    given.push_back(t);
  }
  for (const Tensor& t : reads) given.push_back(type_of(t));
  check_types(op, "the body's arguments", body.parameters(), given);
  const std::vector<TensorType> results = body.results();
  if (results.size() < carried.size()) fail("scan: the body gives ", results.size(), " tensors");
  given.resize(carried.size());
  check_types(op, "what the body carries on", given, {results.begin(), results.begin() + long(carried.size())});
  return stacked_behind(carried.size(), n, results);
}

}  // namespace lutra
