// Decomposes ops on parts, angles and conjugates of complex elements. A real tensor is its own conjugate.
#include <cmath>

#include "ops/decompose/formula.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

Tensor part(const Tensor& t, int64_t which) {
  return op1(OpId::select, {op1(OpId::view_as_real, {t}), vdim(-1), vdim(which)});
}

Tensor of_parts(const Tensor& re, const Tensor& im) {
  return op1(OpId::view_as_complex, {op1(OpId::stack, {std::vector<Tensor>{re, im}, vdim(-1)})});
}

}  // namespace

Results decompose_real(const Args& a) {
  return {is_complex(a[0].tensor()->dtype) ? part(a[0].tensor(), 0) : a[0].tensor()};
}
Results decompose_imag(const Args& a) {
  const Tensor t = a[0].tensor();
  if (!is_complex(t->dtype)) fail("imag: only defined for complex tensors, got ", name(t->dtype));
  return {part(t, 1)};
}

Results decompose_complex(const Args& a) {
  const Tensor re = a[0].tensor(), im = a[1].tensor();
  if (re->dtype != im->dtype) fail("complex: dtypes ", name(re->dtype), " and ", name(im->dtype), " differ");
  if (info(to_complex(re->dtype)).carrier != re->dtype) {
    fail("complex: expects parts of float32 or float64, got ", name(re->dtype));
  }
  const Sizes sizes = broadcast(OpId::complex, re->sizes, im->sizes);
  return {of_parts(expand(re, sizes), expand(im, sizes))};
}

// (abs, angle)
Results decompose_polar(const Args& a) {
  const Tensor size = a[0].tensor(), angle = a[1].tensor();
  if (size->dtype != angle->dtype || info(to_complex(size->dtype)).carrier != size->dtype) {
    fail("polar: expects abs and angle of float32 or of float64, got ", name(size->dtype), " and ", name(angle->dtype));
  }
  return call_op(OpId::complex, {size * cos(angle), size * sin(angle)});
}

Results decompose_conj(const Args& a) {
  const Tensor t = a[0].tensor();
  return {is_complex(t->dtype) ? of_parts(part(t, 0), neg(part(t, 1))) : t};
}
Results decompose_resolve_conj(const Args& a) { return {a[0].tensor()}; }
Results decompose_resolve_neg(const Args& a) { return {a[0].tensor()}; }

// The angle of a negative number is pi, that of any other number 0.
Results decompose_angle(const Args& a) {
  const Tensor t = a[0].tensor();
  if (is_complex(t->dtype)) return {op1(OpId::atan2, {part(t, 1), part(t, 0)})};
  const Tensor x = to_dtype(t, to_float(t->dtype));
  return {where(lt(x, Scalar(0.0)), Scalar(M_PI), where(isnan(x), x, Scalar(0.0)))};
}
Results decompose_isreal(const Args& a) {
  const Tensor t = a[0].tensor();
  if (is_complex(t->dtype)) return {eq(part(t, 1), Scalar(0.0))};
  return {logical_or(eq(t, t), ne(t, t))};
}

}  // namespace lutra
