// Runs any kernel of loop IR as a program, which jit/codegen/cuda/interpreter.cc writes. It executes each instruction
// with the functions that generated kernels call. This text follows the other device texts and the enumerations Op,
// Extra and DType.
//
// Invariants:
// 1. Every thread of a block is at the same instruction; `live` tells whether a thread's own iteration exists.
// 2. A register holds 64 bits: integers extended to i64, b8 as 0 or 1, floats narrower than f64 as f32 in the low half.
// 3. Flat: each thread has an element of the nest. Otherwise a block is one warp and has one element: outside shared
//    loops all threads do the same, and the first one stores. There is a barrier around each store and after each
//    shared loop.
#ifdef __CUDACC_RTC__
#define LUTRA_CALL __noinline__
#define LUTRA_REGISTERS extern __shared__ u64 interpreter_memory[]
#else
#define LUTRA_CALL
#define LUTRA_REGISTERS static u64 interpreter_memory[6144]
#endif

namespace interpreter {

struct EncodedKernel {
  u64 code;  // index of the first word of code
  Head head;
  u64 rest[kWords - 1 - sizeof(Head) / 8];
};

inline float single_of(u64 r) { return __uint_as_float(unsigned(r)); }
inline double double_of(u64 r) { return __longlong_as_double(i64(r)); }
inline u64 word(float x) { return __float_as_uint(x); }
inline u64 word(double x) { return u64(__double_as_longlong(x)); }
inline u64 word(i64 x) { return u64(x); }
template <class T>
inline T value_of(u64 r) {
  return T(r);
}
template <>
inline float value_of<float>(u64 r) {
  return single_of(r);
}
template <>
inline double value_of<double>(u64 r) {
  return double_of(r);
}

inline u64 rounded(unsigned type, i64 x) {
  switch (type) {
    case kBool: return x != 0;
    case kUInt8: return u64(uint8_t(x));
    case kInt8: return u64(i64(int8_t(x)));
    case kInt16: return u64(i64(int16_t(x)));
    case kInt32: return u64(i64(int(x)));
    default: return u64(x);
  }
}
inline u64 rounded(unsigned type, float x) {
  return word(type == kFloat16 ? f16(x) : type == kBFloat16 ? bf16(x) : x);
}
inline u64 rounded(unsigned, double x) { return word(x); }

template <class T>
inline bool compared(unsigned op, T a, T b) {
  switch (op) {
    case kEq: return a == b;
    case kNe: return a != b;
    case kLt: return a < b;
    case kLe: return a <= b;
    case kGt: return a > b;
    default: return a >= b;
  }
}

template <class F>
inline F real(unsigned op, F a, F b) {
  using namespace lutra::loop;
  constexpr bool kWide = sizeof(F) == 8;
  switch (op) {
    case kAdd: return a + b;
    case kSub: return a - b;
    case kMul: return a * b;
    case kDiv: return a / b;
    case kRem: return remainder_of(a, b);
    case kFloorDiv: return floor_divide_of(a, b);
    case kPow: return pow_of(a, b);
    case kMin: return minimum(a, b);
    case kMax: return maximum(a, b);
    case kNeg: return -a;
    case kAbs: return kWide ? F(fabs(a)) : F(fabsf(a));
    case kExp: return exp_of(a);
    case kLog: return log_of(a);
    case kTanh: return tanh_of(a);
    case kSqrt: return kWide ? F(sqrt(a)) : F(sqrtf(a));
    case kFloor: return floor_of(a);
    case kCeil: return kWide ? F(ceil(a)) : F(ceilf(a));
    case kSin: return sin_of(a);
    case kCos: return cos_of(a);
    case kErf: return erf_of(a);
    case kErfc: return erfc_of(a);
    case kExpm1: return expm1_of(a);
    case kLog1p: return log1p_of(a);
    case kAtan2: return atan2_of(a, b);
    case kTan: return tan_of(a);
    case kAtan: return atan_of(a);
    case kAsin: return asin_of(a);
    case kAcos: return acos_of(a);
    case kExp2: return exp2_of(a);
    case kLog2: return log2_of(a);
    case kLog10: return log10_of(a);
    case kErfinv: return erfinv_of(a);
    case kAtanh: return atanh_of(a);
    case kNormalCdf: return normal_cdf_of(a);
    case kNextAfter: return nextafter_of(a, b);
    case kFmod: return fmod_of(a, b);
    default: return with_sign_of(magnitude(a), b);
  }
}

// Computes in 64 bits. Narrower types are cut afterwards, which gives the same result.
inline i64 whole(unsigned op, unsigned type, i64 a, i64 b) {
  switch (op) {
    case kAdd: return add(a, b);
    case kSub: return sub(a, b);
    case kMul: return mul(a, b);
    case kDiv: return quotient(a, b);
    case kRem: return remainder_of_ints(a, b);
    case kFloorDiv: return quotient_down(a, b);
    case kPow: return power(a, b);
    case kMin: return minimum(a, b);
    case kMax: return maximum(a, b);
    case kNeg: return negated(a);
    case kAbs: return absolute(a);
    case kGcd: return divisor(a, b);
    case kAnd: return a & b;
    case kOr: return a | b;
    case kXor: return a ^ b;
    default: return type == kBool ? !a : ~a;
  }
}

// Operands have type `type`; comparisons return b8.
LUTRA_CALL u64 computed(unsigned op, unsigned type, u64 a, u64 b) {
  const bool compares = op >= kEq && op <= kGe;
  if (type == kFloat64) {
    const double x = double_of(a), y = double_of(b);
    return compares ? u64(compared(op, x, y)) : word(real(op, x, y));
  }
  if (type >= kFloat16) {
    const float x = single_of(a), y = single_of(b);
    return compares ? u64(compared(op, x, y)) : rounded(type, real(op, x, y));
  }
  return compares ? u64(compared(op, i64(a), i64(b))) : rounded(type, whole(op, type, i64(a), i64(b)));
}

template <class F>
inline u64 cut(unsigned to, F x) {
  return to == kBool ? u64(x != 0) : to == kInt64 ? u64(to_i64(x)) : rounded(to, i64(to_i32(x)));
}
LUTRA_CALL u64 cast(unsigned from, unsigned to, u64 a) {
  if (from == to) return a;
  if (from == kFloat64) {
    const double x = double_of(a);
    return to >= kFloat16 ? rounded(to, float(x)) : cut(to, x);
  }
  if (from >= kFloat16) {
    const float x = single_of(a);
    return to == kFloat64 ? word(double(x)) : to >= kFloat16 ? rounded(to, x) : cut(to, x);
  }
  return to == kFloat64 ? word(double(i64(a))) : to >= kFloat16 ? rounded(to, float(i64(a))) : rounded(to, i64(a));
}

LUTRA_CALL u64 random_word(unsigned op, unsigned type, u64 index, u64 call, u64 seed) {
  const lutra::loop::Words<uint64_t> w = lutra::loop::philox<uint64_t>(index, call, seed);
  if (op == kRandBits) return lutra::loop::random_bits(w);
  if (op == kUniform) return type == kFloat64 ? word(uniform_double(w)) : rounded(type, uniform_single(w));
  return type == kFloat64 ? word(lutra::loop::normal_double<double>(w))
                          : rounded(type, lutra::loop::normal_single<double>(w));
}

inline u64 loaded(unsigned type, u64 base, i64 at) {
  switch (type) {
    case kBool: return reinterpret_cast<const uint8_t*>(base)[at] != 0;
    case kUInt8: return reinterpret_cast<const uint8_t*>(base)[at];
    case kInt8: return u64(i64(reinterpret_cast<const int8_t*>(base)[at]));
    case kInt16: return u64(i64(reinterpret_cast<const int16_t*>(base)[at]));
    case kInt32: return u64(i64(reinterpret_cast<const int*>(base)[at]));
    case kFloat16: return word(f16_value(reinterpret_cast<const uint16_t*>(base)[at]));
    case kBFloat16: return word(bf16_value(reinterpret_cast<const uint16_t*>(base)[at]));
    case kFloat32: return reinterpret_cast<const unsigned*>(base)[at];
    default: return reinterpret_cast<const u64*>(base)[at];
  }
}
inline void stored(unsigned type, u64 base, i64 at, u64 v) {
  switch (type) {
    case kBool:
    case kUInt8:
    case kInt8: reinterpret_cast<uint8_t*>(base)[at] = uint8_t(v); break;
    case kInt16: reinterpret_cast<uint16_t*>(base)[at] = uint16_t(v); break;
    case kFloat16: reinterpret_cast<uint16_t*>(base)[at] = f16_bits(single_of(v)); break;
    case kBFloat16: reinterpret_cast<uint16_t*>(base)[at] = bf16_bits(single_of(v)); break;
    case kInt32:
    case kFloat32: reinterpret_cast<unsigned*>(base)[at] = unsigned(v); break;
    default: reinterpret_cast<u64*>(base)[at] = v;
  }
}

// ArgMax and ArgMin: combines another pair into (value, position).
template <class T>
inline void arg_of(bool most, u64& value, u64& at, u64 v, u64 other) {
  const At<T> a = {value_of<T>(value), i64(at)}, b = {value_of<T>(v), i64(other)};
  const At<T> r = most ? ArgMax<T>::of(a, b) : ArgMin<T>::of(a, b);
  value = word(r.value), at = u64(r.at);
}
LUTRA_CALL void arg(bool most, unsigned type, u64& value, u64& at, u64 v, u64 other) {
  if (type == kFloat64) return arg_of<double>(most, value, at, v, other);
  return type >= kFloat16 ? arg_of<float>(most, value, at, v, other) : arg_of<i64>(most, value, at, v, other);
}

// Sums "by B": a word holds an Earlier. end_block ends a block.
inline void end_block(u64& partial, u64& earlier) {
  float p = single_of(partial);
  Earlier<float> e = {single_of(earlier), single_of(earlier >> 32)};
  ::end_block(p, e);
  partial = word(p), earlier = word(e.sum) | word(e.rest) << 32;
}
inline u64 of_blocks(u64 partial, u64 earlier) {
  return word(::of_blocks(single_of(partial), Earlier<float>{single_of(earlier), single_of(earlier >> 32)}));
}

}  // namespace interpreter

extern "C" __global__ void __launch_bounds__(128) lutra_interpreter(const __grid_constant__ interpreter::EncodedKernel kernel) {
  using namespace interpreter;
  LUTRA_REGISTERS;
  const Head& head = kernel.head;
  const auto w = [&](unsigned i) { return kernel.rest[i - 1 - sizeof(Head) / 8]; };
  const unsigned t = threadIdx.x, apart = blockDim.x;
  u64* const registers = interpreter_memory + t;
  const auto r = [&](unsigned i) -> u64& { return registers[i * apart]; };
  unsigned pc = unsigned(kernel.code);

  // The nest: flags and its depth; loops, outermost first.
  const u64 nest = w(pc);
  const unsigned depth = unsigned(nest) & 255;
  const bool flat = nest >> 8 & 1, checks = nest >> 9 & 1;
  u64* const partials = interpreter_memory + (nest >> 16);
  i64 rest = flat ? i64(blockIdx.x) * apart + t : i64(blockIdx.x);
  for (unsigned d = depth; d-- > 0;) {
    const u64 l = w(pc + 1 + d);
    const i64 n = i64(w(unsigned(l >> 16))), size = checks ? max1(n) : n;
    i64 at = rest;
    if (d > 0) rest = split(rest, size, at);
    else if (at >= size) return;  // only a flat nest has threads beyond its size
    r(unsigned(l) & 0xffff) = u64(at);
  }
  pc += 1 + depth;

  bool live = true, ok = true;
  while (true) {
    const u64 in = w(pc++);
    const unsigned op = in & 255, type = in >> 8 & 255, a = in >> 32 & 0xffff, b = in >> 48;
    u64& out = r(in >> 16 & 0xffff);
    switch (op) {
      case kEnd: return;
      case kWithin:  // skips a loop of the nest that was entered only for the checks before it
        if (i64(out) >= i64(w(a))) return;
        break;
      case kConst: {
        const u64 x = w(pc++);
        out = type < kFloat16 ? rounded(type, i64(x)) : x;
        break;
      }
      case kScalar: out = cast(kFloat64, type, w(a)); break;
      case kIntArg: out = w(a); break;
      case kCast: out = cast(b, type, r(a)); break;
      case kSelect: {
        const unsigned c = unsigned(w(pc++));
        out = r(a) ? r(b) : r(c);
        break;
      }
      case kUniform:
      case kNormal:
      case kRandBits: out = random_word(op, type, r(a), head.call + w(pc++), head.seed); break;
      case kCheck:
        if (live) ok &= within(i64(out), i64(w(a)), int(b), head.fault, head.site);
        break;
      case kLoad:
      case kStore:
      case kStoreAdd: {
        i64 at = i64(w(unsigned(w(pc++))));
        const unsigned terms = b & 255;
        for (unsigned i = 0; i < terms; i++) {
          const u64 term = w(pc++);
          at += i64(r(unsigned(term) & 0xffff)) * i64(w(unsigned(term >> 16)));
        }
        const bool alone = b >> 8;  // in a group one thread stores
        if (alone) __syncwarp();
        if (op == kLoad) {
          out = live && ok ? loaded(type, w(a), at) : 0;
        } else if (live && ok && (!alone || t == 0)) {
          stored(type, w(a), at, op == kStore ? out : computed(kAdd, type, loaded(type, w(a), at), out));
        }
        if (alone) __syncwarp();
        break;
      }
      case kLoop:
        out = 0;
        pc = i64(w(a)) > 0 ? pc + 1 : unsigned(w(pc));
        break;
      case kNext: pc = i64(++out) < i64(w(a)) ? unsigned(w(pc)) : pc + 1; break;
      case kShare:  // b threads take turns
        out = t;
        live = t < b && i64(t) < i64(w(a));
        if (i64(w(a)) > 0) {
          pc++;
        } else {
          pc = unsigned(w(pc)), live = true;
        }
        break;
      case kShareNext:
        out += b;
        if (i64(out - t) < i64(w(a))) {
          pc = unsigned(w(pc)), live = t < b && i64(out) < i64(w(a));
        } else {
          pc++, live = true;
          __syncwarp();
        }
        break;
      case kArgStep: {  // value, position and counter are adjacent registers
        const unsigned first = in >> 16 & 0xffff;
        arg(b, type, out, r(first + 1), r(a), r(first + 2)++);
        break;
      }
      case kAdvance: out += w(a); break;
      // Sums by blocks with one partial result. The next register holds its earlier blocks.
      case kFeed:  // before a feed; r(a): feeds until the block of b is full
        if (r(a)-- == 0) end_block(out, r((in >> 16 & 0xffff) + 1)), r(a) = b - 1;
        break;
      case kOfBlocks: out = of_blocks(out, r((in >> 16 & 0xffff) + 1)); break;
      // `a` partial results, from word `first` on. After them are the positions of arg reductions, or the earlier
      // blocks of sums by blocks.
      case kFill: {
        const u64 none = w(pc++), first = w(pc++);
        __syncwarp();
        for (unsigned j = t; j < a; j += apart) {
          partials[first + j] = none;
          if (b) partials[first + a + j] = 0x7fffffffffffffffull;
        }
        __syncwarp();
        break;
      }
      case kFeedLanes: {  // before an iteration; out: the loop's variable, r(a): feeds until the block is full
        const u64 first = w(pc++), block = w(pc++);
        if (((out - t) & (b - 1)) != 0 || r(a)-- != 0) break;
        for (unsigned j = t; j < b; j += apart) end_block(partials[first + j], partials[first + b + j]);
        r(a) = block - 1;
        break;
      }
      case kLanesOfBlocks: {
        const unsigned first = in >> 16 & 0xffff;
        u64* const p = partials + first;
        for (unsigned j = t; j < a; j += apart) p[j] = of_blocks(p[j], p[a + j]);
        break;
      }
      case kAccum: {  // out: the loop's variable
        const u64 first = w(pc++), how = w(pc++);
        u64& p = partials[first + (out & (b - 1))];
        if (live && how < kArgAbove) p = computed(unsigned(how), type, p, r(a));
        if (live && how >= kArgAbove) {
          arg(how & 1, type, p, *(&p + b), r(a), out + r(unsigned(how - kArgAbove) >> 1));
        }
        break;
      }
      case kFold: {
        const u64 first = w(pc++), how = w(pc++);
        u64* const p = partials + first;
        __syncwarp();
        for (unsigned half = a / 2; half >= 1; half /= 2) {
          for (unsigned j = t; j < half; j += apart) {
            if (how < kArgAbove)
              p[j] = computed(unsigned(how), type, p[j], p[j + half]);
            else
              arg(how & 1, type, p[j], p[a + j], p[j + half], p[a + j + half]);
          }
          __syncwarp();
        }
        out = how < kArgAbove ? p[0] : p[a];
        break;
      }
      default: out = computed(op, type, r(a), r(b));
    }
  }
}
