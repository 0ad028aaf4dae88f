// The names of guard programs' steps, their tensor specs, and their listing.
#include "vm/guard/program.h"

#include "ops/grad/tape.h"
#include "vm/guard/plain.h"

namespace lutra {
namespace {

struct Row {
  bool load;
  const char* name;
  const char* kind;
};
const Row kRows[] = {
#define GUARD_LOAD(name) {true, #name, "load"},
#define GUARD_CHECK(name, kind, helper) {false, #name, kind},
#include "vm/guard/guard.def"
};

std::string list(const std::vector<int64_t>& v) {
  std::string s = "{";
  for (size_t i = 0; i < v.size(); i++) s += str(i ? ", " : "", v[i] < 0 ? std::string("any") : std::to_string(v[i]));
  return s + "}";
}

std::string list(const Sizes& v) {
  std::string s = "{";
  for (size_t i = 0; i < v.size(); i++) s += str(i ? ", " : "", v[i].hint);
  return s + "}";
}

bool set_miss(TensorMiss* miss, TensorFact fact, int dim, const std::string& old_text, const std::string& new_text) {
  if (miss) *miss = {fact, dim, old_text, new_text};
  return false;
}

bool has_unit_strides(const TensorImpl& t) {
  int64_t stride = 1;
  for (size_t i = t.sizes.size(); i-- > 0;) {
    if (t.strides[i].hint != stride) return false;
    stride *= t.sizes[i].hint > 1 ? t.sizes[i].hint : 1;
  }
  return true;
}

}  // namespace

bool is_load(GuardOp op) { return kRows[int(op)].load; }
const char* kind_name(GuardOp op) { return kRows[int(op)].kind; }

const char* name(TensorFact fact) {
  static constexpr const char* kNames[] = {"dtype",         "device",  "rank",  "size", "stride",
                                           "requires_grad", "is_leaf", "hooks", "freed"};
  return kNames[int(fact)];
}

std::string describe(const TensorSpec& s) {
  std::string text = str(name(s.dtype), list(s.sizes));
  if (s.contiguous) {
    text += " contiguous";
  } else {
    text += " strides " + list(s.strides);
  }
  if (s.device != Device()) text += " on " + to_string(s.device);
  if (s.requires_grad) text += s.leaf ? " leaf requires_grad" : " requires_grad";
  return text;
}

namespace {

bool tell_difference(const Tensor& t, const TensorSpec& spec, TensorMiss* miss) {
  const TensorImpl& i = *t.get();
  if (i.view && i.view->version != i.storage->version) refresh_view(t);
  if (i.dtype != spec.dtype) return miss && set_miss(miss, TensorFact::kDType, -1, name(spec.dtype), name(i.dtype));
  if (!(i.device() == spec.device)) {
    return miss && set_miss(miss, TensorFact::kDevice, -1, to_string(spec.device), to_string(i.device()));
  }
  if (i.sizes.size() != spec.sizes.size()) {
    return miss && set_miss(miss, TensorFact::kRank, -1, str(spec.sizes.size()), str(i.sizes.size()));
  }
  for (size_t d = 0; d < spec.sizes.size(); d++) {
    if (spec.sizes[d] >= 0 && spec.sizes[d] != i.sizes[d].hint) {
      return miss && set_miss(miss, TensorFact::kSize, int(d), list(spec.sizes), list(i.sizes));
    }
    const SymRange may = spec.sizes[d] == kOpenSize ? open_sizes(d) : kSymbolicSizes;
    if (spec.sizes[d] < 0 && !may.contains(i.sizes[d].hint)) {
      return miss && set_miss(miss, TensorFact::kSize, int(d), i.sizes[d].hint < 2 ? ">= 2" : "<= 2^40", list(i.sizes));
    }
  }
  for (size_t d = 0; d < spec.strides.size(); d++) {
    if (spec.strides[d] >= 0 && spec.strides[d] != i.strides[d].hint) {
      return miss && set_miss(miss, TensorFact::kStride, int(d), list(spec.strides), list(i.strides));
    }
  }
  if (spec.contiguous && !has_unit_strides(i))
    return miss && set_miss(miss, TensorFact::kStride, -1, "contiguous", list(i.strides));
  if (i.requires_grad != spec.requires_grad) {
    return miss && set_miss(miss, TensorFact::kRequiresGrad, -1, spec.requires_grad ? "true" : "false",
                            i.requires_grad ? "true" : "false");
  }
  const bool leaf = !i.autograd || !i.autograd->grad_fn;
  if (leaf != spec.leaf)
    return miss && set_miss(miss, TensorFact::kIsLeaf, -1, spec.leaf ? "true" : "false", leaf ? "true" : "false");
  if ((!spec.hooks || (spec.written && i.base)) && has_hooks(t))
    return miss && set_miss(miss, TensorFact::kHooks, -1, "none", "some");
  if (i.storage->freed) return miss && set_miss(miss, TensorFact::kFreed, -1, "false", "true");
  return true;
}

}  // namespace

bool matches(const Tensor& t, const TensorSpec& spec, TensorMiss* miss) {
  return is_plainly(*t.get(), spec) || tell_difference(t, spec, miss);
}

GuardPlace place_of(const GuardProgram& p, const GuardStep& step) {
  return step.source && step.source->file ? GuardPlace{step.source->file, step.source->line} : p.start;
}

std::string expected_text(const GuardProgram& p, size_t i) {
  const GuardStep& s = p.steps[i];
  switch (s.op) {
    case GuardOp::kTensorCheck:
    case GuardOp::kGradTensorCheck: return describe(p.tensors[size_t(s.index)]);
    case GuardOp::kSymbolsCheck: return relations_text(p);
    default: return i < p.expected.size() ? p.expected[i] : "";
  }
}

std::string print(const GuardProgram& p) {
  std::string text;
  int reg = 0;
  for (size_t i = 0; i < p.steps.size(); i++) {
    const GuardStep& s = p.steps[i];
    const Row& row = kRows[int(s.op)];
    std::string line = "  ";
    if (row.load && s.op != GuardOp::kGradLoad) line += str("r", reg++, " = ");
    line += row.name + 1;
    if (s.a >= 0) line += str(" r", s.a);
    if (s.b >= 0) line += str(" r", s.b);
    line += str(" ", s.index);
    if (s.source) line += "  ; " + s.source->text;
    if (const std::string wanted = expected_text(p, i); !wanted.empty()) line += " : " + wanted;
    text += line + "\n";
  }
  for (size_t g = 0; g < p.symbols.guards().size(); g++) text += "  relation " + relation_text(p, int(g)) + "\n";
  return text;
}

}  // namespace lutra
