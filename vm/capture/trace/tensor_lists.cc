// Lists of tensors, read from and made for the frame.
#include "vm/capture/trace/tensor_lists.h"

namespace lutra {

bool read_tensors(Trace& t, Var* list, std::vector<Tensor>& out) {
  Table* table = t.table_of(t.force(list));
  if (!table) return false;
  for (int64_t i = 1, n = t.length(table); i <= n; i++) {
    Var* v = t.force(t.raw_get(table, t.number(double(i))));
    if (v->kind != VarKind::kTensor) return false;
    out.push_back(v->tensor);
  }
  return true;
}

Var* list_of(Trace& t, const std::vector<Tensor>& tensors) {
  Var* list = t.fresh_table(int(tensors.size()) + 1);
  for (size_t i = 0; i < tensors.size(); i++) {
    if (tensors[i]) t.raw_set(list->table, t.number(double(i + 1)), t.tensor(tensors[i]));
  }
  return list;
}

}  // namespace lutra
