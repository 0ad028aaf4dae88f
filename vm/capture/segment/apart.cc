// Guards that objects which were different in the trace stay different in later calls: tables, keys, variables and
// tensors that are written, and others that are read.
#include "vm/capture/segment/apart.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ops/core/overlap.h"
#include "vm/capture/trace/memory.h"

namespace lutra {
namespace {

struct Guards {
  Trace& t;

  using Alias = std::pair<const Source*, std::pair<int, int>>;  // source of a value, and its member in a group

  // Adds a guard that no writer is another member in a later call; else a write would be visible in another object.
  void keep_apart(GuardOp op, const std::vector<Alias>& writers, const std::vector<Alias>& others) {
    constexpr size_t kRows = 4;  // that reports list one by one
    if (writers.empty() || writers.size() + others.size() < 2) return;
    if (op == GuardOp::kDistinctCheck && writers.size() == 1 && others.size() <= kRows) {
      for (const Alias& o : others) t.check_pair(GuardOp::kNotSameCheck, writers[0].first, o.first);
      return;
    }
    GuardGroup group;
    group.writers = int(writers.size());
    for (const Alias& w : writers) group.members.push_back(w.second);
    for (const Alias& o : others) group.members.push_back(o.second);
    t.check_group(op, writers[0].first, std::move(group), "an object of its own");
  }

  Alias in_register(const Source* s, int upvalue = 0) { return {s, {t.reg(s), upvalue}}; }

  void distinct_tables() {
    std::set<Key> keys;
    bool positions = false, plain = false, metatables = false, moving = false;
    std::vector<Alias> writers, others;
    for (const Table* w : t.written_tables) {
      writers.push_back(in_register(w->source));
      metatables = metatables || w->metatable_written;
      moving = moving || !w->moving.empty();
      for (const Key& id : w->log) {
        keys.insert(id);
        positions = positions || id.is_position();
        plain = plain || id.kind != Key::kObject;
      }
    }
    for (const Table& o : t.tables) {
      if (writers.empty() || o.pin == 0 || o.written) continue;
      bool shows =
          o.keys_known || (o.length_read && (positions || moving)) || (!o.read_by.empty() && (plain || moving));
      shows = shows || (metatables && o.metatable);
      for (auto e = o.entries.begin(); !shows && e != o.entries.end(); ++e)
        shows = keys.count(e->first) > 0 || (moving && e->first.is_position());
      if (shows) others.push_back(in_register(o.source));
    }
    keep_apart(GuardOp::kDistinctCheck, writers, others);
  }

  // Keeps objects apart that are keys of one written table.
  void distinct_keys() {
    for (const Table& table : t.tables) {
      if (!table.written) continue;
      std::vector<Alias> objects, tensors;
      for (const auto& [id, e] : table.entries) {
        if (id.kind != Key::kObject) continue;
        if (e.key->kind == VarKind::kTable && e.key->table->pin) objects.push_back(in_register(e.key->table->source));
        if (e.key->kind != VarKind::kTensor) continue;
        const auto in = t.input_of_fake.find(e.key->tensor.get());
        if (in != t.input_of_fake.end()) tensors.push_back({t.inputs[size_t(in->second)].source, {in->second, 0}});
      }
      keep_apart(GuardOp::kDistinctCheck, objects, {});
      keep_apart(GuardOp::kDistinctTensorsCheck, tensors, {});
    }
  }

  // Keeps variables of closures apart if another closure of a prototype may be called. Functions that stay the same
  // share the same variables.
  void distinct_variables() {
    std::vector<Alias> writers, others;
    bool loose = false, many = false;
    const Source* first = nullptr;
    for (const Cell& c : t.cells) {
      if (!c.function_pin) continue;
      if (!first) first = c.function;
      many = many || c.function != first;
      loose = loose || t.is_loose(c.function);
    }
    if (!loose || !many || t.written_cells.empty()) return;
    for (const Cell& c : t.cells) {
      if (c.function_pin) (c.written ? writers : others).push_back(in_register(c.function, c.index));
    }
    keep_apart(GuardOp::kDistinctVariablesCheck, writers, others);
  }

  // Keeps tensors apart whose gradient or requires_grad changes. For tensors that the graph writes kOverlap checks the
  // memory.
  void distinct_tensors(const Effects& effects) {
    const auto in = [](const auto& list, size_t i) {
      return std::any_of(list.begin(), list.end(), [&](const auto& w) { return size_t(w.input) == i; });
    };
    const std::set<int> apart(effects.written.begin(), effects.written.end());
    const bool flags = !effects.requires_grad_writes.empty();
    std::vector<Alias> writers, others;
    for (size_t i = 0; i < t.inputs.size(); i++) {
      const auto& input = t.inputs[i];
      if (!input.source) continue;
      const bool differentiated = (t.backward_called || t.decisions.sources_apart) && input.requires_grad;
      const bool writes = differentiated || in(effects.grad_writes, i) || in(effects.requires_grad_writes, i);
      const Alias alias{input.source, {int(i), 0}};
      if (apart.count(int(i))) continue;
      if (writes) writers.push_back(alias);
      if (!writes && (flags || input.grad_loaded)) others.push_back(alias);
    }
    keep_apart(GuardOp::kDistinctTensorsCheck, writers, others);
  }
};

}  // namespace

void keep_objects_apart(Trace& t) {
  Guards guards{t};
  guards.distinct_tables();
  guards.distinct_keys();
  guards.distinct_variables();
}

void guard_memories(Trace& t) {
  for (size_t m = 0; m < t.inputs.size(); m++) {
    const auto& memory = t.inputs[m];
    if (!memory.memory) continue;
    GuardGroup group{0, {{int(m), int(memory.real->offset.hint)}}};
    for (size_t i = 0; i < t.inputs.size(); i++) {
      const Tensor& real = t.inputs[i].real;
      const bool is_member = t.program.tensors[i].in_shared_memory && real->storage == memory.real->storage;
      if (is_member) group.members.emplace_back(int(i), int(real->offset.hint));
    }
    t.check_group(GuardOp::kMemoryCheck, memory.source, std::move(group), "the same memory");
  }
}

namespace {

bool has_gradients(const Trace& t) {
  const auto& nodes = t.graph->nodes;
  return std::any_of(t.inputs.begin(), t.inputs.end(), [](const auto& in) { return in.requires_grad; }) ||
         std::any_of(nodes.begin(), nodes.end(), [](const auto& n) {
           return std::any_of(n->results.begin(), n->results.end(), [](const auto& r) { return r->requires_grad; });
         });
}

}  // namespace

std::vector<int> inputs_written(const Trace& t) {
  std::unordered_map<const Storage*, std::vector<int>> fakes;
  for (size_t i = 0; i < t.inputs.size(); i++) fakes[t.inputs[i].fake->storage.get()].push_back(int(i));
  std::vector<int> written;
  for (const auto& node : t.graph->nodes) {
    if (!node->inplace) continue;
    const auto found = fakes.find(node->args[0].tensor()->storage.get());
    if (found == fakes.end()) continue;
    written.insert(written.end(), found->second.begin(), found->second.end());
    fakes.erase(found);
  }
  return written;
}

void part_written(Trace& t, const std::vector<int>& written, const std::function<void()>& stop) {
  // A version counter covers a whole storage, and backwards check it. So parts of a storage are separate only without
  // gradients.
  t.program.may_share_storage = !t.backward_called && !has_gradients(t);
  for (int w : written) {
    const Tensor& real = t.inputs[size_t(w)].real;
    const auto meets = [&](const auto& in) {
      if (&in == &t.inputs[size_t(w)] || !(in.real->storage == real->storage)) return false;
      return !t.program.may_share_storage || overlap(in.real, real) != Overlap::kNone;
    };
    if (t.inputs[size_t(w)].memory || std::none_of(t.inputs.begin(), t.inputs.end(), meets)) continue;
    const std::optional<StorageRange> range = memory_of_inputs(t, real->storage.get());
    if (range && t.decisions.memories.emplace(real->storage.get(), *range).second) throw Restart();
    stop();
  }
}

void keep_tensors_apart(Trace& t, const Effects& effects) { Guards{t}.distinct_tensors(effects); }

}  // namespace lutra
