// Connectionist temporal classification. Given log probabilities of each step's classes, computes the loss of the
// targets, summed over all ways to spread them over the steps, and its gradient.
//
// A way goes through places 0 .. 2 * n of a row of n targets with a blank before, between and after them. alpha[t][s]
// is the logarithm of the sum over all ways to be at place s at step t. beta[t][s] is that of the ways from there on.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/core/interrupt.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

[[noreturn]] void fail_data(const std::string& message) { throw Error(ErrorKind::kData, "ctc_loss: " + message); }

const int64_t& integer(const ExternView& v, int64_t i) { return static_cast<const int64_t*>(v.data)[i * v.strides[0]]; }

struct Inputs {
  const ExternView &log_probs, &targets, &input_lengths, &target_lengths;
  int64_t blank;
  std::vector<int64_t> first;  // by element of the batch: its first target, if targets follow one another

  Inputs(const ExternCall& call, size_t at)
      : log_probs(call.in[at]),
        targets(call.in[at + 1]),
        input_lengths(call.in[at + 2]),
        target_lengths(call.in[at + 3]),
        blank(call.ints[0]) {
    const int64_t steps = log_probs.sizes[0];
    int64_t sum = 0;
    for (int64_t b = 0; b < batch(); b++) {
      const int64_t n = integer(input_lengths, b), k = integer(target_lengths, b);
      if (n < 0 || n > steps) fail_data(str("an input length of ", n, " does not fit ", steps, " steps"));
      const int64_t most = targets.dim == 1 ? targets.sizes[0] - sum : targets.sizes[1];
      if (k < 0 || k > most) fail_data(str("a target length of ", k, " does not fit the ", most, " targets there are"));
      first.push_back(sum);
      sum += k;
      for (int64_t i = 0; i < k; i++) check_class(target(b, i));
    }
    if (targets.dim == 1 && sum != targets.sizes[0]) {
      fail_data(str("target lengths add up to ", sum, ", but there are ", targets.sizes[0], " targets"));
    }
  }
  int64_t batch() const { return log_probs.sizes[1]; }
  int64_t target(int64_t b, int64_t i) const {
    const int64_t at = targets.dim == 1 ? (first[size_t(b)] + i) * targets.strides[0]
                                        : b * targets.strides[0] + i * targets.strides[1];
    return static_cast<const int64_t*>(targets.data)[at];
  }

 private:
  void check_class(int64_t v) const {
    const int64_t classes = log_probs.sizes[2];
    if (v < 0 || v >= classes) fail_data(str("target ", v, " is out of bounds for ", classes, " classes"));
  }
};

// One element of the batch.
template <class T>
struct Lattice {
  static constexpr T kNever = -std::numeric_limits<T>::infinity();
  const ExternView& view;
  const T* p;
  int64_t steps, places;
  std::vector<int64_t> labels;  // by place
  std::vector<T> alpha;

  Lattice(const Inputs& in, int64_t b)
      : view(in.log_probs),
        p(static_cast<const T*>(view.data) + b * view.strides[1]),
        steps(integer(in.input_lengths, b)),
        places(2 * integer(in.target_lengths, b) + 1),
        labels(size_t(places), in.blank) {
    for (int64_t i = 0; 2 * i + 1 < places; i++) labels[size_t(2 * i + 1)] = in.target(b, i);
    forward();
  }

  T log_prob(int64_t t, int64_t label) const { return p[t * view.strides[0] + label * view.strides[2]]; }
  T at(int64_t t, int64_t s) const { return alpha[size_t(t * places + s)]; }
  // Returns whether a way may go from place s - 2 to s: over a blank, between different targets.
  bool skips(int64_t s) const { return s > 1 && s < places && labels[size_t(s)] != labels[size_t(s - 2)]; }

  static T add(T a, T b, T c = kNever) {
    T most = std::max(a, std::max(b, c));
    if (most == kNever) most = 0;
    return std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most)) + most;
  }

  void forward() {
    alpha.assign(size_t(steps * places), kNever);
    for (int64_t s = 0; steps > 0 && s < std::min<int64_t>(2, places); s++)
      alpha[size_t(s)] = log_prob(0, labels[size_t(s)]);
    for (int64_t t = 1; t < steps; t++) {
      look_in_loop();
      for (int64_t s = 0; s < places; s++) {
        const T before = s > 0 ? at(t - 1, s - 1) : kNever, skipped = skips(s) ? at(t - 1, s - 2) : kNever;
        alpha[size_t(t * places + s)] = add(at(t - 1, s), before, skipped) + log_prob(t, labels[size_t(s)]);
      }
    }
  }

  T loss() const {
    if (steps == 0) return places == 1 ? T(0) : -kNever;
    if (places == 1) return -at(steps - 1, 0);
    return -add(at(steps - 1, places - 1), at(steps - 1, places - 2));
  }

  // Sets `into` to the logarithm of the sum over the ways through each class at step t.
  void through(int64_t t, const std::vector<T>& beta, std::vector<T>& into) const {
    std::fill(into.begin(), into.end(), kNever);
    for (int64_t s = places; s-- > 0;) {
      const T both = at(t, s) + beta[size_t(s)];
      T& sum = into[size_t(labels[size_t(s)])];
      sum = sum == kNever ? both : add(sum, both);
    }
  }

  // Writes the gradient of log_probs by the strides of `to`; `out` is its first element.
  void backward(const ExternView& to, T* out, T loss, T gradient) const {
    std::vector<T> beta(size_t(places), kNever), next, sums(size_t(view.sizes[2]));
    for (int64_t t = steps; t-- > 0;) {
      look_in_loop();
      next = beta;
      for (int64_t s = 0; s < places; s++) {
        const T after = s + 1 < places ? next[size_t(s + 1)] : kNever,
                skipped = skips(s + 2) ? next[size_t(s + 2)] : kNever;
        const bool last = t == steps - 1, ends = s >= places - 2;
        const T rest = !last ? add(next[size_t(s)], after, skipped) : ends ? T(0) : kNever;
        beta[size_t(s)] = rest + log_prob(t, labels[size_t(s)]);
      }
      through(t, beta, sums);
      for (int64_t c = 0; c < view.sizes[2]; c++) {
        const T lp = log_prob(t, c);
        out[t * to.strides[0] + c * to.strides[2]] = (std::exp(lp) - std::exp(sums[size_t(c)] + loss - lp)) * gradient;
      }
    }
  }
};

template <class F>
void each_in_batch(const ExternCall& call, const Inputs& in, F&& f) {
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) f(b);
  };
  call.parallel ? call.parallel(in.batch(), 1, body) : body(0, in.batch());
}

template <class F>
void with_float(DType dtype, F&& f) {
  with_element_type(dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      f(T());
    } else {
      fail_internal("ctc_nll of other elements than float32 and float64");
    }
  });
}

}  // namespace

bool ctc_supports(DType dtype) { return is_float(dtype) && !is_half(dtype); }

void run_ctc_nll(const ExternCall& call) {
  const Inputs in(call, 0);
  with_float(call.out[0].dtype, [&]<class T>(T) {
    each_in_batch(call, in, [&](int64_t b) { static_cast<T*>(call.out[0].data)[b] = Lattice<T>(in, b).loss(); });
  });
}

void run_ctc_nll_backward(const ExternCall& call) {
  const Inputs in(call, 1);
  const ExternView &grad = call.in[0], &losses = call.in[5], &out = call.out[0];
  const bool zero_infinity = call.ints[1] != 0;
  with_float(out.dtype, [&]<class T>(T) {
    each_in_batch(call, in, [&](int64_t b) {
      const T loss = static_cast<const T*>(losses.data)[b * losses.strides[0]];
      T* to = static_cast<T*>(out.data) + b * out.strides[1];
      for (int64_t t = 0; t < out.sizes[0]; t++) {
        for (int64_t c = 0; c < out.sizes[2]; c++) to[t * out.strides[0] + c * out.strides[2]] = 0;
      }
      if (zero_infinity && loss == std::numeric_limits<T>::infinity()) return;
      Lattice<T>(in, b).backward(out, to, loss, static_cast<const T*>(grad.data)[b * grad.strides[0]]);
    });
  });
}

}  // namespace lutra
