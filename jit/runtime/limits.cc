// Measures the machine; see limits.h. Each rate is the best of several rounds, since disturbances only slow a round
// down.
#include "jit/runtime/limits.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "jit/runtime/limits_x64.h"
#include "ops/core/cpu.h"

namespace lutra {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.15;  // at least, for each rate

volatile float sink;

// Eight streams, as in a kernel that reads well.
float sum_plain(const float* p, size_t n) {
  float acc[8] = {};
  for (size_t i = 0; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; k++) acc[k] += p[i + k];
  }
  return acc[0] + acc[7];
}

constexpr int kFmaRounds = 1 << 14;

double fma_plain() {
  float acc[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  for (int i = 0; i < kFmaRounds; i++) {
    for (float& a : acc) a = a * 0.999f + 1e-3f;
  }
  sink = acc[0] + acc[7];
  return double(kFmaRounds) * 8 * 2;
}

// Runs `work` on all threads. work(thread) returns the amount that it did. Returns the best total rate of the rounds
// within kSeconds.
double best_rate(int threads, const std::function<double(int)>& work) {
  double best = 0, spent = 0;
  for (int round = 0; round < 3 || spent < kSeconds; round++) {
    std::vector<std::jthread> others;  // also joined if one of them cannot be started
    std::vector<double> done(static_cast<size_t>(threads));
    std::vector<Clock::time_point> ends(static_cast<size_t>(threads));
    const auto body = [&](int t) { done[size_t(t)] = work(t), ends[size_t(t)] = Clock::now(); };
    for (int t = 1; t < threads; t++) others.emplace_back(body, t);
    const auto start = Clock::now();
    body(0);
    for (std::jthread& t : others) t.join();
    const auto end = *std::max_element(ends.begin(), ends.end());
    double total = 0;
    for (double d : done) total += d;
    const double seconds = std::chrono::duration<double>(end - start).count();
    best = std::max(best, total / seconds);
    spent += seconds;
  }
  return best;
}

using Block = std::unique_ptr<float, decltype(&std::free)>;
std::vector<Block> blocks(int count, size_t bytes) {
  std::vector<Block> out;
  for (int i = 0; i < count; i++) {
    out.emplace_back(static_cast<float*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free);
    if (!out.back()) throw std::bad_alloc();
    std::memset(out.back().get(), i, bytes);
  }
  return out;
}

// Repeats small blocks often enough that starting the threads does not count.
int rounds_for(size_t bytes) { return int(std::max<size_t>(1, (size_t(64) << 20) / bytes)); }

}  // namespace

double read_rate(int threads, size_t bytes) {
  const auto data = blocks(threads, bytes);
  auto sum = sum_plain;
  if constexpr (cpu::kX64) {
    if (cpu::has_avx2()) sum = sum_avx2;
    if (cpu::has_avx512()) sum = sum_avx512;
  }
  const int rounds = rounds_for(bytes);
  return best_rate(threads, [&](int t) {
    for (int r = 0; r < rounds; r++) sink = sum(data[size_t(t)].get(), bytes / sizeof(float));
    return double(bytes) * rounds;
  });
}

double copy_rate(int threads, size_t bytes) {
  const auto from = blocks(threads, bytes / 2), to = blocks(threads, bytes / 2);
  const int rounds = rounds_for(bytes);
  return best_rate(threads, [&](int t) {
    for (int r = 0; r < rounds; r++) std::memcpy(to[size_t(t)].get(), from[size_t(t)].get(), bytes / 2);
    sink = to[size_t(t)].get()[0];
    return double(bytes / 2) * 2 * rounds;
  });
}

double fma_rate(int threads) {
  auto run = fma_plain;
  if constexpr (cpu::kX64) {
    if (cpu::has_avx2()) run = fma_avx2;
    if (cpu::has_avx512()) run = fma_avx512;
  }
  return best_rate(threads, [&](int) {
    double flops = 0;
    for (int i = 0; i < 64; i++) flops += run();
    return flops;
  });
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace lutra
