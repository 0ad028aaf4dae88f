// The binary form: a header with the build, then the fields of plan, codes and constants.
#include "jit/artifact/artifact.h"

#include <algorithm>

#include "jit/artifact/fields.h"
#include "ops/core/build_id.h"
#include "ops/core/tensor.h"

namespace lutra {

using artifact::Damaged;

namespace {

const std::string kMagic = "lutra artifact 2";

// Returns what is wrong with an artifact's codes; "" if nothing is.
std::string wrong_codes(const Plan& plan, const Codes& codes) {
  if (codes.of_launch.size() != plan.launches.size()) return "codes of other launches";
  for (size_t i = 0; i < codes.of_launch.size(); i++) {
    const int32_t image = codes.of_launch[i];
    if (image < -1 || image >= int32_t(codes.images.size())) return str("launch ", i, " has code ", image);
    if (image >= 0 && codes.images[size_t(image)].empty()) return str("code ", image, " is empty");
    if (image >= 0 && !std::holds_alternative<KernelLaunch>(plan.launches[i])) return str("launch ", i, " has code");
  }
  if (codes.functions.size() != plan.functions.size()) return "codes of other functions";
  for (size_t i = 0; i < codes.functions.size(); i++) {
    const std::string wrong = wrong_codes(plan.functions[i], codes.functions[i]);
    if (!wrong.empty()) return str("function ", i, ": ", wrong);
  }
  return "";
}

// Returns the bytes from the first element to the last; -1 for an invalid layout.
int64_t span_bytes(const Constant& c) {
  int64_t last = 0;
  if (!(c.dtype < DType::kNone) || c.sizes.size() != c.strides.size()) return -1;
  for (size_t d = 0; d < c.sizes.size(); d++) {
    if (c.sizes[d] == 0) return 0;
    int64_t reach;
    if (c.sizes[d] < 0 || c.strides[d] < 0 || __builtin_mul_overflow(c.sizes[d] - 1, c.strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return -1;
    }
  }
  return last > INT64_MAX / 32 ? -1 : bytes_of(c.dtype, last + 1);
}

std::string wrong_constants(const Artifact& a) {
  if (a.constants.size() != size_t(a.plan.constants)) return "constants of another plan";
  for (const Constant& c : a.constants) {
    if (c.given < -1) return str("constant ", c.given);
    if (c.given == -1 && span_bytes(c) != int64_t(c.bytes.size())) return "a constant of another size than its layout";
  }
  return "";
}

}  // namespace

Codes no_codes(const Plan& plan) {
  Codes codes;
  codes.of_launch.assign(plan.launches.size(), -1);
  for (const Plan& f : plan.functions) codes.functions.push_back(no_codes(f));
  return codes;
}

void check_artifact(const Artifact& a) {
  std::string wrong = verify(a.plan);
  if (wrong.empty()) wrong = wrong_codes(a.plan, a.codes);
  if (wrong.empty()) wrong = wrong_constants(a);
  if (!wrong.empty()) throw Damaged(wrong);
}

std::vector<Constant> describe_constants(const std::vector<Tensor>& constants, const std::vector<Tensor>& given) {
  std::vector<Constant> out;
  for (const Tensor& t : constants) {
    Constant& c = out.emplace_back();
    const auto at = std::find_if(given.begin(), given.end(), [&](const Tensor& g) { return g.get() == t.get(); });
    if (at != given.end()) {
      c.given = int32_t(at - given.begin());
      continue;
    }
    c.dtype = t->dtype;
    for (SymInt n : t->sizes) c.sizes.push_back(n.hint);
    for (SymInt n : t->strides) c.strides.push_back(n.hint);
    c.bytes.resize(size_t(span_bytes(c)));
    copy_bytes(c.bytes.data(), Device(), t->data(), t->device(), c.bytes.size());
  }
  return out;
}

std::vector<Tensor> make_constants(const Artifact& artifact, const std::vector<Tensor>& given) {
  std::vector<Tensor> out;
  for (const Constant& c : artifact.constants) {
    if (c.given >= 0) {
      out.push_back(given.at(size_t(c.given)));
      continue;
    }
    const Tensor t = make_tensor(Sizes(c.sizes.begin(), c.sizes.end()), Sizes(c.strides.begin(), c.strides.end()),
                                 c.dtype, artifact.plan.device);
    copy_bytes(t->data(), t->device(), c.bytes.data(), Device(), c.bytes.size());
    out.push_back(t);
  }
  return out;
}

std::string write_artifact(const Plan& plan, const Codes& codes, const std::vector<Constant>& constants,
                           const std::string& target) {
  artifact::Writer out;
  out(kMagic, build_id(), target, plan, codes, constants);
  return out.take();
}

Artifact read_artifact(std::string_view bytes, const std::string& target) {
  artifact::Reader in(bytes);
  std::string magic, build, made_for;
  in(magic);
  if (magic != kMagic) throw Damaged("this is none");
  in(build);
  if (build != build_id())
    throw Damaged(str("it is of another build of Lutra (", build, ", this is ", build_id(), ")"));
  in(made_for);
  if (made_for != target) throw Damaged(str("its code is for another machine (", made_for, "; this is ", target, ")"));
  Artifact a;
  in(a.plan, a.codes, a.constants);
  if (!in.at_end()) throw Damaged("something follows its end");
  check_artifact(a);
  return a;
}

}  // namespace lutra
