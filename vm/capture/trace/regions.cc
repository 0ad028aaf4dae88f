// Regions of a trace, and the models of what stdlib/control calls.
#include "vm/capture/trace/regions.h"

#include "ops/defs/autocast.h"
#include "vm/capture/trace/tensor_lists.h"

namespace lutra {
namespace {

Sizes pinned(const Sizes& sizes) {
  Sizes out;
  for (SymInt s : sizes) out.push_back(s.guard());
  return out;
}

bool same_values(const Sizes& a, const Sizes& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); i++) same = a[i].hint == b[i].hint;
  return same;
}

// The function that called stdlib/control; null where the trace begins in there.
const Frame* caller_of(const Trace& t) {
  for (size_t i = t.frames.size(); i-- > 0;) {
    const Frame* f = t.frames[i];
    if (!std::string_view(f->code->file).starts_with("lutra/control/")) return f;
  }
  return nullptr;
}

void set_location(const Trace& t, GraphRecorder& recorder) {
  const Frame* f = caller_of(t);
  recorder.set_location(f ? f->code->file : t.file(), f ? f->line() : t.line());
}

std::string name_of(const Tensor& t) { return t->node && t->node->is_input() ? "x" : "y"; }

}  // namespace

ControlPlace control_place(const Trace& t) {
  const Frame* f = caller_of(t);
  return {&(f ? f : t.frames[0])->code->proto(), f ? f->pc : 0};
}

void refuse_control(Trace& t, const ControlPlace& place, const std::string& why) {
  t.decisions.plain_control.emplace(place, why);
  throw Restart();
}

Region::Region(Trace& trace, const ControlPlace& place)
    : place(place),
      trace_(trace),
      first_table_(trace.fresh_tables),
      first_cell_(trace.cells.size()),
      grad_mode_(grad_enabled()) {}

void Region::refuse(const std::string& why) const { refuse_control(trace_, place, why); }

Tensor Region::parameter(const Tensor& like) {
  if (grad_mode_ && like->requires_grad) refuse("a tensor that requires grad is read");
  const Tensor t =
      graph_->add_input(name_of(like), pinned(like->sizes), pinned(like->strides), like->dtype, like->device());
  own_.insert(t.get());
  return t;
}

Tensor Region::inside(const Tensor& t) {
  if (!t || own_.count(t.get())) return t;
  Tensor& known = lifted_[t.get()];
  if (!known) {
    known = parameter(t);
    reads_.push_back(t);
  }
  return known;
}

Results Region::call(OpId op, Args& args) {
  const OpInfo& row = info(op);
  if (row.has(kRandom)) refuse(str(row.name, " draws random numbers"));
  if (row.has(kMutates)) refuse(str(row.name, " writes a tensor"));
  for (Value& v : args) {
    if (v.is<Tensor>()) v = inside(v.tensor());
    if (v.is<std::vector<Tensor>>()) {
      for (Tensor& t : v.as<std::vector<Tensor>>()) t = inside(t);
    }
    if (v.is<Scalar>()) v = pin(v.as<Scalar>());
    if (v.is<Sizes>()) v = pinned(v.as<Sizes>());
  }
  set_location(trace_, recorder_);
  const Results results = recorder_.call(op, args);
  for (const Tensor& t : results) own_.insert(t.get());
  return results;
}

Tensor Region::call_inplace(OpId op, Args&) { refuse(str(inplace_name(op), " writes a tensor")); }

// Results have memory of their own, laid out as what they copy: eager's results are.
FunctionRef Region::finish(const std::vector<Tensor>& results) {
  if (grad_enabled() != grad_mode_) refuse("it changes the grad mode");
  for (const Tensor& r : results) {
    const Tensor from = inside(r);
    const Tensor copy = own_copy(from);
    if (!same_values(copy->strides, from->strides)) refuse("a result is no dense tensor");
    graph_->outputs.push_back(copy);
  }
  graph_->renumber();
  if (const std::string wrong = check_function(*graph_); !wrong.empty()) refuse(wrong);
  return make_function(std::move(graph_));
}

namespace {

Var* arg(Trace& t, const Vars& args, size_t i) { return i < args.size() ? t.force(args[i]) : t.nil(); }

// The argument's tensors. Anything else among them is ordinary Lua.
std::vector<Tensor> tensors(Trace& t, const Vars& args, size_t i) {
  std::vector<Tensor> out;
  if (!read_tensors(t, arg(t, args, i), out)) refuse_control(t, control_place(t), "a value is no tensor");
  return out;
}

ControlFunction& function(Trace& t, const Vars& args, size_t i) {
  return t.functions.at(size_t(t.constant(arg(t, args, i))));
}

// What call() gives, as a list. A call that the op refuses is ordinary Lua.
template <class F>
Vars results_of(Trace& t, const F& call) {
  set_location(t, t.recorder);
  t.effect = true;
  try {
    return {list_of(t, call())};
  } catch (const Error& e) {
    if (!is_users(e)) throw;
    refuse_control(t, control_place(t), e.what());
  }
}

}  // namespace

Vars run_control_possible(Trace& t, Var*, const Vars&) {
  const AutocastMode& mode = autocast_mode();
  const bool casts = mode.enabled[0] || mode.enabled[1];
  return {t.boolean(!casts && !t.decisions.plain_control.count(control_place(t)))};
}

// Parameters for values like those of the list.
Vars run_control_open(Trace& t, Var*, const Vars& args) {
  const std::vector<Tensor> likes = tensors(t, args, 0);
  t.regions.push_back(std::make_unique<Region>(t, control_place(t)));
  std::vector<Tensor> parameters;
  for (const Tensor& like : likes) parameters.push_back(t.regions.back()->parameter(like));
  return {list_of(t, parameters)};
}

// The number of the function that gives the list's tensors.
Vars run_control_close(Trace& t, Var*, const Vars& args) {
  const std::vector<Tensor> results = tensors(t, args, 0);
  Region& region = *t.regions.back();
  if (results.empty()) region.refuse("it gives nothing");
  FunctionRef f = region.finish(results);
  t.functions.push_back({std::move(f), region.reads()});
  t.regions.pop_back();
  return {t.number(double(t.functions.size() - 1))};
}

Vars run_control_refuse(Trace& t, Var*, const Vars& args) {
  refuse_control(t, control_place(t), t.text(arg(t, args, 0)));
}

Vars run_control_cond(Trace& t, Var*, const Vars& args) {
  const Tensor pred = arg(t, args, 0)->tensor;
  const ControlFunction &f = function(t, args, 1), &g = function(t, args, 2);
  return results_of(t, [&] { return call_cond(pred, f, g); });
}

Vars run_control_while(Trace& t, Var*, const Vars& args) {
  const ControlFunction &test = function(t, args, 0), &body = function(t, args, 1);
  const std::vector<Tensor> carried = tensors(t, args, 2);
  return results_of(t, [&] { return call_while_loop(test, body, carried); });
}

Vars run_control_scan(Trace& t, Var*, const Vars& args) {
  const ControlFunction& body = function(t, args, 0);
  const std::vector<Tensor> carried = tensors(t, args, 1), xs = tensors(t, args, 2);
  const auto dim = int64_t(t.constant(arg(t, args, 3)));
  const bool reverse = t.truthy(arg(t, args, 4));
  return results_of(t, [&] { return call_scan(body, carried, xs, dim, reverse); });
}

}  // namespace lutra
