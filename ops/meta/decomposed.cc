// The meta rule of rows that are known by their decomposition only: run on FakeTensors, nothing recorded.
#include "ops/defs/call.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

struct DryRun : Mode {
  Results call(OpId op, Args& args) override {
    if (info(op).is_composite()) {
      ModeScope again(this);
      return decompose(info(op), args);
    }
    Results results;
    for (const ResultSpec& spec : info(op).meta(op, args)) {
      if (spec.view) {
        results.push_back(alias(args[0].as<Tensor>(), spec.sizes, spec.strides, spec.offset));
      } else {
        results.push_back(make_fake(spec.sizes, spec.strides, spec.dtype, result_device(info(op), args)));
      }
    }
    return results;
  }
  Tensor call_inplace(OpId, Args& args) override { return args[0].as<Tensor>(); }
};

}  // namespace

ResultSpecs meta_decomposed(OpId op, const Args& args) {
  GradModeScope off(false);
  DryRun dry;
  ModeScope mode(&dry);
  ResultSpecs specs;
  for (const Tensor& t : decompose_named(info(op), args, false)) {
    ResultSpec spec;
    spec.sizes = t->sizes, spec.strides = t->strides, spec.dtype = t->dtype;
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace lutra
