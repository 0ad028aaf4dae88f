// See cost.h. All rates are the machine's.
#include "jit/device/cost.h"

#include <algorithm>
#include <cmath>

namespace lutra {
namespace {

constexpr double kUnderWay = 8 * 16;  // bytes that a thread requests at a time: eight of the widest loads

double seconds_on(const Machine& m, const Work& w, double processors) {
  const double arithmetic = w.additions / (processors * m.add_rate);
  const double memory = std::max(w.alone / processors, w.shared), waiting = w.steps * m.latency_seconds / 8;
  return m.threads > 1 ? std::max({arithmetic, memory, waiting}) : arithmetic + memory + waiting;
}

}  // namespace

void Work::add(const Work& o) {
  additions += o.additions, bytes += o.bytes, alone += o.alone, shared += o.shared;
  parallel = std::min(parallel, o.parallel), steps = std::max(steps, o.steps);
}

void Work::move(const Machine& m, double n, double size) {
  bytes += n;
  int level = 0;
  while (level < 3 && size > double(m.cache_bytes[level]) * (level < 2 ? double(m.processors) : 1)) level++;
  alone += n / (level < 3 ? m.cache_rate[level] : m.processor_rate);
  if (level == 3) shared += n / m.memory_rate;
}

void Work::move_across(const Machine& m, double n, double size) {
  move(m, n, size);
  if (size > double(m.cache_bytes[1])) alone += n / kLine * m.line_seconds;
}

void Work::jump(const Machine& m, double elements, double size) {
  if (size > double(m.cache_bytes[0])) alone += elements * m.line_seconds / 2;
}

int64_t busy_threads(const Machine& m) {
  const double bytes = m.memory_rate / double(m.processors) * m.latency_seconds;  // bytes in flight, by Little's law
  return int64_t(std::exp2(std::round(std::log2(std::max(1.0, bytes / kUnderWay)))));
}

double near_bytes(const Machine& m) { return double(std::max(m.cache_bytes[1], m.registers * 4)); }

double occupancy(const Machine& m, double threads) { return threads / double(m.processors * m.threads); }

double busy(const Machine& m, const Work& w) {
  double shares = w.parallel;
  if (const auto least = double(busy_threads(m)); m.threads > 1) shares *= std::min(w.together, least) / least;
  return std::clamp(shares, 1.0, double(m.processors));
}

double seconds(const Machine& m, const Work& w) {
  const double processors = busy(m, w);
  const double shared = seconds_on(m, w, processors) + m.fork_seconds;
  return m.launch_seconds + (processors > 1 ? std::min(shared, seconds_on(m, w, 1)) : seconds_on(m, w, 1));
}

double least_share(const Machine& m) { return m.fork_seconds * m.add_rate; }

}  // namespace lutra
