// A .npy file has a magic, a version, a Python literal {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, and
// the elements.
#include "ops/io/npy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/core/error.h"

namespace lutra {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMaxNpyHeader = 1 << 20;
constexpr size_t kMaxDims = 64;

struct Header {
  DType dtype = DType::kNone;
  bool swapped = false, fortran = false;
  std::vector<uint64_t> sizes;
};

// Parses the literal in the form that NumPy writes.
class Literal {
 public:
  Literal(const ByteSource& in, const std::string& text) : in_(in), text_(text) {}

  Header parse() {
    Header h;
    bool seen[3] = {};
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (which < 0 || seen[which]) wrong();
      seen[which] = true;
      if (which == 0) descr(h);
      if (which == 1) h.fortran = boolean();
      if (which == 2) h.sizes = tuple();
      if (!take(',') && !at('}')) wrong();
    }
    if (!seen[0] || !seen[1] || !seen[2]) wrong();
    skip();
    if (i_ != text_.size()) wrong();
    return h;
  }

 private:
  [[noreturn]] void wrong() const { in_.damaged("its header cannot be read"); }
  void skip() {
    while (i_ < text_.size() && (text_[i_] == ' ' || text_[i_] == '\n' || text_[i_] == '\t')) i_++;
  }
  bool at(char c) {
    skip();
    return i_ < text_.size() && text_[i_] == c;
  }
  bool take(char c) {
    if (!at(c)) return false;
    i_++;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong();
  }
  std::string string() {
    skip();
    if (i_ >= text_.size() || (text_[i_] != '\'' && text_[i_] != '"')) wrong();
    const char quote = text_[i_++];
    const size_t end = text_.find(quote, i_);
    if (end == std::string::npos) wrong();
    const std::string out = text_.substr(i_, end - i_);
    i_ = end + 1;
    return out;
  }
  bool boolean() {
    skip();
    for (const bool value : {true, false}) {
      const char* word = value ? "True" : "False";
      if (text_.compare(i_, std::strlen(word), word) != 0) continue;
      i_ += std::strlen(word);
      return value;
    }
    wrong();
  }
  std::vector<uint64_t> tuple() {
    std::vector<uint64_t> out;
    expect('(');
    while (!take(')')) {
      skip();
      uint64_t n = 0;
      const size_t first = i_;
      for (; i_ < text_.size() && text_[i_] >= '0' && text_[i_] <= '9'; i_++) {
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, uint64_t(text_[i_] - '0'), &n)) wrong();
      }
      if (i_ == first) wrong();
      take('L');  // Python 2
      out.push_back(n);
      if (out.size() > kMaxDims || (!take(',') && !at(')'))) wrong();
    }
    return out;
  }
  void descr(Header& h) {
    if (at('[')) fail("load: ", in_.name(), " is a structured array, which no tensor can hold");
    const std::string text = string();
    const bool marked = !text.empty() && std::strchr("<>|=", text[0]);
    h.swapped = text[0] == '>';
    const std::string kind = marked ? text.substr(1) : text == "?" ? "b1" : text;
    h.dtype = dtype_from_numpy_name(kind);
    if (h.dtype != DType::kNone) return;
    const char* why = kind[0] == 'O' ? " (pickled Python objects are never read)" : "";
    fail("load: ", in_.name(), " has elements of NumPy type '", text, "', for which there is no dtype", why);
  }

  const ByteSource& in_;
  const std::string& text_;
  size_t i_ = 0;
};

std::string read_header(ByteSource& in) {
  uint8_t head[8], raw[4];
  if (in.left() < 10) in.damaged("it is too short for a header");
  in.read(head, 8);
  if (std::memcmp(head, kMagic, 6) != 0) fail("load: ", in.name(), " is no .npy file");
  if (head[6] < 1 || head[6] > 3)
    fail("load: ", in.name(), " has version ", int(head[6]), " of .npy; 1 to 3 are known");
  const size_t width = head[6] == 1 ? 2 : 4;
  if (in.left() < width) in.damaged("it ends too early");
  in.read(raw, width);
  const uint64_t length = little_endian(raw, width);
  if (length > in.left() || length > kMaxNpyHeader) in.damaged("its header promises more than the file holds");
  std::string text(length, 0);
  in.read(text.data(), length);
  return text;
}

Sizes dense_strides(const Sizes& sizes, bool fortran) {
  Sizes strides(sizes.size(), SymInt(1));
  int64_t step = 1;
  for (size_t k = 0; k < sizes.size(); k++) {
    const size_t d = fortran ? k : sizes.size() - 1 - k;
    strides[d] = step;
    step *= std::max<int64_t>(1, sizes[d].hint);
  }
  return strides;
}

}  // namespace

Tensor make_checked(const ByteSource& in, const std::vector<uint64_t>& sizes, DType dtype, uint64_t bytes,
                    bool fortran) {
  uint64_t want = size_of(dtype), strides = size_of(dtype);
  Sizes dims;
  for (const uint64_t size : sizes) {
    if (size > uint64_t(INT64_MAX) || __builtin_mul_overflow(want, size, &want) ||
        __builtin_mul_overflow(strides, std::max<uint64_t>(size, 1), &strides) || strides > uint64_t(INT64_MAX)) {
      in.damaged("its sizes overflow");
    }
    dims.push_back(int64_t(size));
  }
  if (want != bytes)
    in.damaged(str("sizes ", to_string(dims), " of ", name(dtype), " take ", want, " bytes, ", bytes, " are there"));
  return make_tensor(dims, dense_strides(dims, fortran), dtype);
}

void read_elements(ByteSource& in, const Tensor& t) {
  const size_t bytes = byte_count(t);
  in.read(t->data(), bytes);
  if (!is_bool(t->dtype)) return;
  auto* p = t->data_as<uint8_t>();
  for (size_t i = 0; i < bytes; i++) p[i] = p[i] != 0;
}

Tensor read_npy(ByteSource& in) {
  const std::string text = read_header(in);
  const Header h = Literal(in, text).parse();
  const Tensor t = make_checked(in, h.sizes, h.dtype, in.left(), h.fortran);
  read_elements(in, t);
  const size_t width = size_of(info(h.dtype).carrier);
  if (h.swapped && width > 1) {
    auto* p = t->data_as<char>();
    for (size_t n = byte_count(t) / width; n > 0; n--, p += width) std::reverse(p, p + width);
  }
  return t;
}

std::string npy_header(const Tensor& t) {
  const std::string type = info(t->dtype).numpy_name;
  if (type.empty()) {
    fail("save: NumPy has no ", name(t->dtype), ": convert by x:to(dtype)",
         *info(t->dtype).safetensors_name ? ", or save to a .safetensors file" : "");
  }
  std::string text =
      str("{'descr': '", size_of(t->dtype) == 1 ? "|" : "<", type, "', 'fortran_order': False, 'shape': (");
  for (size_t d = 0; d < t->sizes.size(); d++) text += str(d ? ", " : "", t->sizes[d].hint);
  text += t->sizes.size() == 1 ? ",), }" : "), }";
  // The elements begin at a multiple of 64 bytes.
  const size_t prefix = 10, total = (prefix + text.size() + 1 + 63) / 64 * 64;
  LUTRA_CHECK(total - prefix < 65536);
  text.resize(total - prefix - 1, ' ');
  std::string out(kMagic, 6);
  out += '\1', out += '\0';
  append_little(&out, total - prefix, 2);
  return out + text + "\n";
}

Tensor load_npy(const std::string& path) {
  const InputFile file(path);
  FileSource in(file, 0, file.size(), "'" + path + "'");
  return read_npy(in);
}

void save_npy(const std::string& path, const Tensor& contiguous) {
  const std::string header = npy_header(contiguous);
  AtomicFile out(path);
  out.write(header.data(), header.size());
  out.write(contiguous->data(), byte_count(contiguous));
  out.commit();
}

}  // namespace lutra
