// Meta rule of a host's ops: reads the results' types from the call's text.
#include "ops/defs/host_op.h"
#include "ops/meta/rules.h"

namespace lutra {

ResultSpecs meta_host_op(OpId op, const Args& args);
ResultSpecs meta_host_op(OpId op, const Args& args) {
  const HostForm form = read_form(args[2].as<std::string>());
  const auto& tensors = args[0].as<std::vector<Tensor>>();
  size_t count = form.tensors() + form.results;
  for (const bool given : form.given) count += given;
  check_internal(op, tensors.size() == count && (op == OpId::host_op) == (form.results == 0), "a form of its tensors");
  ResultSpecs specs;
  for (const HostResult& r : read_results(args[3].as<std::string>())) {
    bool fits = r.sizes.size() <= kMaxDims;
    for (const int64_t size : r.sizes) fits = fits && size >= 0;
    check_internal(op, fits, "sizes of a tensor");
    Sizes sizes;
    for (const int64_t size : r.sizes) sizes.push_back(size);
    check_internal(op, bool(count_elements(sizes)), "sizes of a tensor");
    specs.push_back(contiguous_spec(sizes, r.dtype));
  }
  return specs;
}

}  // namespace lutra
