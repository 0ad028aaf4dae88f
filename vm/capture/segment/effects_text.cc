// Prints and parses effects, and verifies that the objects exist to which they refer.
//
//   effects := "effects" "{" line* "}"
//   line    := "table" int "array" int "hash" int ["metatable" recipe] "{" {recipe "=" recipe} "}"
//            | "closure" int "by" recipe "in" recipe "{" {"=" recipe | "of" recipe int} "}"
//            | "text" int "by" recipe "(" [recipes] ")"
//            | "return" [recipes] | "set" recipe "[" recipe "]" "=" recipe | "setmetatable" recipe "," recipe
//            | "upvalue" recipe int "=" recipe | "slot" int "=" recipe | "requires_grad" "in" int "=" bool
//            ["then" bool]
//            | "grad" ("in" | "out") int "=" recipe | "writes" "in" int | "leaf" "out" int | "hidden" "out" int
//            | "retain" recipe | "hook" recipe "=" recipe | "draw" recipe int
//            | "view" "out" int "of" recipe ["recorded"] ["symbolic"] ["complex"] {"by" op "(" values ")"}
//            | "history" "in" int "=" "out" int | "refuse" "out" int string {("in" | "out") int} ["modified"
//            recipe "by" string "writes" int] | "grad_mode" bool | "autocast" int
//   recipe  := "nil" | "false" | "true" | ("const" | "out" | "item" | "in" | "r" | "sym" | "table" | "closure" | "text"
//   | "resume") int
#include "jit/graph/text.h"
#include "jit/graph/text_reader.h"
#include "vm/capture/segment/effects.h"

namespace lutra {
namespace {

constexpr const char* kNames[Recipe::kKinds] = {"nil", "false", "true",  "const",   "out",  "item",  "in",
                                                "r",   "sym",   "table", "closure", "text", "resume"};

std::string text_of(const Recipe& r) {
  return r.kind <= Recipe::kTrue ? kNames[r.kind] : str(kNames[r.kind], " ", r.index);
}

std::string text_of(const Value& v) {
  if (v.is<bool>()) return v.as<bool>() ? "true" : "false";
  if (v.is<DType>()) return name(v.as<DType>());
  if (v.is<Sizes>()) return to_string(v.as<Sizes>());
  if (!v.is<Scalar>()) return "None";
  const Scalar& s = v.as<Scalar>();
  return s.kind == Scalar::kNumber ? number_text(s.d) : str(s.i);
}

std::string text_of(const FreshTable& t, size_t i) {
  std::string text = str("table ", i, " array ", t.array_size, " hash ", t.hash_size);
  if (t.maker.kind != Recipe::kNil) text += " by " + text_of(t.maker);
  if (t.metatable.kind != Recipe::kNil) text += " metatable " + text_of(t.metatable);
  text += " {";
  for (const auto& [k, v] : t.items) text += "\n    " + text_of(k) + " = " + text_of(v);
  return text + (t.items.empty() ? "}" : "\n  }");
}

std::string text_of(const FreshClosure& c, size_t i) {
  std::string text = str("closure ", i, " of ", text_of(c.around), " child");
  for (const unsigned constant : c.path) text += str(" ", constant);
  text += " {";
  for (const FreshVariable& v : c.variables) {
    const bool own = v.function.kind == Recipe::kNil;
    text += own ? "\n    = " + text_of(v.value) : str("\n    of ", text_of(v.function), " ", v.index);
  }
  return text + (c.variables.empty() ? "}" : "\n  }");
}

std::string text_of(const FreshText& t, size_t i) {
  std::string list;
  for (const Recipe& r : t.args) list += (list.empty() ? "" : ", ") + text_of(r);
  return str("text ", i, " by ", text_of(t.function), " (", list, ")");
}

std::string text_of(const ViewOutput& v) {
  std::string text = str("view out ", v.output, " of ", text_of(v.base));
  if (v.recorded) text += " recorded";
  if (v.symbolic) text += " symbolic";
  if (v.complex) text += " complex";
  for (const ViewCall& c : v.calls) {
    text += str(" by ", name(c.op), "(");
    for (size_t i = 1; i < c.args.size(); i++) text += (i > 1 ? ", " : "") + text_of(c.args[i]);
    text += ")";
  }
  return text;
}

struct Parser : TextReader {
  explicit Parser(const std::string& text, SymEnv& env) : TextReader(text, "effects text", env) {}
  Effects e;

  Recipe recipe() {
    const std::string w = word();
    for (int k = 0; k < Recipe::kKinds; k++) {
      if (w == kNames[k]) return {Recipe::Kind(k), k <= Recipe::kTrue ? 0 : place()};
    }
    error("unknown value '" + w + "'");
  }
  Recipe after(const char* sign) {
    expect(sign);
    return recipe();
  }
  int of(const char* kind) {
    expect(kind);
    return place();
  }
  bool boolean() {
    const bool yes = accept("true");
    if (!yes) expect("false");
    return yes;
  }

  Value value(ArgType type) {
    if (accept("None")) return Value();
    if (type == ArgType::kBool) return Value(boolean());
    if (peek("{")) return sizes("{", "}");
    if (type == ArgType::kDType) {
      const DType t = dtype_from_name(word());
      return t == DType::kNone ? error("unknown dtype"), Value() : Value(t);
    }
    bool whole;
    const std::string s = number(whole);
    return whole ? Scalar::of_int(whole_number(s)) : Scalar(std::strtod(s.c_str(), nullptr));
  }

  ViewCall call() {
    ViewCall c;
    const std::string w = word();
    c.op = find_op(w);
    if (c.op == OpId::kCount || !info(c.op).has(kView)) error("'" + w + "' makes no view");
    c.args.emplace_back();
    expect("(");
    for (size_t i = 1; !accept(")"); i++) {
      if (i >= info(c.op).args.size()) error(w + " takes fewer arguments");
      if (i > 1) expect(",");
      c.args.push_back(value(info(c.op).args[i].type));
    }
    return c;
  }

  void table() {
    if (size_t(place()) != e.tables.size()) error("tables are numbered in order");
    FreshTable t;
    t.array_size = of("array"), t.hash_size = of("hash");
    if (accept("by")) t.maker = recipe();
    if (accept("metatable")) t.metatable = recipe();
    expect("{");
    while (!accept("}")) {
      const Recipe key = recipe();
      t.items.emplace_back(key, after("="));
    }
    e.tables.push_back(std::move(t));
  }

  void closure() {
    if (size_t(place()) != e.closures.size()) error("closures are numbered in order");
    FreshClosure c;
    c.around = after("of");
    expect("child");
    while (!accept("{")) c.path.push_back(unsigned(place()));
    while (!accept("}")) {
      FreshVariable v;
      if (accept("of")) {
        v.function = recipe(), v.index = place();
      } else {
        v.value = after("=");
      }
      c.variables.push_back(v);
    }
    e.closures.push_back(std::move(c));
  }

  void text_made() {
    if (size_t(place()) != e.texts.size()) error("texts are numbered in order");
    FreshText t;
    t.function = after("by");
    expect("(");
    while (!accept(")")) {
      if (!t.args.empty()) expect(",");
      t.args.push_back(recipe());
    }
    e.texts.push_back(std::move(t));
  }

  void view() {
    ViewOutput v;
    v.output = of("out"), v.base = after("of");
    v.recorded = accept("recorded"), v.symbolic = accept("symbolic"), v.complex = accept("complex");
    while (accept("by")) v.calls.push_back(call());
    e.view_outputs.push_back(std::move(v));
  }

  void refuse() {
    RefusedOutput r;
    r.output = of("out"), r.why = quoted();
    while (peek("in") || peek("out")) r.reached.push_back(recipe());
    if (accept("modified")) {
      r.read = recipe();
      expect("by");
      r.op = quoted(), r.writes = of("writes");
    }
    e.refused_outputs.push_back(std::move(r));
  }

  void set() {
    TableWrite w;
    w.table = recipe(), w.key = after("[");
    expect("]");
    w.value = after("=");
    e.table_writes.push_back(w);
  }

  void grad() {
    if (peek("in")) {
      const int i = of("in");
      e.grad_writes.push_back({i, after("=")});
    } else {
      const int i = of("out");
      e.output_grads.push_back({i, after("=")});
    }
  }

  void results() {
    do e.results.push_back(recipe());
    while (accept(","));
  }

  void set_upvalue() {
    const Recipe function = recipe();
    const int i = place();
    e.upvalue_writes.push_back({function, i, after("=")});
  }

  void set_slot() {
    const int i = int(integer());
    e.slot_writes.push_back({i, after("=")});
  }

  void set_requires_grad() {
    const int i = of("in");
    expect("=");
    const bool recorded = boolean();
    e.requires_grad_writes.push_back({i, recorded, accept("then") ? boolean() : recorded});
  }

  void set_history() {
    const int i = of("in");
    expect("=");
    e.history_writes.push_back({i, of("out")});
  }

  // Reads a recipe, then "word value", into a list.
  template <class Write>
  void write(std::vector<Write>& to, const char* word) {
    const Recipe target = recipe();
    to.push_back({target, after(word)});
  }

  void statement() {
    struct Kind {
      const char* word;
      void (*read)(Parser&);
    };
    static constexpr Kind kKinds[] = {
        {"table", [](Parser& p) { p.table(); }},
        {"closure", [](Parser& p) { p.closure(); }},
        {"text", [](Parser& p) { p.text_made(); }},
        {"view", [](Parser& p) { p.view(); }},
        {"refuse", [](Parser& p) { p.refuse(); }},
        {"set", [](Parser& p) { p.set(); }},
        {"grad", [](Parser& p) { p.grad(); }},
        {"return", [](Parser& p) { p.results(); }},
        {"setmetatable", [](Parser& p) { p.write(p.e.metatable_writes, ","); }},
        {"upvalue", [](Parser& p) { p.set_upvalue(); }},
        {"slot", [](Parser& p) { p.set_slot(); }},
        {"requires_grad", [](Parser& p) { p.set_requires_grad(); }},
        {"writes", [](Parser& p) { p.e.written.push_back(p.of("in")); }},
        {"leaf", [](Parser& p) { p.e.leaf_outputs.push_back(p.of("out")); }},
        {"hidden", [](Parser& p) { p.e.hidden_bases.push_back(p.of("out")); }},
        {"retain", [](Parser& p) { p.e.retained.push_back(p.recipe()); }},
        {"hook", [](Parser& p) { p.write(p.e.hooks, "="); }},
        {"draw",
         [](Parser& p) {
           p.e.draws.function = p.recipe(), p.e.draws.count = p.place();
           if (p.accept("from")) p.e.draws.seed = p.recipe();
         }},
        {"seed", [](Parser& p) { p.e.seed = p.recipe(); }},
        {"history", [](Parser& p) { p.set_history(); }},
        {"grad_mode", [](Parser& p) { p.e.grad_mode = p.boolean(), p.e.sets_grad_mode = true; }},
        {"autocast", [](Parser& p) { p.e.autocast = p.place(); }},
    };
    for (const Kind& kind : kKinds) {
      if (accept(kind.word)) return kind.read(*this);
    }
    error("unknown effect '" + word() + "'");
  }

  Effects run() {
    expect("effects");
    expect("{");
    while (!accept("}")) {
      skip();
      if (at >= text.size()) error("the effects have no end");
      placed([&] { statement(); });
    }
    skip();
    if (at < text.size()) error("text after the end");
    return std::move(e);
  }
};

struct Verifier {
  const Effects& e;
  const EffectPlaces& places;
  std::string wrong{};
  size_t texts = 0;  // number of texts that are made before the checked value

  void check(const char* kind, int index, size_t count) {
    if (wrong.empty() && (index < 0 || size_t(index) >= count)) wrong = str("there is no ", kind, " ", index);
  }
  void in(int i) { check("in", i, places.inputs); }
  void out(int i) { check("out", i, places.outputs); }
  void value(const Recipe& r) {
    const size_t counts[Recipe::kKinds] = {1,
                                           1,
                                           1,
                                           places.constants,
                                           places.outputs,
                                           places.outputs,
                                           places.inputs,
                                           places.registers,
                                           places.symbols,
                                           e.tables.size(),
                                           e.closures.size(),
                                           texts,
                                           places.resumes};
    check(kNames[r.kind], r.index, counts[r.kind]);
  }

  void tensor(const Recipe& r) {
    if (r.kind != Recipe::kTensorIn && r.kind != Recipe::kTensorOut && wrong.empty()) wrong = "no tensor";
    value(r);
  }

  // Checks a seed, which must be available before the run.
  void seed(const Recipe& r) {
    const bool early = r.kind == Recipe::kNil || r.kind == Recipe::kConstant || r.kind == Recipe::kRegister ||
                       r.kind == Recipe::kSymbol;
    if (!early && wrong.empty()) wrong = "a seed that the run gives";
    value(r);
  }

  std::string run() {
    for (; texts < e.texts.size(); texts++) {
      value(e.texts[texts].function);
      for (const Recipe& r : e.texts[texts].args) value(r);
    }
    for (const FreshTable& t : e.tables) {
      value(t.maker), value(t.metatable);
      for (const auto& [k, v] : t.items) value(k), value(v);
    }
    for (const FreshClosure& c : e.closures) {
      if (c.path.empty() && wrong.empty()) wrong = "there is no path to a closure";
      value(c.around);
      for (const FreshVariable& v : c.variables) value(v.function), value(v.value);
    }
    for (const Recipe& r : e.results) value(r);
    for (const TableWrite& w : e.table_writes) value(w.table), value(w.key), value(w.value);
    for (const MetatableWrite& w : e.metatable_writes) value(w.table), value(w.metatable);
    for (const UpvalueWrite& w : e.upvalue_writes) value(w.function), value(w.value);
    for (const SlotWrite& w : e.slot_writes) value(w.value);
    for (const GradWrite& w : e.grad_writes) in(w.input), value(w.value);
    for (const RequiresGradWrite& w : e.requires_grad_writes) in(w.input);
    for (int i : e.written) in(i);
    for (int i : e.leaf_outputs) out(i);
    for (const ViewOutput& v : e.view_outputs) out(v.output), value(v.base);
    for (int i : e.hidden_bases) out(i);
    for (const Recipe& r : e.retained) tensor(r);
    for (const LeftHook& h : e.hooks) tensor(h.tensor), value(h.function);
    value(e.draws.function), value(e.draws.seed);
    seed(e.seed);
    for (const OutputGrad& g : e.output_grads) out(g.output), value(g.value);
    for (const HistoryWrite& w : e.history_writes) in(w.input), out(w.output);
    for (const RefusedOutput& r : e.refused_outputs) {
      out(r.output);
      for (const Recipe& reached : r.reached) value(reached);
      value(r.read);
    }
    return wrong;
  }
};

}  // namespace

std::string print(const Effects& e) {
  std::string text = "effects {\n";
  const auto line = [&](const auto&... parts) { text += str("  ", parts..., "\n"); };
  for (size_t i = 0; i < e.tables.size(); i++) line(text_of(e.tables[i], i));
  for (size_t i = 0; i < e.closures.size(); i++) line(text_of(e.closures[i], i));
  for (size_t i = 0; i < e.texts.size(); i++) line(text_of(e.texts[i], i));
  if (!e.results.empty()) {
    std::string list;
    for (const Recipe& r : e.results) list += (list.empty() ? "" : ", ") + text_of(r);
    line("return ", list);
  }
  for (const TableWrite& w : e.table_writes) {
    line("set ", text_of(w.table), "[", text_of(w.key), "] = ", text_of(w.value));
  }
  for (const MetatableWrite& w : e.metatable_writes) {
    line("setmetatable ", text_of(w.table), ", ", text_of(w.metatable));
  }
  for (const UpvalueWrite& w : e.upvalue_writes) {
    line("upvalue ", text_of(w.function), " ", w.index, " = ", text_of(w.value));
  }
  for (const SlotWrite& w : e.slot_writes) line("slot ", w.place, " = ", text_of(w.value));
  for (const GradWrite& w : e.grad_writes) line("grad in ", w.input, " = ", text_of(w.value));
  for (const OutputGrad& g : e.output_grads) line("grad out ", g.output, " = ", text_of(g.value));
  for (const RequiresGradWrite& w : e.requires_grad_writes) {
    const auto text = [](bool b) { return b ? "true" : "false"; };
    const std::string then = w.value == w.recorded ? "" : str(" then ", text(w.value));
    line("requires_grad in ", w.input, " = ", text(w.recorded), then);
  }
  for (int i : e.written) line("writes in ", i);
  for (int i : e.leaf_outputs) line("leaf out ", i);
  for (int i : e.hidden_bases) line("hidden out ", i);
  for (const Recipe& r : e.retained) line("retain ", text_of(r));
  for (const LeftHook& h : e.hooks) line("hook ", text_of(h.tensor), " = ", text_of(h.function));
  if (e.seed.kind != Recipe::kNil) line("seed ", text_of(e.seed));
  if (e.draws.function.kind != Recipe::kNil) {
    const bool seeded = e.draws.seed.kind != Recipe::kNil;
    line("draw ", text_of(e.draws.function), " ", e.draws.count, seeded ? " from " + text_of(e.draws.seed) : "");
  }
  for (const ViewOutput& v : e.view_outputs) line(text_of(v));
  for (const HistoryWrite& w : e.history_writes) line("history in ", w.input, " = out ", w.output);
  for (const RefusedOutput& r : e.refused_outputs) {
    std::string reached;
    for (const Recipe& recipe : r.reached) reached += str(" ", text_of(recipe));
    std::string read;
    if (r.read.kind != Recipe::kNil)
      read = str(" modified ", text_of(r.read), " by ", quote(r.op), " writes ", r.writes);
    line("refuse out ", r.output, " ", quote(r.why), reached, read);
  }
  if (e.sets_grad_mode) line("grad_mode ", e.grad_mode ? "true" : "false");
  if (e.autocast != Effects::kNoAutocast) line("autocast ", e.autocast);
  return text + "}\n";
}

Effects parse_effects(const std::string& text) {
  SymEnv env;
  return Parser(text, env).run();
}

std::string verify(const Effects& effects, const EffectPlaces& places) { return Verifier{effects, places}.run(); }

}  // namespace lutra
