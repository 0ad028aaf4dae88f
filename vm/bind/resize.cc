// Methods that change a tensor's sizes, strides or memory in place: resize_, set_, unsqueeze_ and others.
#include "ops/core/resize.h"
#include "ops/core/closest.h"

#include "ops/grad/tape.h"
#include "ops/meta/spatial.h"
#include "vm/bind/functions.h"

namespace lutra {
namespace {

// -- other sizes

void refuse_history(const char* fn, const Tensor& t) {
  if (t->requires_grad) fail(fn, ": a tensor that requires grad cannot be resized");
}

Sizes strides_in(const char* fn, const Sizes& sizes, const Value& format) {
  const std::string name = format.is_none() ? "contiguous_format" : format.as<std::string>();
  if (name == "contiguous_format") return contiguous_strides(sizes);
  if (name != "channels_last") {
    const KnownNames known = {"contiguous_format", "channels_last"};
    fail(fn, ": memory_format '", name, "' is unknown", known.expected(name));
  }
  if (sizes.size() != 4) fail(fn, ": memory_format 'channels_last' needs 4 dimensions, got ", sizes.size());
  return channels_last_strides(sizes);
}

LuaResults resize_to(const char* fn, const Tensor& t, const Sizes& sizes, const Value& format) {
  refuse_history(fn, t);
  for (SymInt n : sizes) {
    if (n < 0) fail(fn, ": a size must not be negative, got ", to_string(sizes));
  }
  if (to_string(sizes) != to_string(t->sizes)) {
    resize(t, sizes, strides_in(fn, sizes, format));
    note_new_layout(t);
  }
  t->storage->version++;
  return {t};
}

LuaResults resize_inplace(Args& a) { return resize_to("resize_", a[0].tensor(), a[1].as<Sizes>(), a[2]); }
LuaResults resize_as(Args& a) { return resize_to("resize_as_", a[0].tensor(), a[1].tensor()->sizes, a[2]); }

// -- other memory

LuaResults take_memory(const Tensor& t, const Tensor& source, SymInt offset, const Sizes& sizes, const Sizes& strides) {
  refuse_history("set_", t);
  if (t->dtype != source->dtype) {
    fail("set_: expected a source of dtype ", name(t->dtype), ", got ", name(source->dtype));
  }
  if (t->device() != source->device()) fail("set_: the source is on another device");
  if (sizes.size() != strides.size()) {
    fail("set_: sizes ", to_string(sizes), " and strides ", to_string(strides), " differ in length");
  }
  if (offset < 0) fail("set_: storage_offset must not be negative, got ", offset.hint);
  reserve(source, offset, sizes, strides);  // may raise, so t is not changed before it
  t->storage = source->storage;
  t->offset = offset, t->sizes = sizes, t->strides = strides;
  t->base = Tensor(), t->view = Ref<ViewHistory>(), t->hidden_base = false;
  note_new_layout(t);
  return {t};
}

LuaResults set_tensor(Args& a) {
  const Tensor source = a[1].tensor();
  return take_memory(a[0].tensor(), source, source->offset, source->sizes, source->strides);
}

LuaResults set_layout(Args& a) {
  const Sizes& sizes = a[3].as<Sizes>();
  return take_memory(a[0].tensor(), a[1].tensor(), a[2].sym_int(), sizes,
                     a[4].is_none() ? contiguous_strides(sizes) : a[4].as<Sizes>());
}

LuaResults set_nothing(Args& a) {
  const Tensor t = a[0].tensor(), none = make_tensor({0}, t->dtype, t->device());
  return take_memory(t, none, 0, none->sizes, none->strides);
}

// -- views of itself

// Turns t into the given view of itself, with its history. A view stays a view of its base.
LuaResults become(const Tensor& t, const Tensor& view) {
  if (grad_enabled() && t->requires_grad) {
    if (!t->autograd || !t->autograd->grad_fn) {
      fail("a leaf that requires grad cannot change its sizes in place");
    }
    set_history(t, view->autograd->grad_fn, view->autograd->output_nr);
  }
  t->sizes = view->sizes;
  t->strides = view->strides;
  t->offset = view->offset;
  note_new_layout(t);
  t->storage->version++;
  return {t};
}

template <OpId kOp>
LuaResults viewed(Args& a) {
  return become(a[0].tensor(), op1(kOp, a));
}

LuaResults transposed(Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dim() > 2) fail("t_: expects a tensor of at most 2 dimensions, got ", t->dim());
  return t->dim() < 2 ? LuaResults{t} : become(t, op1(OpId::transpose, {t, vdim(0), vdim(1)}));
}

constexpr uint32_t kFlags = kMethod | kHostEffect;

const HostFunction kResizeRows[] = {
    {"resize_", "Tensor input, int[] size, *, str? memory_format=None", kFlags, resize_inplace},
    {"resize_as_", "Tensor input, Tensor the_template, *, str? memory_format=None", kFlags, resize_as},
    {"set_", "Tensor input", kFlags, set_nothing},
    {"set_", "Tensor input, Tensor source", kFlags, set_tensor},
    {"set_", "Tensor input, Tensor source, int storage_offset, int[] size, int[]? stride=None", kFlags, set_layout},
    {"unsqueeze_", "Tensor input, int dim", kFlags, viewed<OpId::unsqueeze>},
    {"squeeze_", "Tensor input, int[]? dim=None", kFlags, viewed<OpId::squeeze>},
    {"transpose_", "Tensor input, int dim0, int dim1", kFlags, viewed<OpId::transpose>},
    {"as_strided_", "Tensor input, int[] size, int[] stride, int? storage_offset=None", kFlags,
     viewed<OpId::as_strided>},
    {"t_", "Tensor input", kFlags, transposed},
};

}  // namespace

std::span<const HostFunction> resize_rows() { return kResizeRows; }

}  // namespace lutra
