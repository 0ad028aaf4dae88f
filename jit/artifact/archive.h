// Archives: values to bytes and back. `fields` (fields.h) lists the members of a type once, for the Writer and the
// Reader.
//
// Integers are LEB128 (zigzag where signed), numbers their eight bytes, texts and lists their length first.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "ops/core/error.h"

namespace lutra::artifact {

// Thrown if the bytes differ from what a Writer would have written.
struct Damaged : Error {
  explicit Damaged(const std::string& what) : Error(ErrorKind::kUser, "artifact: " + what) {}
};

// The number of values of an enumeration: the reader rejects others.
template <class E>
struct EnumSize;

class Writer {
 public:
  template <class T>
  using Ref = const T&;

  std::string take() { return std::move(out_); }

  template <class... T>
  void operator()(const T&... values) {
    (value(values), ...);
  }
  template <class... T>
  void fields_of(const char* /*names*/, const T&... values) {
    (value(values), ...);
  }

 private:
  void unsigned_value(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_ += char(v | 0x80);
    out_ += char(v);
  }
  template <class T>
  void value(const T& v) {
    if constexpr (std::is_same_v<T, double>) {
      out_.append(reinterpret_cast<const char*>(&v), sizeof v);
    } else if constexpr (std::is_enum_v<T>) {
      unsigned_value(uint64_t(v));
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      unsigned_value((uint64_t(v) << 1) ^ uint64_t(int64_t(v) >> 63));
    } else if constexpr (std::is_integral_v<T>) {
      unsigned_value(uint64_t(v));
    } else {
      fields(*this, v);
    }
  }
  void value(const std::string& v) { unsigned_value(v.size()), out_ += v; }
  template <class T>
  void value(const std::vector<T>& v) {
    unsigned_value(v.size());
    for (const T& each : v) value(each);
  }
  template <class T>
  void value(const std::unique_ptr<T>& v) {
    value(*v);
  }
  template <class... T>
  void value(const std::variant<T...>& v) {
    unsigned_value(v.index());
    std::visit([&](const auto& held) { value(held); }, v);
  }

  std::string out_;
};

// Reads an archive. Throws Damaged. It never reads past the end, and makes no list longer than the remaining bytes.
class Reader {
 public:
  template <class T>
  using Ref = T&;

  explicit Reader(std::string_view in) : in_(in) {}

  template <class... T>
  void operator()(T&... values) {
    (value(values), ...);
  }
  template <class... T>
  void fields_of(const char* /*names*/, T&... values) {
    (value(values), ...);
  }
  bool at_end() const { return in_.empty(); }

 private:
  // A limit on nested loops and functions. No program has so many; damaged bytes must not exhaust the stack.
  static constexpr int kMaxNested = 200;

  std::string_view take(size_t bytes) {
    if (bytes > in_.size()) throw Damaged("it ends early");
    const std::string_view part = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return part;
  }
  uint64_t unsigned_value() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = static_cast<unsigned char>(take(1)[0]);
      v |= (byte & 0x7f) << shift;
      if (byte < 0x80) return v;
    }
    throw Damaged("a number has no end");
  }
  // Reads a list's length. Each element takes at least a byte.
  size_t length() {
    const uint64_t n = unsigned_value();
    if (n > in_.size()) throw Damaged("a list is longer than the artifact");
    return size_t(n);
  }
  template <class T>
  void value(T& v) {
    if constexpr (std::is_same_v<T, double>) {
      std::memcpy(&v, take(sizeof v).data(), sizeof v);
    } else if constexpr (std::is_same_v<T, bool>) {
      const uint64_t read = unsigned_value();
      if (read > 1) throw Damaged("a truth value that is neither");
      v = read == 1;
    } else if constexpr (std::is_enum_v<T>) {
      const uint64_t read = unsigned_value();
      if (read >= EnumSize<T>::value) throw Damaged("a name that does not exist");
      v = T(read);
    } else if constexpr (std::is_integral_v<T>) {
      const uint64_t read = unsigned_value();
      const auto whole = std::is_signed_v<T> ? int64_t(read >> 1) ^ -int64_t(read & 1) : int64_t(read);
      v = T(whole);
      if (int64_t(v) != whole) throw Damaged("a number that is too large");
    } else {
      if (++nested_ > kMaxNested) throw Damaged("values within too many values");
      fields(*this, v);
      nested_--;
    }
  }
  void value(std::string& v) {
    const size_t n = length();
    v = take(n);
  }
  template <class T>
  void value(std::vector<T>& v) {
    v.resize(length());
    for (T& each : v) value(each);
  }
  template <class T>
  void value(std::unique_ptr<T>& v) {
    v = std::make_unique<T>();
    value(*v);
  }
  template <class... T>
  void value(std::variant<T...>& v) {
    read_variant(v, unsigned_value(), std::index_sequence_for<T...>());
  }
  template <class V, size_t... I>
  void read_variant(V& v, uint64_t index, std::index_sequence<I...>) {
    if (index >= sizeof...(I)) throw Damaged("a kind that does not exist");
    ((index == I ? value(v.template emplace<I>()) : void()), ...);
  }

  std::string_view in_;
  int nested_ = 0;
};

}  // namespace lutra::artifact
