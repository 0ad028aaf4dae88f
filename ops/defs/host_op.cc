// Converts calls of a host's ops to text and back. An integer ends with ';'. A text is written in hexadecimal digits,
// because a graph's text cannot hold line ends.
#include "ops/defs/host_op.h"

#include <algorithm>
#include <charconv>

#include "ops/core/error.h"

namespace lutra {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr int64_t kMaxEntries = 1 << 20;

[[noreturn]] void fail_text(const char* what, std::string_view text) {
  fail("host_op: '", text.substr(0, 100), "' is no text of ", what);
}

class Reader {
 public:
  Reader(const char* what, std::string_view text) : what_(what), text_(text), left_(text) {}
  bool done() const { return left_.empty(); }
  char next() {
    if (left_.empty()) refuse();
    const char c = left_[0];
    left_.remove_prefix(1);
    return c;
  }
  bool take(char c) {
    if (left_.empty() || left_[0] != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  int64_t integer(char end) {
    int64_t value = 0;
    const auto [at, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (error != std::errc()) refuse();
    left_.remove_prefix(size_t(at - left_.data()));
    if (!take(end)) refuse();
    return value;
  }
  size_t count() {
    const int64_t n = integer(';');
    if (n < 0 || n > kMaxEntries) refuse();
    return size_t(n);
  }
  std::string text() {
    std::string out;
    while (!take(';')) {
      const size_t high = kDigits.find(next()), low = kDigits.find(next());
      if (high == kDigits.npos || low == kDigits.npos) refuse();
      out += char(high << 4 | low);
    }
    return out;
  }
  std::vector<bool> bits() {
    std::vector<bool> out(count());
    for (size_t i = 0; i < out.size(); i++) out[i] = next() == '1';
    return out;
  }
  std::string_view until(char end) {
    const size_t n = left_.find(end);
    if (n == left_.npos) refuse();
    const std::string_view part = left_.substr(0, n);
    left_.remove_prefix(n + 1);
    return part;
  }
  [[noreturn]] void refuse() const { fail_text(what_, text_); }

 private:
  const char* what_;
  std::string_view text_, left_;
};

void write_argument(std::string& out, const HostArgument& a) {
  out += "ntlfizbs"[a.kind];
  switch (a.kind) {
    case HostArgument::kNone:
    case HostArgument::kTensor:
    case HostArgument::kNumber: break;
    case HostArgument::kTensors:
    case HostArgument::kInt:
    case HostArgument::kBool: out += std::to_string(a.n) + ";"; break;
    case HostArgument::kInts:
      out += std::to_string(a.ints.size()) + ";";
      for (const int64_t i : a.ints) out += std::to_string(i) + ";";
      break;
    case HostArgument::kText:
      for (const char c : a.text) out += kDigits[uint8_t(c) >> 4], out += kDigits[uint8_t(c) & 15];
      out += ';';
      break;
  }
}

HostArgument read_argument(Reader& in) {
  HostArgument a;
  const size_t kind = std::string_view("ntlfizbs").find(in.next());
  if (kind == std::string_view::npos) in.refuse();
  a.kind = HostArgument::Kind(kind);
  switch (a.kind) {
    case HostArgument::kNone:
    case HostArgument::kTensor:
    case HostArgument::kNumber: break;
    case HostArgument::kTensors: a.n = int64_t(in.count()); break;
    case HostArgument::kInt:
    case HostArgument::kBool: a.n = in.integer(';'); break;
    case HostArgument::kInts:
      for (size_t n = in.count(); n-- > 0;) a.ints.push_back(in.integer(';'));
      break;
    case HostArgument::kText: a.text = in.text(); break;
  }
  return a;
}

void write_bits(std::string& out, const std::vector<bool>& bits) {
  out += std::to_string(bits.size()) + ";";
  for (const bool bit : bits) out += bit ? '1' : '0';
}

}  // namespace

size_t HostForm::tensors() const {
  size_t n = 0;
  for (const HostArgument& a : arguments) {
    if (a.kind == HostArgument::kTensor) n++;
    if (a.kind == HostArgument::kTensors) n += size_t(a.n);
  }
  return n;
}

size_t HostForm::numbers() const {
  return size_t(std::count_if(arguments.begin(), arguments.end(),
                              [](const HostArgument& a) { return a.kind == HostArgument::kNumber; }));
}

std::string write_form(const HostForm& form) {
  std::string out = form.has_gradient ? "+" : "-";
  out += std::to_string(form.arguments.size()) + ";";
  for (const HostArgument& a : form.arguments) write_argument(out, a);
  if (form.results == 0) return out;
  out += std::to_string(form.results) + ";";
  write_bits(out, form.given), write_bits(out, form.wanted);
  return out;
}

HostForm read_form(std::string_view text) {
  Reader in("a form", text);
  HostForm form;
  form.has_gradient = in.next() == '+';
  for (size_t n = in.count(); n-- > 0;) form.arguments.push_back(read_argument(in));
  if (form.numbers() > kMaxHostNumbers) in.refuse();
  if (in.done()) return form;
  form.results = in.count();
  form.given = in.bits(), form.wanted = in.bits();
  const bool fits = form.results > 0 && form.given.size() == form.results && form.wanted.size() == form.tensors();
  if (!fits || !in.done()) in.refuse();
  return form;
}

std::string write_results(const std::vector<HostResult>& results) {
  std::string out;
  for (const HostResult& r : results) {
    out += name(r.dtype) + std::string("[");
    for (const int64_t size : r.sizes) out += std::to_string(size) + ",";
    out += "]";
  }
  return out;
}

std::vector<HostResult> read_results(std::string_view text) {
  Reader in("results", text);
  std::vector<HostResult> results;
  while (!in.done()) {
    HostResult r;
    r.dtype = dtype_from_name(in.until('['));
    if (r.dtype == DType::kNone) in.refuse();
    while (!in.take(']')) r.sizes.push_back(in.integer(','));
    results.push_back(std::move(r));
  }
  if (results.empty()) in.refuse();
  return results;
}

std::string_view host_op_name(std::string_view op) { return op.substr(0, op.find('(')); }

}  // namespace lutra
