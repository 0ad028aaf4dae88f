// The fast check, which most tensors of most calls pass. In: a tensor and its spec. Out: whether the tensor plainly
// matches the spec.
#pragma once
#include "vm/guard/program.h"

namespace lutra {

// Returns true for a tensor that matches, if its sizes and strides are constant, it is no view, and it has no hooks
// that would matter. If it returns false, matches decides.
inline bool is_plainly(const TensorImpl& i, const TensorSpec& spec) {
  const size_t rank = spec.sizes.size();
  const Storage& storage = *i.storage;
  if (i.view || storage.freed || i.dtype != spec.dtype || !(storage.device == spec.device)) return false;
  if (i.sizes.size() != rank || spec.strides.size() != rank || i.requires_grad != spec.requires_grad) return false;
  const SymInt *sizes = i.sizes.begin(), *strides = i.strides.begin();
  const int64_t *wanted_sizes = spec.sizes.data(), *wanted_strides = spec.strides.data();
  for (size_t d = 0; d < rank; d++) {
    if (wanted_sizes[d] != sizes[d].hint || wanted_strides[d] != strides[d].hint) return false;
  }
  const AutogradMeta* meta = i.autograd.get();
  if (!meta) return spec.leaf;
  if (meta->grad_fn) return !spec.leaf && spec.hooks && !spec.written;
  return spec.leaf && (meta->hooks.empty() || (spec.hooks && !spec.written));
}

}  // namespace lutra
