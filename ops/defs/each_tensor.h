// Visits the tensors among values and arguments in order, those in lists included.
#pragma once
#include <vector>

#include "ops/core/value.h"

namespace lutra {

template <class F>
void each_tensor(const Value& v, const F& f) {
  if (v.is<Tensor>() && v.tensor()) f(v.tensor());
  if (!v.is<std::vector<Tensor>>()) return;
  for (const Tensor& t : v.as<std::vector<Tensor>>()) f(t);
}
template <class F>
void each_tensor(const Args& args, const F& f) {
  for (const Value& v : args) each_tensor(v, f);
}

// Calls f(number of the argument, tensor). Nil tensors are included.
template <class A, class F>
void each_argument_tensor(A& args, const F& f) {
  for (size_t i = 0; i < args.size(); i++) {
    if (args[i].template is<Tensor>()) f(i, args[i].template as<Tensor>());
    if (!args[i].template is<std::vector<Tensor>>()) continue;
    for (auto& t : args[i].template as<std::vector<Tensor>>()) f(i, t);
  }
}

}  // namespace lutra
