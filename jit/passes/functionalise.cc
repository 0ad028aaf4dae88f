// functionalise: turns in-place ops and writes through views into values. At the end it copies the new value of a
// written input into the input. It finds writes by storage: two tensors alias exactly if they share one.
//
// For each old storage it keeps the base (the tensor that the storage was made for), its present value and a version.
// To read a tensor with an old version, it regenerates the tensor from the base by its chain of view ops. Invariant of
// the result: the only writes are copy_ nodes into inputs. They come last, except for views of those inputs that are
// returned.
// It throws NeedsData for writes that it cannot express. This breaks the whole graph.
#include <algorithm>
#include <unordered_set>

#include "jit/passes/passes.h"
#include "ops/core/overlap.h"
#include "ops/defs/on_parts.h"
#include "ops/defs/order.h"

namespace lutra {
namespace {

struct StorageState {
  Tensor base;   // old tensor
  Tensor value;  // its present value in the new graph
  int version = 0;
  int aliases = 0;  // number of inputs that use this storage
};

struct Functionaliser {
  Rebuilder b;
  std::unordered_map<const Storage*, StorageState> storages;
  std::unordered_map<const TensorImpl*, int> versions;  // version of the new value of an old tensor
  std::unordered_set<const Storage*> read_storages;     // those whose elements an op has read

  explicit Functionaliser(const Graph& g) : b(g) {
    for (const GraphInput& in : g.inputs) {
      define(in.value);
      storages[in.value->storage.get()].aliases++;
    }
  }

  [[noreturn]] static void refuse_shared() {
    throw NeedsData("a write to one of two inputs that share memory cannot be compiled");
  }

  // Notes that t, an old tensor, has a new value.
  void define(const Tensor& t) {
    StorageState& s = storages[t->storage.get()];
    if (!s.base) s.base = t, s.value = b.map(t);
    versions[t.get()] = s.version;
  }

  bool is_current(const Tensor& t) {
    const auto version = versions.find(t.get());
    LUTRA_CHECK(version != versions.end(), "a value without its node");
    return version->second == storages[t->storage.get()].version;
  }

  // Returns the present new value of an old tensor. Regenerates the views that lead to it, from the first stale one.
  Tensor read(const Tensor& t) {
    if (!t || is_current(t)) return b.map(t);
    const StorageState& s = storages[t->storage.get()];
    std::vector<Tensor> stale;
    for (Tensor v = t; !is_current(v); v = v->node->args[0].tensor()) {
      stale.push_back(v);
      if (v.same(s.base)) break;
      if (v->node->is_input()) refuse_shared();
    }
    while (!stale.empty()) {
      const Tensor v = stale.back();
      stale.pop_back();
      Tensor now = s.value;
      if (!v.same(s.base)) {
        const Node& view = *v->node;
        Args args = b.map(view.args);
        args[0] = b.map(view.args[0].tensor());
        b.at(view);
        now = b.recorder.call(view.op, args)[size_t(v->result)];
      }
      b.set(v, now);
      versions[v.get()] = s.version;
    }
    return b.map(t);
  }

  Args read(const Args& args) {
    Args out;
    for (const Value& v : args) {
      if (v.is<Tensor>()) {
        out.push_back(read(v.tensor()));
      } else if (v.is<std::vector<Tensor>>()) {
        std::vector<Tensor> list;
        for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(read(t));
        out.push_back(list);
      } else {
        out.push_back(v);
      }
    }
    return out;
  }

  Tensor call(OpId op, Args args) {
    ModeScope mode(&b.recorder);
    return call_op(op, std::move(args))[0];
  }

  // Compares expressions where another way serves equal values, too: a guard would split sizes that one graph serves.
  // Otherwise compares values, the offset last, since the comparison guards on it: a symbolic offset may be 0 in one
  // call only.
  static bool same_geometry(const Tensor& a, const Tensor& x) {
    if (a->dtype != x->dtype || a->sizes.size() != x->sizes.size()) return false;
    const auto same = dense(x) ? same_expr : [](SymInt p, SymInt q) { return p == q; };
    return std::equal(a->sizes.begin(), a->sizes.end(), x->sizes.begin(), same) &&
           std::equal(a->strides.begin(), a->strides.end(), x->strides.begin(), same) && same(a->offset, x->offset);
  }

  // Returns the value that self has after op's result r is written into it: r with self's dtype and sizes.
  Tensor fitted(Tensor r, const Tensor& self) {
    if (r->dtype != self->dtype) r = call(OpId::to_dtype, {r, self->dtype});
    bool same = r->sizes.size() == self->sizes.size();
    for (size_t d = 0; same && d < r->sizes.size(); d++) same = r->sizes[d] == self->sizes[d];
    return same ? r : call(OpId::expand, {r, self->sizes});
  }

  static bool dense(const Tensor& t) { return t->is_contiguous() || is_dense(t->sizes, t->strides); }

  static bool same_strides(const Tensor& a, const Tensor& b) {
    bool same = true;
    for (size_t d = 0; same && d < a->strides.size(); d++) same = a->strides[d] == b->strides[d];
    return same;
  }

  // Returns t with the strides of base, which is dense.
  Tensor laid_as(const Tensor& t, const Tensor& base) {
    if (same_strides(t, base)) return t;
    if (base->is_contiguous()) return call(OpId::clone, {t, std::string("contiguous_format")});
    const Sizes order = falling(base->strides);
    Tensor copy = call(OpId::clone, {call(OpId::permute, {t, order}), std::string("contiguous_format")});
    return call(OpId::permute, {copy, inverse(order)});
  }

  Tensor cloned(const Tensor& t) { return call(OpId::clone, {t, std::string("preserve_format")}); }

  // Returns the value of a whole tensor after a write. It has self's strides, since later results and the order of sums
  // depend on them. It shares no memory with another tensor. For an input it may share memory: the input gets a copy at
  // the end.
  Tensor settled(const Tensor& r, const Tensor& self, bool copied, const StorageState& s) {
    if (!dense(self)) return r;
    const Tensor laid = laid_as(r, self);
    const bool shared = copied && laid.same(r) && s.aliases == 0;
    return shared ? cloned(r) : laid;
  }

  // Returns the value of the whole with r in the place of self. If the elements of the two differ in size (a view of
  // parts or bytes), it writes parts or bytes.
  Tensor scattered(const StorageState& s, const Tensor& self, const Tensor& r) {
    const Tensor whole = laid_as(s.value, s.base);
    const auto put = [&](const Tensor& to, const Tensor& from, const Sizes& sizes, const Sizes& strides, SymInt first) {
      return call(OpId::as_strided_scatter, {to, from, sizes, strides, Scalar::of_sym(first)});
    };
    const SymInt first = self->offset - s.base->offset;
    if (self->dtype == s.base->dtype) return put(whole, r, self->sizes, self->strides, first);
    ModeScope mode(&b.recorder);
    if (!has_cells(self) && !has_cells(s.base)) {
      if (size_of(self->dtype) != size_of(s.base->dtype)) {
        throw NeedsData("a write through a view whose elements have another size cannot be compiled");
      }
      return put(whole, view_as_dtype(r, s.base->dtype), self->sizes, self->strides, first);
    }
    const ResultSpec at = layout_of_cells(self);
    const Tensor out =
        put(as_cells(whole), as_cells(r), at.sizes, at.strides, at.offset - layout_of_cells(s.base).offset);
    return of_cells(out, s.base->dtype);
  }

  void write(const Tensor& self, Tensor r, bool copied) {
    StorageState& s = storages[self->storage.get()];
    if (s.aliases > 1) refuse_shared();
    if (s.aliases > 0 && is_packed(s.base->dtype)) throw NeedsData("a write to an input of int4 cannot be compiled");
    if (same_geometry(self, s.base)) {
      s.value = r = settled(r, self, copied, s);
    } else if (self->dtype == s.base->dtype && same_expr(self->numel(), s.base->numel()) && self->is_contiguous() &&
               s.base->is_contiguous()) {
      s.value = settled(call(OpId::reshape, {r, s.base->sizes}), s.base, copied, s);
    } else {
      if (!dense(s.base)) throw NeedsData("a write through a view of a tensor that is not dense cannot be compiled");
      s.value = scattered(s, self, r);
    }
    s.version++;
    // A view that was the target of a copy, or whose value has other strides, is regenerated from the whole at its next
    // read.
    if (!self.same(s.base) && (copied || !same_strides(self, r))) return;
    b.set(self, r);
    versions[self.get()] = s.version;
  }

  // Returns the input whose memory t uses; -1 if there is none, or an op has read the memory's elements. The scheduler
  // may do a write to such an input in place. If the run fails after it, the run is repeated from its start, so nothing
  // may have read the old elements.
  int unread_input(const Tensor& t) const {
    if (read_storages.count(t->storage.get())) return -1;
    const auto is_it = [&](const GraphInput& in) { return in.value->storage == t->storage; };
    const auto at = std::find_if(b.from.inputs.begin(), b.from.inputs.end(), is_it);
    return at == b.from.inputs.end() ? -1 : int(at - b.from.inputs.begin());
  }

  // Notes which elements a node reads. Views read none. A write is not counted as a read of its target; the scheduler
  // decides whether it needs the other elements.
  void note_reads(const Node& n) {
    if (info(n.op).has(kView) && !n.inplace) return;
    const auto note = [&](const Tensor& t) {
      if (t) read_storages.insert(t->storage.get());
    };
    for (size_t i = n.inplace ? 1 : 0; i < n.args.size(); i++) {
      if (n.args[i].is<Tensor>()) note(n.args[i].tensor());
      if (!n.args[i].is<std::vector<Tensor>>()) continue;
      for (const Tensor& t : n.args[i].as<std::vector<Tensor>>()) note(t);
    }
  }

  void node(const Node& n) {
    note_reads(n);
    Args args = read(n.args);
    b.at(n);
    if (!n.inplace) {
      Results results = b.copy(n, args);
      b.set(n, results);
      for (const Tensor& t : n.results) define(t);
      return;
    }
    Tensor self = n.args[0].tensor();
    const size_t before = b.graph->nodes.size();
    Tensor r = n.is_copy() ? args[1].tensor() : call(n.op, args);
    write(self, fitted(r, self), n.is_copy());
    if (b.graph->nodes.size() > before) b.graph->nodes.back()->written = unread_input(self);
  }

  // Copies the new values into the written inputs. From then on the inputs are these values. A value may be another
  // input, or a view of it, as it was before: such a value is cloned before that input is written.
  void write_back() {
    std::vector<const GraphInput*> written;
    for (const GraphInput& in : b.from.inputs) {
      const StorageState& s = storages[in.value->storage.get()];
      if (s.version && s.base.same(in.value)) written.push_back(&in);
    }
    std::unordered_set<const Storage*> before;
    for (const GraphInput* in : written) {
      StorageState& s = storages[in->value->storage.get()];
      if (before.count(s.value->storage.get())) s.value = cloned(s.value);
      before.insert(b.map_input(in->value)->storage.get());
    }
    for (const GraphInput* in : written) {
      StorageState& s = storages[in->value->storage.get()];
      Tensor target = b.map_input(in->value);
      Args args{target, s.value};
      b.recorder.call(OpId::copy_, args);
      s.value = target;
      s.version++;
    }
  }

  // A view that was written has a value of its own. If several tensors of one memory leave the graph, this regenerates
  // them from the whole, so that they share memory again.
  void share_results() {
    std::unordered_map<const Storage*, const TensorImpl*> leaving;
    std::unordered_set<const Storage*> shared;
    for (const Value& v : b.from.outputs) {
      if (!v.is<Tensor>() || !v.tensor()) continue;
      const Tensor& t = v.tensor();
      if (leaving.emplace(t->storage.get(), t.get()).first->second != t.get()) shared.insert(t->storage.get());
    }
    for (const Storage* memory : shared) {
      StorageState& s = storages[memory];
      if (s.version) s.version++;
    }
  }

  GraphPtr run() {
    for (const auto& n : b.from.nodes) node(*n);
    b.recorder.set_location(nullptr, 0);
    write_back();
    share_results();
    for (const Value& v : b.from.outputs) {
      if (v.is<Tensor>()) read(v.tensor());
    }
    return b.finish();
  }
};

}  // namespace

GraphPtr functionalise(const Graph& g) { return Functionaliser(g).run(); }

}  // namespace lutra
