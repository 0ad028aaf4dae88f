// Runs branches and loops op by op.
#include "ops/defs/control.h"

#include <algorithm>

#include "ops/core/half.h"
#include "ops/core/interrupt.h"
#include "ops/core/tensor_type.h"
#include "ops/defs/call.h"
#include "ops/defs/element.h"
#include "ops/defs/order.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;

const Tensors& list(const Args& args, size_t i) { return args[i].as<Tensors>(); }
const Function& function(const Args& args, size_t i) { return *args[i].as<FunctionRef>(); }

bool holds(const Tensor& t) { return Elements(t).at(0).to_double() != 0; }

Tensors joined(Tensors a, const Tensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Results run_cond(const Args& args) {
  const bool first = holds(args[0].tensor());
  return function(args, first ? 1 : 2).run(list(args, first ? 3 : 4));
}

Results run_while(const Args& args) {
  Tensors carried = list(args, 2);
  const size_t count = carried.size();
  const int64_t kept = args[5].sym_int().hint;
  const std::vector<TensorType> results = function(args, 1).results();
  std::vector<Tensors> made(results.size() - count);
  while (holds(function(args, 0).run(joined(carried, list(args, 3)))[0])) {
    check_stop();
    carried = function(args, 1).run(joined(carried, list(args, 4)));
    for (size_t k = 0; k < made.size(); k++) {
      if (int64_t(made[k].size()) < kept) made[k].push_back(carried[count + k]);
    }
    carried.resize(count);
  }
  // If no step ran, `carried` still is the caller's own memory.
  if (!carried.empty() && carried[0].same(list(args, 2)[0])) {
    for (Tensor& t : carried) t = own_copy(t);
  }
  const Device device = carried[0]->device();
  for (size_t k = 0; k < made.size(); k++) carried.push_back(stacked_steps(made[k], kept, results[count + k], device));
  return carried;
}

Results run_while_back(const Args& args) {
  Tensors carried = list(args, 3), sums = list(args, 5);
  const auto n = int64_t(Elements(args[2].tensor()).at(0).to_double());
  std::vector<Tensors> saved;
  for (int64_t step = 0; step < n; step++) {
    check_stop();
    Tensors out = function(args, 0).run(joined(carried, list(args, 4)));
    saved.emplace_back(out.begin() + ptrdiff_t(carried.size()), out.end());
    out.resize(carried.size());
    carried = std::move(out);
  }
  for (; !saved.empty(); saved.pop_back()) {
    check_stop();
    sums = function(args, 1).run(joined(joined(sums, saved.back()), list(args, 6)));
  }
  if (n == 0) {
    for (Tensor& t : sums) t = own_copy(t);
  }
  return sums;
}

Results run_scan(const Args& args) {
  const Function& body = function(args, 0);
  Tensors carried = list(args, 1);
  const Tensors& xs = list(args, 2);
  const Sizes& dims = args[3].as<Sizes>();
  const int64_t n = scan_length(args);
  const size_t count = carried.size();
  std::vector<Tensors> ys(body.results().size() - count, Tensors(size_t(n)));
  for (int64_t step = 0; step < n; step++) {
    check_stop();
    const int64_t i = args[4].as<bool>() ? n - 1 - step : step;
    Tensors arguments = carried;
    for (size_t k = 0; k < xs.size(); k++) arguments.push_back(slice_of(xs[k], dims[k].hint, i));
    Tensors out = body.run(joined(std::move(arguments), list(args, 5)));
    for (size_t k = 0; k < ys.size(); k++) ys[k][size_t(i)] = out[count + k];
    out.resize(count);
    carried = std::move(out);
  }
  for (const Tensors& column : ys) carried.push_back(op1(OpId::stack, {column, vdim(0)}));
  return carried;
}

}  // namespace

Results call_cond(const Tensor& pred, const ControlFunction& f, const ControlFunction& g) {
  return call_op(OpId::cond, {pred, f.function, g.function, f.reads, g.reads});
}

Results call_while_loop(const ControlFunction& test, const ControlFunction& body, const Tensors& carried,
                        int64_t kept) {
  return call_op(OpId::while_loop,
                 {test.function, body.function, carried, test.reads, body.reads, Scalar::of_int(kept)});
}

Results call_while_loop_back(const ControlFunction& body, const ControlFunction& back, const Tensor& steps,
                             const Tensors& carried, const Tensors& sums, const Tensors& saved) {
  return call_op(OpId::while_loop_back,
                 {body.function, back.function, steps, carried, body.reads, sums, back.reads, saved});
}

Tensor stacked_steps(const Tensors& made, int64_t n, const TensorType& like, Device device) {
  Sizes sizes = {SymInt(n - int64_t(made.size()))};
  for (SymInt s : like.sizes) sizes.push_back(s);
  const Tensor rest = op1(OpId::full, {sizes, Scalar(0.0), like.dtype, device});
  if (made.empty()) return rest;
  return op1(OpId::cat, {Tensors{op1(OpId::stack, {made, vdim(0)}), rest}, vdim(0)});
}

Results call_scan(const ControlFunction& body, const Tensors& carried, const Tensors& xs, const Sizes& dims,
                  bool reverse) {
  return call_op(OpId::scan, {body.function, carried, xs, dims, reverse, body.reads});
}

Tensor own_copy(const Tensor& t) { return op1(OpId::clone, {t}); }

Tensor contiguous_copy(const Tensor& t) { return op1(OpId::clone, {t, std::string("contiguous_format")}); }

Tensor laid_as(const Tensor& t, const Tensor& like) {
  const Sizes order = falling(like->strides, true);
  Sizes sizes, strides;
  for (SymInt d : order) sizes.push_back(t->sizes[size_t(d.hint)]), strides.push_back(t->strides[size_t(d.hint)]);
  if (are_equal(strides, contiguous_strides(sizes))) return t;
  return op1(OpId::permute, {contiguous_copy(op1(OpId::permute, {t, order})), inverse(order)});
}

Tensor zeros_laid_as(const Tensor& like) {
  const Sizes order = falling(like->strides, true);
  Sizes sizes;
  for (SymInt d : order) sizes.push_back(like->sizes[size_t(d.hint)]);
  const Tensor zeros = op1(OpId::full, {sizes, Scalar(0.0), like->dtype, like->device()});
  return op1(OpId::permute, {zeros, inverse(order)});
}

bool takes_tensor_for_number(OpId op, const Tensor& t) {
  switch (op) {
    case OpId::add:
    case OpId::sub:
    case OpId::mul:
    case OpId::div:
    case OpId::eq:
    case OpId::ne:
    case OpId::lt:
    case OpId::le:
    case OpId::gt:
    case OpId::ge: return is_float(t->dtype) && !is_stored(t->dtype) && !is_half(t->dtype);
    default: return false;
  }
}

int64_t scan_length(const Args& args) { return list(args, 2)[0]->sizes[size_t(args[3].as<Sizes>()[0].hint)].hint; }

Tensor slice_of(const Tensor& x, int64_t dim, SymInt i) { return op1(OpId::select, {x, vdim(dim), Scalar::of_sym(i)}); }

Tensor slices_of(const Tensor& x, int64_t dim, SymInt from, SymInt n) {
  return op1(OpId::slice, {x, vdim(dim), Scalar::of_sym(from), Scalar::of_sym(from + n)});
}

Tensor stack_of(const Tensor& slice) { return op1(OpId::unsqueeze, {slice, vdim(0)}); }

Tensor unsliced(const Tensors& stacks, int64_t dim) {
  const Tensor all = stacks.size() == 1 ? stacks[0] : op1(OpId::cat, {stacks, vdim(0)});
  return dim == 0 ? all : op1(OpId::movedim, {all, Sizes{SymInt(0)}, Sizes{SymInt(dim)}});
}

Control control_of(OpId op) {
  switch (op) {
    case OpId::cond: return Control::kCond;
    case OpId::while_loop: return Control::kWhileLoop;
    case OpId::while_loop_back: return Control::kWhileLoopBack;
    case OpId::scan: return Control::kScan;
    default: return Control::kNone;
  }
}

Results run_control(OpId op, const Args& args) {
  switch (control_of(op)) {
    case Control::kCond: return run_cond(args);
    case Control::kWhileLoop: return run_while(args);
    case Control::kWhileLoopBack: return run_while_back(args);
    case Control::kScan: return run_scan(args);
    case Control::kNone: break;
  }
  fail_internal("run_control: ", name(op));
}

}  // namespace lutra
