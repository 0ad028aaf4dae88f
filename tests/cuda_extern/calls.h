// Runs extern calls on host memory by the CPU's candidate and by the GPU's kernels on a HostMachine, and compares them.
#pragma once
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/extern/cpu/elements.h"
#include "tests/cuda_extern/machine.h"

namespace lutra::cuda {

// A tensor's memory and the view on it.
struct Operand {
  std::vector<char> bytes;
  ExternView view;
  ExternView on(std::vector<char>& memory) const {
    ExternView v = view;
    if (v.data) v.data = memory.data();
    return v;
  }
};

// order: dims from the outermost in memory to the innermost; none is row-major. gap: elements between innermost ones.
inline Operand make_operand(DType dtype, std::vector<int64_t> sizes, std::vector<int> order = {}, int64_t gap = 1) {
  Operand o;
  o.view.dtype = dtype, o.view.dim = int32_t(sizes.size());
  if (order.empty()) {
    for (size_t d = 0; d < sizes.size(); d++) order.push_back(int(d));
  }
  int64_t stride = gap;
  for (size_t i = sizes.size(); i-- > 0;) {
    const int d = order[i];
    o.view.sizes[d] = sizes[size_t(d)], o.view.strides[d] = stride, stride *= sizes[size_t(d)];
  }
  o.bytes.assign(size_t(std::max<int64_t>(stride, 1)) * size_of(dtype) + 8, 0);
  o.view.data = o.bytes.data();
  return o;
}

inline std::mt19937& random_bits() {
  static std::mt19937 bits(7);
  return bits;
}

// Elements low .. high; floats get fractions.
inline Operand random_operand(DType dtype, std::vector<int64_t> sizes, double low, double high,
                              std::vector<int> order = {}, int64_t gap = 1) {
  Operand o = make_operand(dtype, std::move(sizes), std::move(order), gap);
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<int64_t> whole{int64_t(low), int64_t(high)};
  with_element_type(dtype, [&]<class T>() {
    auto* p = reinterpret_cast<T*>(o.bytes.data());
    for (size_t i = 0; i < (o.bytes.size() - 8) / sizeof(T); i++) {
      p[i] = element_of<T>(is_float(dtype) ? real(random_bits()) : double(whole(random_bits())));
    }
  });
  return o;
}

inline double element_at(const ExternView& v, const std::vector<char>& bytes, int64_t i) {
  int64_t at = 0;
  for (int d = v.dim; d-- > 0;) at += i % v.sizes[d] * v.strides[d], i /= v.sizes[d];
  double r = 0;
  with_element_type(v.dtype, [&]<class T>() { r = to_double(reinterpret_cast<const T*>(bytes.data())[at]); });
  return r;
}

// Returns the operand in another dtype, with the same layout.
inline Operand converted(const Operand& o, DType dtype) {
  Operand r = o;
  if (!o.view.data) return r;
  const size_t count = (o.bytes.size() - 8) / size_of(o.view.dtype);
  r.bytes.assign(count * size_of(dtype) + 8, 0);
  r.view.dtype = dtype, r.view.data = r.bytes.data();
  with_element_type(o.view.dtype, [&]<class From>() {
    with_element_type(dtype, [&]<class To>() {
      for (size_t i = 0; i < count; i++) {
        const double v = to_double(reinterpret_cast<const From*>(o.bytes.data())[i]);
        reinterpret_cast<To*>(r.bytes.data())[i] = element_of<To>(v);
      }
    });
  });
  return r;
}

struct Case {
  OpId op;
  std::vector<Operand> in, out;
  std::vector<int64_t> ints;
  std::vector<double> scalars;
  std::vector<std::string_view> strings;
  bool inplace = false;  // out[0] is in[0]

  // Runs on a device; the results' memory. An error's text, else "".
  std::vector<std::vector<char>> run(DeviceType device, std::string& error) const {
    std::vector<std::vector<char>> in_bytes, out_bytes;
    std::vector<ExternView> in_views, out_views;
    for (const Operand& o : in) in_bytes.push_back(o.bytes);
    for (const Operand& o : out) out_bytes.push_back(o.bytes);
    for (size_t i = 0; i < in.size(); i++) in_views.push_back(in[i].on(in_bytes[i]));
    for (size_t i = 0; i < out.size(); i++) out_views.push_back(out[i].on(out_bytes[i]));
    if (inplace) out_views[0].data = in_views[0].data;
    ExternCall call;
    call.op = op, call.in = in_views, call.out = out_views, call.ints = ints, call.scalars = scalars;
    call.strings = strings, call.device.type = device;
    call.parallel = [](int64_t n, int64_t, const auto& f) { f(0, n); };
    error.clear();
    try {
      run_extern(call);
    } catch (const Error& e) {
      error = e.what();
    }
    if (inplace) out_bytes[0] = in_bytes[0];
    return out_bytes;
  }
};

// With half types as float32.
inline Case widened(Case c) {
  for (auto* operands : {&c.in, &c.out}) {
    for (Operand& o : *operands) {
      if (is_half(o.view.dtype)) o = converted(o, DType::kFloat32);
    }
  }
  return c;
}

// The largest difference relative to max(1, |expected|); infinite where NaNs or infinities differ or the errors do.
// widen: the CPU's candidate has half types as float32.
inline double difference(HostMachine& machine, const Case& c, std::string* message = nullptr, bool widen = false) {
  std::string expected_error, error;
  const Case reference = widen ? widened(c) : c;
  const auto expected = reference.run(DeviceType::kCPU, expected_error);
  machine.fault = {};
  const auto got = c.run(DeviceType::kCUDA, error);
  if (error.empty() && machine.fault.set) error = describe_fault(machine.fault).what();
  if (message) *message = error;
  if (error != expected_error) {
    std::fprintf(stderr, "cpu: %s\ngpu: %s\n", expected_error.c_str(), error.c_str());
    return INFINITY;
  }
  if (!error.empty()) return 0;
  double worst = 0;
  for (size_t r = 0; r < c.out.size(); r++) {
    const ExternView& v = c.inplace && r == 0 ? c.in[0].view : c.out[r].view;
    for (int64_t i = 0; i < v.numel(); i++) {
      const ExternView& wide = widen ? reference.out[r].view : v;
      const double a = element_at(wide, expected[r], i), b = element_at(v, got[r], i);
      if (a == b || (a != a && b != b)) continue;
      const double d = std::abs(a - b) / std::max(1.0, std::abs(a));
      worst = std::max(worst, d == d ? d : double(INFINITY));
    }
  }
  return worst;
}

}  // namespace lutra::cuda
