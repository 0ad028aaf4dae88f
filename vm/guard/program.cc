// Guard programs: names of their steps, tensor specs, the listing.
#include "vm/guard/program.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ops/grad/tape.h"

namespace lutra {
namespace {

struct Row {
  bool load;
  const char* name;
  const char* kind;
};
const Row kRows[] = {
#define GUARD_LOAD(name) {true, #name, "load"},
#define GUARD_CHECK(name, kind) {false, #name, kind},
#include "vm/guard/guard.def"
#undef GUARD_LOAD
#undef GUARD_CHECK
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

bool set_miss(TensorMiss* miss, const char* kind, int dim, const std::string& old_text, const std::string& new_text) {
  if (miss) *miss = {kind, dim, old_text, new_text};
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

std::string describe(const TensorSpec& s) {
  std::string text = str(name(s.dtype), list(s.sizes));
  if (s.contiguous) {
    text += " contiguous";
  } else {
    text += " strides " + list(s.strides);
  }
  if (s.requires_grad) text += s.leaf ? " leaf requires_grad" : " requires_grad";
  return text;
}

bool matches(const Tensor& t, const TensorSpec& spec, TensorMiss* miss) {
  const TensorImpl& i = *t.get();
  if (i.dtype != spec.dtype) return set_miss(miss, "dtype", -1, name(spec.dtype), name(i.dtype));
  if (!(i.device() == spec.device)) {
    return set_miss(miss, "device", -1, to_string(spec.device), to_string(i.device()));
  }
  if (i.sizes.size() != spec.sizes.size()) {
    return set_miss(miss, "rank", -1, str(spec.sizes.size()), str(i.sizes.size()));
  }
  for (size_t d = 0; d < spec.sizes.size(); d++) {
    if (spec.sizes[d] >= 0 && spec.sizes[d] != i.sizes[d].hint) {
      return set_miss(miss, "size", int(d), list(spec.sizes), list(i.sizes));
    }
    // Sizes 0 and 1 are never symbolic: broadcasting decides by them.
    if (spec.sizes[d] < 0 && i.sizes[d].hint < 2) return set_miss(miss, "size", int(d), ">= 2", list(i.sizes));
  }
  for (size_t d = 0; d < spec.strides.size(); d++) {
    if (spec.strides[d] >= 0 && spec.strides[d] != i.strides[d].hint) {
      return set_miss(miss, "stride", int(d), list(spec.strides), list(i.strides));
    }
  }
  if (spec.contiguous && !has_unit_strides(i)) return set_miss(miss, "stride", -1, "contiguous", list(i.strides));
  if (i.requires_grad != spec.requires_grad) {
    return set_miss(miss, "requires_grad", -1, spec.requires_grad ? "true" : "false",
                    i.requires_grad ? "true" : "false");
  }
  const bool leaf = !i.autograd || !i.autograd->grad_fn;
  if (leaf != spec.leaf) return set_miss(miss, "is_leaf", -1, spec.leaf ? "true" : "false", leaf ? "true" : "false");
  if (i.autograd && i.autograd->has_hooks()) return set_miss(miss, "hooks", -1, "none", "some");
  if (i.storage->freed) return set_miss(miss, "freed", -1, "false", "true");
  return true;
}

namespace {

// The arguments of a leaf that is written name(a, b) at `at`; false if another word stands there.
bool leaf_at(const std::string& text, size_t at, const char* name, int* a, int* b, size_t* end) {
  const std::string open = std::string(name) + "(";
  if (text.compare(at, open.size(), open) != 0) return false;
  const size_t close = text.find(')', at);
  if (close == std::string::npos) return false;
  *a = std::atoi(text.c_str() + at + open.size());
  const size_t comma = text.find(',', at);
  *b = comma < close ? std::atoi(text.c_str() + comma + 1) : 0;
  *end = close + 1;
  return true;
}

const std::string& source_name(const std::vector<const Source*>& sources, int i) {
  static const std::string unknown = "?";
  return i >= 0 && size_t(i) < sources.size() && sources[size_t(i)] ? sources[size_t(i)]->text : unknown;
}

// A relation as SymEnv prints it, nadd(scalar(0), 1) <= num(3), in; out as Lua writes it, with the names of its
// sources: n + 1 <= 3.
class RelationText {
 public:
  RelationText(const GuardProgram& p, int relation) : p_(p), text_(p.symbols.print(relation)) {}

  std::string text() {
    std::string out = operand(0);
    while (at_ < text_.size() && std::strchr(" <>=~", text_[at_])) out += text_[at_++];
    const bool two_sides = at_ < text_.size() && text_.compare(at_, 2, "is") != 0;
    return two_sides ? out + operand(0) : out + text_.substr(std::min(at_, text_.size()));
  }

 private:
  // Operators of Lua by how tightly they bind.
  struct Infix {
    const char *name, *text;
    int rank;
  };
  static constexpr Infix kInfix[] = {{"add", " + ", 1}, {"sub", " - ", 1}, {"mul", " * ", 2},
                                     {"div", " / ", 2}, {"mod", " % ", 2}, {"pow", " ^ ", 4}};
  static constexpr int kNegation = 3;

  bool leaf(std::string* out) {
    int a = 0, b = 0;
    size_t end = 0;
    if (leaf_at(text_, at_, "scalar", &a, &b, &end)) {
      *out = source_name(p_.scalar_sources, a);
    } else if (leaf_at(text_, at_, "size", &a, &b, &end)) {
      *out = str(source_name(p_.tensor_sources, a), ".shape[", b + 1, "]");
    } else if (leaf_at(text_, at_, "stride", &a, &b, &end)) {
      *out = str(source_name(p_.tensor_sources, a), ":stride(", b, ")");
    } else if (leaf_at(text_, at_, "num", &a, &b, &end) || leaf_at(text_, at_, "int", &a, &b, &end)) {
      *out = text_.substr(at_ + 4, end - at_ - 5);
    } else {
      return false;
    }
    at_ = end;
    return true;
  }

  // The operand at at_, in parentheses where it binds less tightly than what is around it.
  std::string operand(int around) {
    std::string out;
    if (leaf(&out)) return out;
    const size_t first = at_;
    at_ = std::min(text_.find_first_of("(), ", at_), text_.size());
    std::string name = text_.substr(first, at_ - first);
    if (at_ == text_.size() || text_[at_] != '(') return name;  // a whole number
    ++at_;
    if (name[0] == 'n') name.erase(0, 1);  // of numbers, not sizes
    int rank = 5;
    for (const Infix& i : kInfix) {
      if (name != i.name) continue;
      rank = i.rank;
      out = operand(rank == 4 ? rank + 1 : rank);
      next();
      out += i.text + operand(rank == 4 ? rank : rank + 1);
    }
    if (name == "neg") {
      rank = kNegation;
      out = "-" + operand(rank);
    } else if (name == "tonum") {
      out = operand(around);
    } else if (rank == 5) {
      out = name + "(" + operand(0);
      while (next()) out += ", " + operand(0);
      out += ")";
    }
    if (at_ < text_.size()) ++at_;  // the closing parenthesis
    return rank < around ? "(" + out + ")" : out;
  }

  bool next() {
    if (text_.compare(at_, 2, ", ") != 0) return false;
    at_ += 2;
    return true;
  }

  const GuardProgram& p_;
  const std::string text_;
  size_t at_ = 0;
};

}  // namespace

std::string relation_text(const GuardProgram& p, int i) { return RelationText(p, i).text(); }

const Source* relation_source(const GuardProgram& p, int i) {
  const std::string text = p.symbols.print(i);
  for (size_t at = 0, end = 0; at < text.size(); at++) {
    int a = 0, b = 0;
    const bool scalar = leaf_at(text, at, "scalar", &a, &b, &end);
    if (!scalar && !leaf_at(text, at, "size", &a, &b, &end) && !leaf_at(text, at, "stride", &a, &b, &end)) continue;
    const auto& sources = scalar ? p.scalar_sources : p.tensor_sources;
    return size_t(a) < sources.size() ? sources[size_t(a)] : nullptr;
  }
  return nullptr;
}

GuardPlace place_of(const GuardProgram& p, const GuardStep& step) {
  return step.source && step.source->file ? GuardPlace{step.source->file, step.source->line} : p.start;
}

std::string relations_text(const GuardProgram& p) {
  std::string text;
  for (size_t i = 0; i < p.symbols.guards().size(); i++) text += (i ? ", " : "") + relation_text(p, int(i));
  return text;
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
    if (i < p.expected.size() && !p.expected[i].empty()) line += " : " + p.expected[i];
    text += line + "\n";
  }
  for (size_t g = 0; g < p.symbols.guards().size(); g++) text += "  relation " + relation_text(p, int(g)) + "\n";
  return text;
}

}  // namespace lutra
