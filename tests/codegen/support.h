// Runs a kernel's text or tree on blocks of memory by every executor and compares what they wrote. Buffers end at a
// page that can't be touched, so reading past a tensor is a crash.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "jit/codegen/kernel.h"
#include "jit/loop/interp.h"
#include "jit/loop/look.h"
#include "ops/core/error.h"
#include "ops/core/half.h"
#include "tests/seeds.h"

namespace lutra {

// Returns the instruction sets that this machine has.
inline std::vector<const char*> native_isas() {
  const std::string best = best_isa();
  if (best == "avx512") return {"avx512", "avx2"};
  if (best == "avx2") return {"avx2"};
  if (best == "arm64") return {"arm64"};
  return {};
}
inline std::string ir(DType t) { return info(t).ir_name; }
inline bool native() { return !native_isas().empty(); }

class Bytes {
 public:
  Bytes(DType type, size_t elements) : type(type), elements(elements), bytes_(elements * size_of(type)) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes_ + page - 1) / page * page + page;
    map_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(map_ != MAP_FAILED);
    REQUIRE(mprotect(map_ + mapped_ - page, page, PROT_NONE) == 0);
    data = map_ + mapped_ - page - bytes_;
  }
  Bytes(const Bytes& o) : Bytes(o.type, o.elements) { memcpy(data, o.data, bytes_); }
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { munmap(map_, mapped_); }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  // One element as a double or, for integers, exactly.
  double real(size_t i) const {
    switch (type) {
      case DType::kFloat16: return double(half_to_float(as<uint16_t>()[i]));
      case DType::kBFloat16: return double(bfloat16_to_float(as<uint16_t>()[i]));
      case DType::kFloat32: return double(as<float>()[i]);
      default: return as<double>()[i];
    }
  }

  DType type;
  size_t elements;
  char* data;

 private:
  size_t bytes_, mapped_;
  char* map_;
};

// Values that arithmetic trips over, mixed with ordinary ones.
inline void fill(Bytes& b, std::mt19937_64& rng, double special = 0.3) {
  static const double kReals[] = {0.0,       -0.0,         1.0,     -1.0,    0.5,    2.0,      -2.0,  3.0,    INFINITY,
                                  -INFINITY, NAN,          1e-40,   -1e-42,  3.4e38, -3e38,    1e-38, 88.0,   89.0,
                                  -104.0,    -87.5,        1e-310,  -5e-324, 1e308,  -1.7e308, 709.5, -745.0, 1e15,
                                  0.625,     2147483648.0, -9.3e18, 255.0,   -129.0, 65536.5};
  static const int64_t kInts[] = {0,         1,         -1,        2,   -2,  3,    7,  INT64_MIN,
                                  INT64_MAX, INT32_MIN, INT32_MAX, 255, 256, -128, 127};
  std::uniform_real_distribution<double> ordinary(-3, 3), chance(0, 1);
  for (size_t i = 0; i < b.elements; i++) {
    const bool odd = chance(rng) < special;
    if (is_float(b.type)) {
      const double v = odd ? kReals[rng() % std::size(kReals)] : ordinary(rng);
      if (b.type == DType::kFloat16)
        b.as<uint16_t>()[i] = float_to_half(float(v));
      else if (b.type == DType::kBFloat16)
        b.as<uint16_t>()[i] = float_to_bfloat16(float(v));
      else if (b.type == DType::kFloat32)
        b.as<float>()[i] = float(v);
      else
        b.as<double>()[i] = v;
    } else {
      const int64_t v = odd ? kInts[rng() % std::size(kInts)] : int64_t(rng() % 41) - 20;
      if (b.type == DType::kBool)
        b.as<uint8_t>()[i] = v & 1;
      else
        memcpy(b.data + i * size_of(b.type), &v, size_of(b.type));
    }
  }
}

// A kernel with its arguments. Each run works on a copy of the buffers.
struct Case {
  loop::Kernel kernel;
  std::vector<std::unique_ptr<Bytes>> buffers;
  std::vector<int64_t> ints;
  std::vector<double> scalars;
  int64_t begin = 0, end = 0;  // of the parallel loop
  uint64_t seed = 1234567891011ull, call = 77;

  explicit Case(loop::Kernel k) : kernel(std::move(k)) {}
  explicit Case(const std::string& text) : kernel(loop::parse_kernel(text)) {}
  Case& buffer(DType t, size_t elements) {
    buffers.push_back(std::make_unique<Bytes>(t, elements));
    return *this;
  }
  void fill_all(uint64_t seed_of_data, double special = 0.3) {
    std::mt19937_64 rng(seed_of_data);
    for (auto& b : buffers) fill(*b, rng, special);
  }

  // Returns the argument block of the kernel ABI for these buffers.
  std::vector<uint64_t> block(const std::vector<std::unique_ptr<Bytes>>& memory, LaunchFault* fault,
                              bool looks = false) const {
    std::vector<uint64_t> block(sizeof(BlockHead) / 8);
    BlockHead head;
    head.begin = begin, head.end = end, head.seed = seed, head.call = call, head.fault = fault;
    if (looks) head.look = look_entry();
    memcpy(block.data(), &head, sizeof head);
    for (auto& b : memory) block.push_back(uint64_t(uintptr_t(b->data)));
    for (int64_t i : ints) block.push_back(uint64_t(i));
    for (double s : scalars) {
      uint64_t u;
      memcpy(&u, &s, 8);
      block.push_back(u);
    }
    return block;
  }
  // look_after: as KernelTarget has it; what ends it is raised.
  std::vector<std::unique_ptr<Bytes>> run(const std::string& how, LaunchFault* fault = nullptr,
                                          int32_t look_after = 0) const {
    std::vector<std::unique_ptr<Bytes>> copies;
    for (auto& b : buffers) copies.push_back(std::make_unique<Bytes>(*b));
    std::vector<uint64_t> block = this->block(copies, fault, look_after);
    if (how == "wide")
      loop::interpret(kernel, block.data(), true);
    else
      compile_kernel(kernel, {{}, how, {}, false, false, look_after}, how == "avx2")
          ->run(block.data());  // a listing is searched for what is not AVX2
    raise_left();
    return copies;
  }
};

// Bit for bit, but any NaN equals any NaN.
inline bool same_element(const Bytes& a, const Bytes& b, size_t i) {
  const size_t n = size_of(a.type);
  if (memcmp(a.data + i * n, b.data + i * n, n) == 0) return true;
  return is_float(a.type) && std::isnan(a.real(i)) && std::isnan(b.real(i));
}

inline std::string show(const Bytes& b, size_t i) {
  char text[80];
  if (is_float(b.type)) {
    snprintf(text, sizeof text, "%.17g", b.real(i));
  } else {
    int64_t v = 0;
    memcpy(&v, b.data + i * size_of(b.type), size_of(b.type));
    snprintf(text, sizeof text, "%lld", static_cast<long long>(v));
  }
  return text;
}

// Returns the first difference between the buffers of two runs; empty if they are equal.
inline std::string difference(const std::vector<std::unique_ptr<Bytes>>& a,
                              const std::vector<std::unique_ptr<Bytes>>& b) {
  for (size_t p = 0; p < a.size(); p++) {
    for (size_t i = 0; i < a[p]->elements; i++) {
      if (!same_element(*a[p], *b[p], i)) {
        return str("p", p, "[", i, "]: ", show(*a[p], i), " and ", show(*b[p], i));
      }
    }
  }
  return "";
}

// The exact interpreter and native code write the same; every fourth time also with a look after each iteration.
inline void check_exact(const Case& c) {
  static int turn = 0;
  const bool looks = turn++ % 4 == 0;
  const auto want = c.run("interp");
  for (const char* isa : native_isas()) {
    std::string d = difference(want, c.run(isa));
    if (d.empty() && looks) d = difference(want, c.run(isa, nullptr, 1));
    if (d.empty()) continue;
    INFO(print(c.kernel));
    INFO("ints " << [&] {
      std::string s;
      for (int64_t i : c.ints) s += std::to_string(i) + " ";
      return s;
    }());
    FAIL_CHECK("exact and " << isa << " differ: " << d);
  }
}

}  // namespace lutra
