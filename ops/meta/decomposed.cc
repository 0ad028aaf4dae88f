// The meta rule of rows that have only a decomposition. It runs the decomposition on FakeTensors and records nothing.
// It also decides whether a node can stand for the op with these arguments. It can if each result is a whole tensor in
// memory of its own, and nothing was written or drawn.
#include <algorithm>
#include <unordered_map>

#include "ops/defs/call.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Thrown if a part's results have shapes that depend on elements: no node stands for the whole op then.
struct ToldSize {};

struct DryRun : Mode {
  std::unordered_map<const Storage*, Tensor> made;
  std::vector<std::pair<Tensor, uint32_t>> written;  // with the version before the write
  bool parts = false;

  // Restores the versions, because nothing was really written.
  ~DryRun() {
    for (const auto& [t, version] : written) t->storage->version = std::min(t->storage->version, version);
  }
  Results call(OpId op, Args& args) override {
    // A composite with a rule of its own is not decomposed: that rule refuses bad arguments.
    if (info(op).meta_rule == meta_decomposed) {
      ModeScope again(this);
      return decompose(info(op), args);
    }
    if (info(op).dynamic) throw ToldSize{};
    parts |= info(op).has(kRandom);
    Results results;
    for (const ResultSpec& spec : info(op).meta(op, args)) {
      if (spec.view) {
        results.push_back(alias(op, args[0].as<Tensor>(), spec));
      } else {
        results.push_back(make_fake(spec.sizes, spec.strides, spec.dtype, result_device(info(op), args)));
        made.emplace(results.back()->storage.get(), results.back());
      }
    }
    return results;
  }
  Tensor call_inplace(OpId, Args& args) override {
    parts = true;
    written.emplace_back(args[0].as<Tensor>(), args[0].as<Tensor>()->storage->version);
    return args[0].as<Tensor>();
  }
  // Returns whether t is all of a tensor that was made here and not taken before.
  bool takes_whole(const Tensor& t) {
    const auto it = made.find(t->storage.get());
    if (it == made.end()) return false;
    const Tensor whole = it->second;
    made.erase(it);
    return t->offset.is_constant() && t->offset.hint == 0 && t->dtype == whole->dtype && count(t) == count(whole);
  }

 private:
  // Uses hints, so it asks nothing.
  static int64_t count(const Tensor& t) {
    int64_t n = 1;
    for (SymInt s : t->sizes) n *= s.hint;
    return n;
  }
};

}  // namespace

ResultSpecs meta_decomposed(OpId op, const Args& args) {
  GradModeScope off(false);
  DryRun dry;
  ModeScope mode(&dry);
  ResultSpecs specs;
  try {
    for (const Tensor& t : decompose_named(info(op), args, false)) {
      ResultSpec spec;
      spec.sizes = t->sizes, spec.strides = t->strides, spec.dtype = t->dtype;
      dry.parts |= !dry.takes_whole(t);
      specs.push_back(spec);
    }
  } catch (const ToldSize&) {
    if (!info(op).has(kByParts)) fail_dynamic(op);
    return {};
  }
  for (ResultSpec& spec : specs) spec.parts = dry.parts;
  return specs;
}

}  // namespace lutra
