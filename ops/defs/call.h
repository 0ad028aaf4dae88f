// The one entry that runs every op: call_op walks a stack of modes (tape, capture, user) down to an executor.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// An element of the mode stack. A handler runs with the modes below it current: calling call_op goes one down.
struct Mode {
  virtual ~Mode() = default;
  // Before the tape sees a call: what its arguments are in this mode.
  virtual void enter(OpId, Args&) {}
  virtual Results call(OpId op, Args& args) = 0;
  // In-place form: the op's result is written into args[0]; returns args[0].
  virtual Tensor call_inplace(OpId op, Args& args) = 0;
};

// Pushes a mode for a scope on this thread.
class ModeScope {
 public:
  explicit ModeScope(Mode* mode);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;

 private:
  friend struct CallStack;
  Mode* mode_;
  ModeScope* below_;
};

// The mode that a call would reach, or null when that is the executor.
Mode* current_mode();

// Runs op on args (one Value an ArgInfo of the row; missing trailing ones take their defaults). Order: tape (when grad
// mode is on and an input requires grad), modes from the top, the eager executor.
Results call_op(OpId op, Args args);
// The short way of add, sub, mul and div on two floating tensors of one dtype and size, both contiguous, that no mode
// and no tape has to see. False, and nothing done, where the call is not of that kind.
bool call_same(OpId op, const Tensor& a, const Tensor& b, Tensor& out);
// x.op_(...): args[0] is written. Equal to copy_(args[0], op(args)), with PyTorch's conditions on shape and dtype.
Tensor call_inplace(OpId op, Args args);

// The call that made a view, and those that made what it was called on: replayed, they make the view of another base.
// There are few: a longer chain is one as_strided of the base.
struct ViewStep : ViewHistory {
  OpId op;
  Args args;  // args[0] is None
  Ref<ViewHistory> previous;
  uint32_t length = 1;
};
constexpr uint32_t kMostViewSteps = 8;
// The one step that makes t of its base by t's places in memory.
Ref<ViewHistory> step_by_places(const Tensor& t);
// Whether t has a gradient only because a write with history went into the memory behind a complex view, which cannot
// pass it on: whoever reads t is refused.
bool lost_history(const Tensor& t);
inline const ViewStep* step_before(const ViewStep& step) { return static_cast<const ViewStep*>(step.previous.get()); }

// The rest of call_op below the tape, on arguments already complete and checked: what the tape runs.
Results call_below_tape(OpId op, Args& args);
Tensor call_inplace_below_tape(OpId op, Args& args);
std::string inplace_name(OpId op);  // "add_", "copy_"
// PyTorch's conditions on writing a result of this spec into args[0].
void check_inplace(OpId op, const Args& args, const ResultSpec& spec);
// Whether an argument shares memory with args[0] so that op must be computed before it is written; throws where the
// op refuses that.
bool reads_written(OpId op, const Args& args);
// op's decomposition; what the ops within say about bad arguments is said in op's name.
// Without opmath the kOpmath flag is not heeded: for dtypes and shapes only.
Results decompose_named(const OpInfo& op, const Args& args, bool opmath = true);
// The same, where the call is made: errors met while the parts run are told under the name that was called, never under
// one that Lua lacks.
Results call_parts(const OpInfo& op, const Args& args);
// To be called in a handler of `error`: goes on with it, told under `name` where it is told under another op's name.
[[noreturn]] void rethrow_named(const Error& error, const std::string& name);
// Raised where a shape is asked for that the elements decide.
[[noreturn]] void fail_dynamic(OpId op);
// Where the results of a call are: the device asked for, else its tensors' (those of no dimensions on the CPU go with
// any).
Device result_device(const OpInfo& op, const Args& args);
// Fills in defaults and checks the arguments' number and kinds.
void complete_args(const OpInfo& op, Args& args);

// The executor at the bottom (jit/eager installs itself). It sees concrete tensors only, its inputs already checked by
// the op's meta rule, whose answer is passed along.
struct Executor {
  virtual ~Executor() = default;
  virtual Results run(OpId op, const Args& args, const ResultSpecs& specs) = 0;
  virtual void run_inplace(OpId op, const Args& args, const ResultSpecs& specs) = 0;
  // See call_same; n is the number of elements. False where it has no short way.
  virtual bool run_same(OpId, const Tensor&, const Tensor&, int64_t, Tensor&) { return false; }
};
// Returns the one before.
Executor* set_executor(Executor* executor);

// The decomposition of a composite's complete arguments. With kOpmath, half operands (and a half dtype asked for)
// become float32 before it and the results are rounded after it.
Results decompose(const OpInfo& op, const Args& args);
// r, or a copy that is laid out as spec says: a permuted contiguous one.
Tensor laid_out(const Tensor& r, const ResultSpec& spec);

// Helpers in which decompositions and vjp rules are written.
inline Tensor op1(OpId op, Args args) { return call_op(op, std::move(args))[0]; }
inline Value vint(SymInt v) { return Scalar::of_sym(v); }
inline Value vnum(double v) { return Scalar(v); }
inline Value vdim(int64_t v) { return Scalar::of_int(v); }

// The composite op being decomposed, outermost; OpId::kCount outside. Errors met while its parts run are told under its
// name.
OpId current_origin();
struct OriginScope {
  explicit OriginScope(OpId op);
  ~OriginScope();
  OpId saved;
};

// Grad mode of this thread.
bool grad_enabled();
void set_grad_enabled(bool on);
struct GradModeScope {
  explicit GradModeScope(bool on) : saved(grad_enabled()) { set_grad_enabled(on); }
  ~GradModeScope() { set_grad_enabled(saved); }
  bool saved;
};

// The random generator of this thread, as grad mode is: numbers are a function of (seed, call index, element index); an
// op takes one call index.
struct Generator {
  uint64_t seed = 0;
  uint64_t next_call = 0;
};
Generator& default_generator();

}  // namespace lutra
