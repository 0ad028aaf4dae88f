// The check of most tensors of most calls: a tensor and its spec in, whether the one is plainly what the other says.
#pragma once
#include "vm/guard/program.h"

namespace lutra {

// Sizes and strides that never change, no view, no hooks that would matter. False: matches decides.
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
