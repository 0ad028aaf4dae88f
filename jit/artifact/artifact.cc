// The binary form: a head with the build, then the fields of plan and codes.
#include "jit/artifact/artifact.h"

#include "jit/artifact/fields.h"
#include "ops/core/build_id.h"

namespace lutra {

using artifact::Damaged;

namespace {

const std::string kMagic = "lutra artifact 1";

// What is wrong with an artifact's codes.
std::string wrong_codes(const Artifact& a) {
  if (a.codes.of_launch.size() != a.plan.launches.size()) return "codes of other launches";
  for (size_t i = 0; i < a.codes.of_launch.size(); i++) {
    const int32_t image = a.codes.of_launch[i];
    if (image < -1 || image >= int32_t(a.codes.images.size())) return str("launch ", i, " has code ", image);
    if (image >= 0 && a.codes.images[size_t(image)].empty()) return str("code ", image, " is empty");
    if (image >= 0 && !std::holds_alternative<KernelLaunch>(a.plan.launches[i])) return str("launch ", i, " has code");
  }
  return "";
}

}  // namespace

std::string write_artifact(const Plan& plan, const Codes& codes) {
  artifact::Writer out;
  out(kMagic, build_id(), plan, codes);
  return out.take();
}

Artifact read_artifact(std::string_view bytes) {
  artifact::Reader in(bytes);
  std::string magic, build;
  in(magic);
  if (magic != kMagic) throw Damaged("this is none");
  in(build);
  if (build != build_id())
    throw Damaged(str("it is of another build of Lutra (", build, ", this is ", build_id(), ")"));
  Artifact a;
  in(a.plan, a.codes);
  if (!in.at_end()) throw Damaged("something follows its end");
  std::string wrong = verify(a.plan);
  if (wrong.empty()) wrong = wrong_codes(a);
  if (!wrong.empty()) throw Damaged(wrong);
  return a;
}

}  // namespace lutra
