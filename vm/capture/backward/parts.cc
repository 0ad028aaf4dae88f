// Finds parts of backwards by their facts, and records, compiles and runs them.
#include "vm/capture/backward/parts.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <lua.hpp>

#include "jit/autograd/eventual.h"
#include "jit/repro/repro.h"
#include "ops/core/clock.h"
#include "ops/core/late_error.h"
#include "vm/host/collector.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

constexpr size_t kMaxFacts = size_t{1} << 22;  // words
constexpr int kMaxFailures = 3;

// Returns the line where the program calls backward.
std::string user_line() {
  lua_State* L = current_lua();
  lua_Debug frame;
  for (int level = 0; L && level < 64 && lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline > 0 && std::strncmp(frame.source, "@lutra/", 7) != 0) {
      return str(frame.short_src, ":", frame.currentline);
    }
  }
  return "?";
}

uint64_t hash_of(const std::vector<uint64_t>& words) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (uint64_t w : words) h = (h ^ w) * 0x9e3779b97f4a7c15ull, h ^= h >> 29;
  return h;
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Makes an input without elements from a tensor of which only the sizes are known.
Tensor without_elements(const Tensor& t) {
  Tensor out = alias(t, t->sizes, t->strides, SymInt(0));
  out->storage = make_ref<Storage>();
  out->storage->device = t->device();
  return out;
}

std::vector<Tensor> inputs_of(const RecordedPart& recorded, const BackwardPart& part) {
  std::vector<Tensor> inputs;
  inputs.reserve(recorded.inputs.size());
  for (uint32_t i : recorded.inputs) {
    inputs.push_back(part.tensors[i]);
    if (inputs.back()->is_fake()) inputs.back() = without_elements(inputs.back());
  }
  return inputs;
}
std::vector<double> scalars_of(const RecordedPart& recorded, const BackwardPart& part) {
  std::vector<double> scalars;
  for (int32_t i : recorded.scalars)
    scalars.push_back(i < 0 ? double(part.sizes[size_t(~i)]) : part.numbers[size_t(i)]);
  return scalars;
}

// Returns whether the guards of all calls hold. Appends the values that the calls read to the part's own tensors and
// numbers. missed: the call whose guards do not hold.
bool calls_hold(const RecordedPart& recorded, BackwardPart& part, CallCaptures& captures, const PartCall*& missed) {
  part.drop_calls_values();
  for (const auto& [at, captured] : recorded.calls) {
    if (!captures.holds(*captured, part.calls[at], part)) return missed = &part.calls[at], false;
  }
  return true;
}

// Restores the random state of the checkpoint that drew first, for a scope.
struct DrawnThen {
  const Generator now = default_generator();
  DrawnThen(const RecordedPart& recorded, const BackwardPart& part) {
    if (recorded.draws_of >= 0) default_generator() = part.calls[size_t(recorded.draws_of)].repeats->generator();
  }
  ~DrawnThen() { default_generator() = now; }
  DrawnThen(const DrawnThen&) = delete;
};

// Returns whether a call reads a .grad that the graph writes.
bool reads_grads(const BackwardPart& part) {
  return std::any_of(part.tensors.begin() + int64_t(part.own_tensors), part.tensors.end(), [&](const Tensor& t) {
    return std::any_of(part.grads.begin(), part.grads.end(),
                       [&](int g) { return g >= 0 && part.tensors[size_t(g)]->storage == t->storage; });
  });
}

// Returns the call that has read another number than when the entry was made; null if none has.
const PartCall* reads_otherwise(const BackwardEntry& e, const BackwardPart& part) {
  size_t number = 0;
  for (const auto& [at, captured] : e.recorded.calls) {
    for (size_t n = captured->entry->guards.scalar_sources.size(); n > 0; n--, number++) {
      if (!same_bits(e.read[number], part.numbers[part.own_numbers + number])) return &part.calls[at];
    }
  }
  return nullptr;
}

bool holds(const BackwardEntry& e, BackwardPart& part, CallCaptures& captures, const PartCall*& missed) {
  for (size_t i = 0; i < e.sizes.size(); i++) {
    const bool symbol = i < e.symbols.sizes.size() && e.symbols.sizes[i];
    if (e.sizes[i] != part.sizes[i] && (!symbol || part.sizes[i] < 2)) return false;
  }
  for (size_t i = 0; i < e.numbers.size(); i++) {
    const bool symbol = i < e.symbols.numbers.size() && e.symbols.numbers[i];
    if (!symbol && !same_bits(e.numbers[i], part.numbers[i])) return false;
  }
  if (!calls_hold(e.recorded, part, captures, missed)) return false;
  if (e.program.empty()) return true;
  std::vector<SymbolValue> values;
  int failed = -1;
  const RecordedPart& r = e.recorded;
  if (!e.program.run(inputs_of(r, part), scalars_of(r, part), values, &failed))
    return missed = reads_otherwise(e, part), false;
  for (const auto& [at, place] : e.places) {
    if (values[size_t(place)].i != part.sizes[at]) return false;
  }
  return true;
}

// Marks the sizes and numbers that have changed since the last run: they become symbols. Sizes 0 and 1 never do.
void note_changes(KnownPart& known, const BackwardPart& part) {
  known.changed.sizes.resize(part.sizes.size());
  known.changed.numbers.resize(part.numbers.size());
  for (size_t i = 0; i < part.sizes.size(); i++) {
    if (part.sizes[i] != known.sizes[i]) known.changed.sizes[i] = true;
  }
  for (size_t i = 0; i < part.numbers.size(); i++) {
    if (!same_bits(part.numbers[i], known.numbers[i])) known.changed.numbers[i] = true;
  }
}

PartSymbols symbols_for(const KnownPart& known, const BackwardPart& part) {
  PartSymbols symbols = known.changed;
  symbols.seen = known.sizes;
  for (size_t i = 0; i < symbols.sizes.size(); i++) {
    if (part.sizes[i] < 2 || known.sizes[i] < 2) symbols.sizes[i] = false;
  }
  return symbols;
}

std::string inlined_text(const std::vector<std::string>& calls) {
  std::string text;
  for (const std::string& place : calls) text += str(text.empty() ? ", with the calls of " : ", ", place);
  return text;
}

CompileOptions options_of(const Runtime& runtime, const std::string& place) {
  CompileOptions o;
  o.kept = true;
  o.disabled_passes = runtime.config.passes_off;
  o.about = place;
  o.failed = keep_failure;
  o.verify = runtime.verify;
  if (*o.verify > 0) {
    o.watch = watch_runs;
    o.guards = std::make_shared<std::string>("a backward at " + place);
  }
  o.wanted = [](const char* stage) { return log_wanted(stage); };
  o.log = [](const char* stage, const std::string& text) { log_text(stage, text); };
  return o;
}

}  // namespace

bool CompiledBackward::is_on() const {
  return runtime_.config.compiled_autograd || runtime_.config.stress == "backward";
}

void CompiledBackward::refuse(const char* why) {
  runtime_.counters.eager_backward[why]++;
  if (log_wanted("compiled_autograd")) log_text("compiled_autograd", str(user_line(), ": runs eagerly: ", why));
}

void CompiledBackward::clear() {
  known_.clear();
  calls_.clear();
  log_.clear();
  facts_ = 0;
}

// Limits the memory for programs whose tape always differs. Parts that occurred only once are removed first.
void CompiledBackward::make_room(size_t facts) {
  if (facts_ + facts <= kMaxFacts) return;
  std::erase_if(known_, [](const auto& known) { return known.second->entries.empty(); });
  facts_ = 0;
  for (const auto& [hash, known] : known_) facts_ += known->facts.size();
  if (facts_ > kMaxFacts / 2) clear();
}

std::shared_ptr<KnownPart> CompiledBackward::find(const BackwardPart& part, bool& fresh) {
  const uint64_t hash = hash_of(part.facts);
  const auto [begin, end] = known_.equal_range(hash);
  fresh = false;
  for (auto it = begin; it != end; ++it) {
    if (it->second->facts == part.facts) return it->second;
  }
  make_room(part.facts.size());
  facts_ += part.facts.size();
  fresh = true;
  auto known = std::make_shared<KnownPart>();
  known->facts = part.facts, known->objects = part.objects;
  known->sizes = part.sizes, known->numbers = part.numbers;
  known_.emplace(hash, known);
  return known;
}

std::shared_ptr<BackwardEntry> CompiledBackward::match(const KnownPart& known, BackwardPart& part,
                                                       const PartCall*& missed) {
  const auto entries = known.entries;
  for (const auto& e : entries) {
    const PartCall* by_call = nullptr;
    if (holds(*e, part, calls_, by_call)) return e;
    if (e == entries.front()) missed = by_call;
  }
  return nullptr;
}

std::shared_ptr<BackwardEntry> CompiledBackward::make(Engine& engine, KnownPart& known, BackwardPart& part) {
  const double start = wall_ms();
  auto e = std::make_shared<BackwardEntry>();
  e->place = user_line();
  e->sizes = part.sizes, e->numbers = part.numbers;
  e->symbols = symbols_for(known, part);
  e->recorded = record_part(engine, part, e->symbols, calls_);
  e->read.assign(part.numbers.begin() + int64_t(part.own_numbers), part.numbers.end());
  for (uint32_t at : e->recorded.constants) e->symbols.sizes[at] = false;
  std::unique_ptr<Graph> graph = std::move(e->recorded.graph);
  const std::shared_ptr<SymEnv> env = graph->env;
  graph->renumber();
  e->ops = graph->nodes.size();
  e->views = plain_views(*graph);
  const SymScope symbols(env.get());
  if (!graph->outputs.empty() || e->ops > 0) {
    e->segment = compile_segment(std::move(graph), {}, false, options_of(runtime_, e->place));
    e->compile_ms = e->segment->forward().compile_ms;
  }
  for (const auto& [at, call] : e->recorded.calls) e->calls.push_back(call->place);
  e->graph_text = e->segment ? e->segment->text() : print(*graph);
  e->program.add_guards(*env);
  for (const auto& [at, expr] : e->recorded.symbols) e->places.emplace_back(at, e->program.need(*env, expr));
  e->capture_ms = wall_ms() - start;
  return e;
}

std::shared_ptr<BackwardEntry> CompiledBackward::compile(Engine& engine, KnownPart& known, BackwardPart& part,
                                                         const PartCall* missed) {
  part.drop_calls_values();
  if (known.entries.size() >= size_t(runtime_.config.recompile_limit)) {
    if (missed) throw CallRefused{missed->key, "recompile_limit is reached"};
    known.refused = "recompile_limit is reached", known.for_good = true;
    return nullptr;
  }
  std::shared_ptr<BackwardEntry> e;
  try {
    e = make(engine, known, part);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::kUser && error.kind != ErrorKind::kInternal) throw;
    known.refused = error.what();
    // Eager raises it, too.
    const bool may_pass = error.kind == ErrorKind::kUser && !dynamic_cast<const NeedsData*>(&error);
    known.for_good = !may_pass || ++known.failures >= kMaxFailures;
    if (error.kind != ErrorKind::kInternal) return nullptr;
    runtime_.counters.internal_errors++;
    fprintf(stderr, "lutra: internal error in the backward at %s, which runs eagerly from now on: %s\n",
            user_line().c_str(), error.what());
    return nullptr;
  }
  known.entries.insert(known.entries.begin(), e);
  log_.push_back(e);
  Counters& c = runtime_.counters;
  c.backward_graphs++, c.backward_ops += int64_t(e->ops);
  if (e->segment) c.kernels += int64_t(e->segment->forward().kernels);
  if (log_wanted("compiled_autograd")) {
    log_text("compiled_autograd",
             str(e->place, ": ", part.run, " nodes of the tape are one graph of ", e->ops, " ops",
                 inlined_text(e->calls), part.stop ? ", up to " + part.why : "", "\n", e->graph_text));
  }
  return e;
}

bool CompiledBackward::run_entry(Engine& engine, BackwardPart& part, BackwardEntry& e) {
  std::vector<Value> values;
  try {
    const DrawnThen drawn(e.recorded, part);
    if (e.segment) values = e.segment->run(inputs_of(e.recorded, part), scalars_of(e.recorded, part), {});
    link_plain_views(e.views, values);
  } catch (const Error& error) {
    if (error.kind == ErrorKind::kInterrupt || dynamic_cast<const LateError*>(&error)) throw;
    return false;
  }
  const auto found = [&](const PartResult& r) {
    return r.from < 0 ? part.tensors[size_t(~r.from)] : values[size_t(r.from)].tensor();
  };
  std::vector<Pending> nodes, leaves;
  const auto add = [&](std::vector<Pending>& list, const PartResult& r) {
    GradNode* node = part.nodes[r.place];
    if (list.empty() || list.back().node.get() != node) list.push_back({Ref<GradNode>(node), {}});
    std::vector<Tensor>& grads = list.back().grads;
    if (grads.size() <= r.result) grads.resize(r.result + 1);
    grads[r.result] = found(r);
  };
  for (const PartResult& r : e.recorded.results) {
    switch (r.kind) {
      case PartResult::kNode: add(nodes, r); break;
      case PartResult::kLeaf: add(leaves, r); break;
      case PartResult::kTarget: engine.results[r.place] = found(r); break;
      case PartResult::kRetained:
        if (AutogradMeta* meta = *part.nodes[r.place]->retained[r.result].meta) meta->grad = found(r);
        break;
      case PartResult::kGrad: autograd_meta(*part.nodes[r.place]->own_leaf()).grad = found(r); break;
    }
  }
  for (const auto& [place, stand_in] : e.recorded.joint) part.nodes[place]->ran_as(*stand_in);
  for (size_t k = 0; k < e.recorded.ran.size() && !engine.retains(); k++) part.nodes[e.recorded.ran[k]]->release();
  engine.go_on_with(std::move(nodes), std::move(leaves));
  e.hits++;
  runtime_.counters.backward_calls++;
  return true;
}

bool CompiledBackward::run(Engine& engine, uint64_t& stop) {
  if (!engine.seen_before) calls_.begin_backward();
  for (;;) {
    try {
      return run_part(engine, stop);
    } catch (const CallRefused& refused) {
      calls_.refuse(refused);  // the next walk ends before it
      engine.seen_before = true;
    }
  }
}

bool CompiledBackward::run_part(Engine& engine, uint64_t& stop) {
  BackwardPart part = walk_backward(engine, calls_);
  stop = part.stop;
  if (!part.repeated.empty()) refuse(part.repeated.c_str());
  if (part.run == 0) {
    stop = stop ? stop - 1 : 0;
    if (!part.why.empty()) refuse(part.why.c_str());
    return false;
  }
  if (!part.refused.empty()) return refuse(part.refused.c_str()), false;
  bool fresh = false;
  const std::shared_ptr<KnownPart> known = find(part, fresh);
  if (fresh && !engine.seen_before && runtime_.config.stress != "backward") return refuse("the first run"), false;
  const PartCall* missed = nullptr;
  std::shared_ptr<BackwardEntry> entry = match(*known, part, missed);
  if (!entry && known->for_good) return refuse(known->refused.c_str()), false;
  if (!entry) {
    const CollectorPause no_finalizers(current_lua());
    if (!is_walked_last(part)) return run_part(engine, stop);  // a finalizer's backward was walked since
    part.drop_calls_values();
    note_changes(*known, part);
    entry = compile(engine, *known, part, missed);
  }
  known->sizes = part.sizes;
  known->numbers.assign(part.numbers.begin(), part.numbers.begin() + int64_t(part.own_numbers));
  if (!entry) return refuse(known->refused.c_str()), false;
  if (reads_grads(part)) return refuse("a call reads a .grad"), false;
  if (!run_entry(engine, part, *entry)) return refuse("an op failed"), false;
  if (!part.stop && !part.why.empty()) refuse(part.why.c_str());  // for the remaining leaves
  return true;
}

}  // namespace lutra
