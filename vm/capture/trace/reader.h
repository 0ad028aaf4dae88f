// Reads the arguments of a binding from variable trackers.
#pragma once
#include "vm/bind/binding.h"
#include "vm/capture/trace/trace.h"

namespace lutra {

class TrackerReader : public ArgReader {
 public:
  TrackerReader(Trace& trace, const Vars& args) : trace_(trace), vars_(args), count_(int(args.size())) {}
  int count() const override { return count_; }
  LuaKind kind(H h) override;
  bool boolean(H h) override { return trace_.truthy(vars_[h]); }
  Scalar number(H h) override;
  std::string string(H h) override { return trace_.text(trace_.force(vars_[h])); }
  Tensor tensor(H h) override { return vars_[h]->tensor; }
  int64_t length(H table) override { return trace_.length(vars_[table]->table); }
  H index(H table, int64_t i) override;
  H field(H table, const char* key) override;
  std::vector<std::string> keys(H table) override;
  std::string describe(H h) override;
  H mark() override { return H(vars_.size()); }
  void release(H h) override { vars_.resize(h); }

 private:
  H add(Var* v);
  Trace& trace_;
  Vars vars_;
  int count_;
};

}  // namespace lutra
