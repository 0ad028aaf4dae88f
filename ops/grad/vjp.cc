// Helpers of vjp rules: which arguments want a gradient, and conversion of a gradient to an argument's sizes and dtype.
#include "ops/grad/vjp.h"

#include "ops/decompose/emit.h"

namespace lutra {

bool VjpContext::needs(size_t k) const { return args[k].is<Tensor>() && needs(k, 0); }

bool VjpContext::needs(size_t k, size_t i) const {
  size_t before = 0;
  for (size_t j = 0; j < k; j++) {
    before += args[j].is<Tensor>()                ? 1
              : args[j].is<std::vector<Tensor>>() ? args[j].as<std::vector<Tensor>>().size()
                                                  : 0;
  }
  return wanted[before + i];
}

void VjpContext::give(size_t k, const Tensor& g) {
  const Tensor& a = args[k].as<Tensor>();
  out[k] = to_dtype(sum_to_size(g, a->sizes), a->dtype);
}

void VjpContext::give(size_t k, size_t i, const Tensor& g) {
  const auto& list = args[k].as<std::vector<Tensor>>();
  lists.resize(args.size());
  lists[k].resize(list.size());
  lists[k][i] = to_dtype(sum_to_size(g, list[i]->sizes), list[i]->dtype);
}

Tensor sum_to_size(const Tensor& grad, const Sizes& sizes) {
  size_t lead = grad->sizes.size() - sizes.size();
  Sizes dims;
  for (size_t d = 0; d < grad->sizes.size(); d++) {
    SymInt have = grad->sizes[d];
    bool same = d >= lead && have.hint == sizes[d - lead].hint && have == sizes[d - lead];
    if (!same) dims.push_back(int64_t(d));
  }
  Tensor g = sum(grad, dims, true);
  return lead ? reshape(g, sizes) : g;
}

}  // namespace lutra
