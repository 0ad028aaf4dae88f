// Converts repros to bytes and back.
//
//   lutra repro 1
//   checksum 0123456789abcdef                 of all that follows
//   kind differs                              one line a field: its name, a blank, its text
//   scalar 0x1p+0                             one line a number of the run
//   storage 4096 cpu                          one line a piece of memory, in the order of the payload
//   input 0 float32 0 {32, 32} {32, 1}        storage, dtype, offset, sizes, strides; "input -" is none
//   guards 2, graph 17                        how many lines of text follow
//   payload                                   the memory of the storages, to the end of the file
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>

#include "jit/repro/repro.h"
#include "ops/core/build_id.h"
#include "ops/core/digest.h"

namespace lutra {
namespace {

constexpr char kMagic[] = "lutra repro 1\n";

// A field of one line.
struct Field {
  const char* name;
  std::string Repro::*text;
};
constexpr Field kFields[] = {{"kind", &Repro::kind},     {"about", &Repro::about}, {"what", &Repro::what},
                             {"device", &Repro::device}, {"isa", &Repro::isa},     {"inject", &Repro::bugs}};
constexpr Field kTexts[] = {{"guards", &Repro::guards}, {"graph", &Repro::graph}};

[[noreturn]] void damaged(const std::string& what) { fail("repro: the file is damaged: ", what); }

std::string one_line(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  return text;
}

std::string sizes_text(const Sizes& sizes) {
  std::string text;
  for (SymInt s : sizes) text += (text.empty() ? "" : ",") + std::to_string(s.hint);
  return "{" + text + "}";
}

std::string hexadecimal(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", v);
  return text;
}

// Describes the storages and inputs, one line each. Appends the storages in order.
std::string describe_inputs(const std::vector<Tensor>& inputs, std::vector<const Storage*>& storages) {
  std::map<const Storage*, size_t> places;
  std::string lines;
  for (const Tensor& t : inputs) {
    if (!t) continue;
    if (!places.emplace(t->storage.get(), storages.size()).second) continue;
    storages.push_back(t->storage.get());
    lines += str("storage ", t->storage->nbytes, " ", to_string(t->device()), "\n");
  }
  for (const Tensor& t : inputs) {
    if (!t) {
      lines += "input -\n";
      continue;
    }
    lines += str("input ", places[t->storage.get()], " ", name(t->dtype), " ", t->offset.hint, " ",
                 sizes_text(t->sizes), " ", sizes_text(t->strides), "\n");
  }
  return lines;
}

// The rest of the text that is being read.
struct Text {
  std::string_view rest;

  std::string_view line() {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) damaged("it ends early");
    const std::string_view found = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return found;
  }
};

std::string_view word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view found = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return found;
}

template <class T>
T whole(std::string_view text, const char* what) {
  T v{};
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (wrong != std::errc() || end != text.data() + text.size()) damaged(str(what, " is '", text, "'"));
  return v;
}

Sizes sizes_of(std::string_view text) {
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') damaged(str("sizes are '", text, "'"));
  text = text.substr(1, text.size() - 2);
  Sizes sizes;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    sizes.push_back(whole<int64_t>(text.substr(0, end), "a size"));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return sizes;
}

DType dtype_named(std::string_view text) {
#define X(e, name, ...) \
  if (text == name) return DType::e;
  LUTRA_ALL_DTYPES(X)
#undef X
  damaged(str("there is no dtype '", text, "'"));
}

struct Input {
  size_t storage;
  DType dtype;
  int64_t offset;
  Sizes sizes, strides;
};

// Checks that all elements are in the storage.
void check_bounds(const Input& in, uint64_t bytes) {
  if (in.sizes.size() != in.strides.size() || in.sizes.size() > 2 * kMaxDims)
    damaged("an input has too many dimensions");
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t last = in.offset, n = 1;
  for (size_t d = 0; d < in.sizes.size(); d++) {
    const int64_t size = in.sizes[d].hint, stride = in.strides[d].hint;
    if (size < 0 || size > kMost || stride < 0 || stride > kMost) damaged("an input has no such size");
    if (size > 1 && __builtin_mul_overflow(size - 1, stride, &n)) damaged("an input has no such size");
    if (size > 1 && __builtin_add_overflow(last, n, &last)) damaged("an input has no such size");
  }
  for (SymInt s : in.sizes) {
    if (s.hint == 0) return;
  }
  if (in.offset < 0 || last >= kMost || bytes_of(in.dtype, last + 1) > int64_t(bytes)) {
    damaged("an input lies outside of its memory");
  }
}

struct Reading {
  Repro repro;
  std::vector<std::pair<uint64_t, Device>> storages;
  std::vector<std::optional<Input>> inputs;

  void input(std::string_view line) {
    if (line == "-") return inputs.push_back(std::nullopt);
    Input in;
    in.storage = whole<size_t>(word(line), "a storage");
    in.dtype = dtype_named(word(line));
    in.offset = whole<int64_t>(word(line), "an offset");
    in.sizes = sizes_of(word(line));
    in.strides = sizes_of(word(line));
    if (in.storage >= storages.size()) damaged("an input has no memory");
    check_bounds(in, storages[in.storage].first);
    inputs.push_back(in);
  }

  void text(std::string Repro::*member, std::string_view count, Text& text) {
    for (size_t n = whole<size_t>(count, "a number of lines"); n > 0; n--) (repro.*member).append(text.line()) += '\n';
  }

  void line(std::string_view line, Text& all) {
    const std::string name(word(line));
    for (const Field& f : kFields) {
      if (name == f.name) return void(repro.*f.text = line);
    }
    for (const Field& f : kTexts) {
      if (name == f.name) return text(f.text, line, all);
    }
    if (name == "build") return;  // for people only: every build can read the text of a graph
    if (name == "without") return repro.without.push_back(std::string(line));
    if (name == "random") {
      repro.seed = whole<uint64_t>(word(line), "a seed");
      repro.next_call = whole<uint64_t>(word(line), "a call");
    } else if (name == "scalar") {
      const std::string number(line);
      char* end = nullptr;
      repro.scalars.push_back(std::strtod(number.c_str(), &end));
      if (number.empty() || *end) damaged("a scalar is '" + number + "'");
    } else if (name == "storage") {
      const auto bytes = whole<uint64_t>(word(line), "a storage's size");
      storages.emplace_back(bytes, parse_device(std::string(line)));
    } else if (name == "input") {
      input(line);
    } else {
      damaged("it has a line '" + name.substr(0, 20) + "'");
    }
  }

  void payload(std::string_view bytes) {
    std::vector<Ref<Storage>> memory;
    for (const auto& [size, device] : storages) {
      if (size > bytes.size()) damaged("it ends early");
      memory.push_back(allocate(size_t(size), device));
      if (size) copy_bytes(memory.back()->data, device, bytes.data(), Device(), size_t(size));
      bytes.remove_prefix(size_t(size));
    }
    if (!bytes.empty()) damaged("it is longer than its inputs");
    for (const auto& in : inputs) {
      repro.inputs.emplace_back();
      if (!in) continue;
      Tensor t = make_tensor(Sizes{0}, in->dtype);
      t->storage = memory[in->storage];
      t->sizes = in->sizes, t->strides = in->strides, t->offset = SymInt(in->offset);
      repro.inputs.back() = t;
    }
  }
};

}  // namespace

std::string write_repro(const Repro& repro) {
  std::string text = "build " + build_id() + "\n";
  for (const Field& f : kFields) text += str(f.name, " ", one_line(repro.*f.text), "\n");
  for (const std::string& pass : repro.without) text += "without " + pass + "\n";
  text += str("random ", repro.seed, " ", repro.next_call, "\n");
  for (double d : repro.scalars) text += "scalar " + hexadecimal(d) + "\n";
  std::vector<const Storage*> storages;
  text += describe_inputs(repro.inputs, storages);
  for (const Field& f : kTexts) {
    std::string lines = repro.*f.text;
    if (!lines.empty() && lines.back() != '\n') lines += '\n';
    text += str(f.name, " ", std::count(lines.begin(), lines.end(), '\n'), "\n", lines);
  }
  text += "payload\n";
  for (const Storage* s : storages) {
    const size_t at = text.size();
    text.resize(at + s->nbytes);
    // Freed memory is written as zeros, since no run reads it.
    if (s->data) copy_bytes(text.data() + at, Device(), s->data, s->device, s->nbytes);
  }
  char sum[40];
  std::snprintf(sum, sizeof sum, "checksum %016llx\n", static_cast<unsigned long long>(checksum(text)));
  return kMagic + (sum + text);
}

Repro read_repro(const std::string& bytes) {
  const std::string_view magic = "lutra repro ";
  if (bytes.compare(0, magic.size(), magic) != 0) fail("repro: this is no repro file");
  if (bytes.compare(0, sizeof kMagic - 1, kMagic) != 0) fail("repro: the file is of another version of Lutra");
  Text text{std::string_view(bytes).substr(sizeof kMagic - 1)};
  std::string_view sum = text.line();
  char expected[40];
  std::snprintf(expected, sizeof expected, "checksum %016llx", static_cast<unsigned long long>(checksum(text.rest)));
  if (sum != expected) damaged("its checksum is another one");
  Reading reading;
  for (;;) {
    const std::string_view line = text.line();
    if (line == "payload") break;
    reading.line(line, text);
  }
  reading.payload(text.rest);
  return std::move(reading.repro);
}

}  // namespace lutra
