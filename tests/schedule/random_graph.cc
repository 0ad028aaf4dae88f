// Makes random graphs: each step takes values made so far and an op that accepts them.
#include "ops/core/error.h"
#include "ops/defs/call.h"
#include "tests/schedule/graphs.h"

namespace lutra {
namespace {

// Invariants: `values` are float32 or float64 tensors; masks and indices are made where they are needed.
class Maker {
 public:
  Maker(uint32_t seed, Device device) : random_(seed), device_(device) {}

  std::unique_ptr<Graph> run() {
    auto g = std::make_unique<Graph>();
    SymScope symbols(g->env.get());
    symbolic_ = chance(2);
    rows_ = size(*g, 0, 0, chance(8) ? pick(2) : 2 + pick(7));
    cols_ = size(*g, 0, 1, chance(8) ? 1 + pick(2) : 3 + pick(40));
    add_inputs(*g);
    GraphRecorder recorder(*g);
    {
      ModeScope mode(&recorder);
      int ops = 5 + pick(26);
      // Leaves out ops that refuse the types or shapes.
      for (int i = 0, tries = 0; i < ops && tries < 200; tries++) {
        try {
          step();
          i++;
        } catch (const Error& e) {
          if (e.kind != ErrorKind::kUser) throw;
        }
      }
    }
    int outputs = 1 + pick(3);
    for (int i = 0; i < outputs; i++) g->outputs.push_back(i == 0 ? values_.back() : any());
    g->renumber();
    return g;
  }

 private:
  int pick(int n) { return int(random_() % uint32_t(n)); }
  bool chance(int n) { return pick(n) == 0; }
  Tensor any() { return values_[size_t(pick(int(values_.size())))]; }

  SymInt size(Graph& g, int32_t input, int32_t dim, int64_t hint) {
    if (!symbolic_) return hint;
    return SymInt::of_expr(*g.env, g.env->leaf(SymOp::kSize, input, dim, hint));
  }

  void add_inputs(Graph& g) {
    auto add = [&](const Sizes& sizes, const Sizes& strides, DType type) {
      values_.push_back(g.add_input("in" + std::to_string(values_.size()), sizes, strides, type, device_));
      inputs_.push_back(values_.back());
    };
    Sizes matrix{rows_, cols_};
    add(matrix, contiguous_strides(matrix), DType::kFloat32);
    add(matrix, contiguous_strides(matrix), DType::kFloat32);
    add(matrix, {1, rows_}, DType::kFloat32);
    add({cols_}, {1}, chance(3) ? DType::kFloat64 : DType::kFloat32);
    add({rows_, SymInt(1)}, {1, 1}, DType::kFloat32);
    Sizes cube{rows_, SymInt(3), cols_};
    add(cube, contiguous_strides(cube), DType::kFloat32);
    static const DType types[] = {DType::kInt64, DType::kBool, DType::kUInt8, DType::kFloat64, DType::kInt32};
    add(matrix, contiguous_strides(matrix), types[pick(5)]);
    add({cols_}, {1}, types[pick(5)]);
    add({rows_, cols_}, {1, 0}, DType::kFloat32);
    index_ = g.add_input("index", {rows_, SymInt(1)}, {1, 1}, DType::kInt64, device_);
    list_ = g.add_input("list", {SymInt(4)}, {1}, DType::kInt64, device_);
    scalar_ = g.add_scalar("s", 0.37);
  }

  // One whose sizes broadcast with those of t, by hints; t itself if none does.
  Tensor partner(const Tensor& t) {
    for (int tries = 0; tries < 8; tries++) {
      Tensor o = any();
      bool fits = true;
      for (size_t d = 0; d < std::min(o->sizes.size(), t->sizes.size()); d++) {
        SymInt a = t->sizes[t->sizes.size() - 1 - d], b = o->sizes[o->sizes.size() - 1 - d];
        fits &= (a.expr == b.expr && a.hint == b.hint) || (a.is_constant() && a.hint == 1) ||
                (b.is_constant() && b.hint == 1);
      }
      if (fits) return o;
    }
    return t;
  }

  Tensor unary() {
    static const OpId ops[] = {OpId::neg,  OpId::abs,  OpId::exp,   OpId::tanh,   OpId::sigmoid,
                               OpId::relu, OpId::sign, OpId::floor, OpId::square, OpId::clone,
                               OpId::sqrt, OpId::log,  OpId::rsqrt, OpId::isnan,  OpId::logical_not};
    OpId op = ops[pick(15)];
    if (chance(8)) {
      static const DType types[] = {DType::kInt64, DType::kBool, DType::kUInt8, DType::kFloat64, DType::kFloat32};
      return op1(OpId::to_dtype, {any(), types[pick(5)]});
    }
    // exp of what has grown would be infinite everywhere.
    Tensor t = any();
    if (op == OpId::exp) t = op1(OpId::tanh, {t});
    return op1(op, {t});
  }
  Tensor binary() {
    static const OpId ops[] = {OpId::add,     OpId::sub,       OpId::mul, OpId::div, OpId::maximum,
                               OpId::minimum, OpId::remainder, OpId::pow, OpId::le,  OpId::eq};
    OpId op = ops[chance(2) ? pick(10) : pick(6)];
    if (op == OpId::maximum || op == OpId::minimum) {
      Tensor a = any();
      return op1(op, {a, partner(a)});
    }
    Tensor a = any();
    if (chance(4)) {
      return op1(op, op == OpId::add || op == OpId::sub ? Args{a, scalar_, Scalar(1.0)} : Args{a, scalar_});
    }
    Tensor b = partner(a);
    return op1(op, op == OpId::add || op == OpId::sub ? Args{a, b, Scalar(chance(2) ? 1.0 : 0.5)} : Args{a, b});
  }
  Tensor select_by() {
    Tensor a = any(), b = partner(a);
    Tensor mask = op1(OpId::gt, {a, b});
    return op1(OpId::where, {mask, a, b});
  }
  Tensor reduce() {
    Tensor t = any();
    if (t->dim() == 0) return unary();
    static const OpId ops[] = {OpId::sum,         OpId::mean,   OpId::amax, OpId::amin, OpId::softmax,
                               OpId::log_softmax, OpId::argmax, OpId::any,  OpId::all,  OpId::argmin};
    OpId op = ops[pick(10)];
    int64_t dim = pick(int(t->dim()));
    if (op == OpId::softmax || op == OpId::log_softmax) return op1(op, {t, Scalar::of_int(dim), Value()});
    bool keep = chance(2);
    if (op == OpId::argmax || op == OpId::argmin) {
      if (chance(3)) return op1(op, {t, Value(), false});
      return op1(OpId::to_dtype, {op1(op, {t, Scalar::of_int(dim), keep}), DType::kFloat32});
    }
    Value dims = Sizes{SymInt(dim)};
    if (chance(4)) dims = Value();
    return op1(op, op == OpId::sum || op == OpId::mean ? Args{t, dims, keep, Value()} : Args{t, dims, keep});
  }
  Tensor view() {
    Tensor t = any();
    int64_t n = t->dim();
    if (n == 0) return op1(OpId::unsqueeze, {t, Scalar::of_int(0)});
    int64_t d = pick(int(n));
    switch (pick(6)) {
      case 0: return op1(OpId::transpose, {t, Scalar::of_int(d), Scalar::of_int(pick(int(n)))});
      case 1: return n < 4 ? op1(OpId::unsqueeze, {t, Scalar::of_int(d)}) : t;
      case 2: return op1(OpId::select, {t, Scalar::of_int(d), Scalar::of_int(0)});
      case 3:
        return op1(OpId::slice,
                   {t, Scalar::of_int(d), Scalar::of_int(0), Scalar::of_int(1 + pick(2)), Scalar::of_int(1)});
      case 4: return op1(OpId::flatten, {t, Scalar::of_int(0), Scalar::of_int(-1)});
      default: {
        Sizes sizes = t->sizes;
        sizes.insert(0, 2);
        return n < 4 ? op1(OpId::expand, {t, sizes}) : t;
      }
    }
  }
  // Rows by cols from inputs: gathers, scatters and products have their own demands.
  Tensor matrix() {
    for (int i = 0; i < 8; i++) {
      Tensor t = any();
      if (t->dtype == DType::kFloat32 && t->dim() == 2 && t->sizes[0].expr == rows_.expr &&
          t->sizes[1].expr == cols_.expr && t->sizes[0].hint == rows_.hint && t->sizes[1].hint == cols_.hint) {
        return t;
      }
    }
    return inputs_[size_t(pick(3))];
  }
  Tensor indexed() {
    Tensor t = matrix();
    Scalar one = Scalar::of_int(1), zero = Scalar::of_int(0);
    switch (pick(5)) {
      case 0: return op1(OpId::gather, {t, one, index_});
      case 1: return op1(OpId::scatter_add, {t, one, index_, op1(OpId::slice, {matrix(), one, zero, one, one})});
      case 2: return op1(OpId::index_select, {t, one, list_});
      case 3: return op1(OpId::index_add, {t, one, list_, op1(OpId::index_select, {matrix(), one, list_})});
      default: return op1(OpId::mm, {t, op1(OpId::transpose, {matrix(), zero, one})});
    }
  }
  Tensor made() {
    Sizes sizes{rows_, cols_};
    switch (pick(5)) {
      case 3: return op1(OpId::arange, {Scalar::of_sym(cols_), Value(), Scalar(1.0), Value(), place()});
      case 4: return op1(OpId::randint, {Scalar::of_int(-3), Scalar::of_int(9), sizes, Value(), place()});
      case 0: return op1(OpId::rand, {sizes, Value(), place()});
      case 1: return op1(OpId::randn, {sizes, Value(), place()});
      default: return op1(OpId::full, {sizes, scalar_, Value(), place()});
    }
  }
  Tensor write() {
    // Not the last input: its rows share memory.
    Tensor t = inputs_[size_t(pick(int(inputs_.size()) - 1))];
    if (chance(2)) return call_inplace(OpId::mul, {t, scalar_});
    Tensor r = op1(OpId::tanh, {matrix()});
    Tensor to = inputs_[size_t(pick(2))];
    if (chance(3)) {
      // Through a view.
      Tensor part = op1(OpId::slice, {to, Scalar::of_int(1), Scalar::of_int(0), Scalar::of_int(2), Scalar::of_int(1)});
      call_inplace(OpId::mul, {part, scalar_});
      return op1(OpId::neg, {to});
    }
    return call_inplace(OpId::add, {to, r, Scalar(1.0)});
  }

  // Any op of the table, with arguments that its schema allows; most of what does not fit is refused at once.
  static const std::vector<OpId>& all_ops() {
    static const std::vector<OpId> ops = [] {
      std::vector<OpId> list;
      for (int i = 0; i < int(OpId::input); i++) {
        const OpInfo& op = info(OpId(i));
        // Uninitialised memory agrees with nothing; internal ops trust their callers.
        const bool unset = std::string_view(op.name).find("empty") != std::string_view::npos;
        if (!op.has(kMutates) && !op.has(kInternal) && !unset) list.push_back(OpId(i));
      }
      return list;
    }();
    return ops;
  }
  Value argument(const ArgInfo& arg, const Tensor& first) {
    const int rank = first ? int(first->dim()) : 2;
    if (arg.type == ArgType::kDevice) return place();
    if (arg.has_default && (arg.type == ArgType::kStr || chance(2))) return arg.def;
    if (arg.optional && chance(3)) return Value();
    switch (arg.type) {
      case ArgType::kTensor:
      case ArgType::kOperand:
        if (arg.type == ArgType::kOperand && chance(3)) return scalar_;
        if (arg.name == "index") return chance(2) ? index_ : list_;
        return first && chance(2) ? partner(first) : any();
      case ArgType::kTensorList: return std::vector<Tensor>{any(), first ? first : any()};
      case ArgType::kScalar:
      case ArgType::kFloat: return chance(3) ? Scalar(double(pick(7) - 2)) : Scalar(pick(9) * 0.25 - 0.5);
      case ArgType::kInt: return Scalar::of_int(arg.name.find("dim") == 0 ? pick(rank + 1) - (rank > 0) : pick(4) - 1);
      case ArgType::kIntList: {
        if (arg.name == "size" && chance(2)) return Sizes{rows_, cols_};
        Sizes list;
        const bool dims = arg.name.find("dim") == 0;
        for (int n = dims ? 1 + pick(std::max(rank, 1)) : 1 + pick(3); n > 0; n--) {
          list.push_back(dims ? pick(std::max(rank, 1)) : pick(4));
        }
        return list;
      }
      case ArgType::kBool: return chance(2);
      case ArgType::kDType: {
        static const DType types[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                                      DType::kInt64,   DType::kInt32,   DType::kUInt8,    DType::kBool};
        return types[pick(8)];
      }
      case ArgType::kDevice:
      case ArgType::kStr: return arg.def;
      case ArgType::kFloatList:  // of internal ops, as are functions
      case ArgType::kFunction: break;
    }
    return Value();
  }
  Tensor anything() {
    const OpInfo& op = info(all_ops()[size_t(pick(int(all_ops().size())))]);
    Args args;
    Tensor first;
    for (const ArgInfo& arg : op.args) {
      args.push_back(argument(arg, first));
      if (!first && args.back().is<Tensor>()) first = args.back().tensor();
    }
    const Results results = call_op(op.id, std::move(args));
    if (results.empty()) fail("no result");
    const Tensor t = results[size_t(pick(int(results.size())))];
    // The graphs stay small.
    if (t->dim() > 4 || t->numel().hint > 4096) fail("too large");
    return t;
  }

  void step() {
    Tensor t;
    switch (pick(16)) {
      case 12:
      case 13:
      case 14:
      case 15: t = anything(); break;
      case 0:
      case 1:
      case 2: t = unary(); break;
      case 3:
      case 4:
      case 5: t = binary(); break;
      case 6: t = select_by(); break;
      case 7: t = reduce(); break;
      case 8: t = view(); break;
      case 9: t = indexed(); break;
      case 10: t = chance(2) ? made() : reduce(); break;
      default: t = chance(2) ? write() : view(); break;
    }
    values_.push_back(t);
  }

  // Returns the device argument of creation ops; none on the CPU.
  Value place() const { return device_ == Device{} ? Value() : Value(device_); }

  std::mt19937 random_;
  Device device_;
  bool symbolic_ = false;
  SymInt rows_, cols_;
  std::vector<Tensor> values_, inputs_;
  Tensor index_, list_;
  Scalar scalar_;
};

}  // namespace

std::unique_ptr<Graph> random_graph(uint32_t seed, Device device) { return Maker(seed, device).run(); }

}  // namespace lutra
