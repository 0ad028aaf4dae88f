// The one entry that runs every op: call_op walks a stack of modes (tape, capture, user) down to an executor.
#pragma once
#include "ops/defs/op.h"

namespace lutra {

// An element of the mode stack. While a handler runs, only the modes below it are current: its call_op goes one down.
struct Mode {
  virtual ~Mode() = default;
  // Called before the tape sees a call. It may replace the arguments by their values in this mode.
  virtual void enter(OpId, Args&) {}
  virtual Results call(OpId op, Args& args) = 0;
  // In-place form: writes the op's result into args[0] and returns args[0].
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

// Returns the mode that a call would reach, or null if it would reach the executor.
Mode* current_mode();

// Runs op on args, one Value for each ArgInfo of the row. Missing trailing ones take their defaults. A call passes the
// tape (if grad mode is on and an input requires grad), the modes from the top, then the eager executor.
Results call_op(OpId op, Args args);
// The short way of add, sub, mul and div on two contiguous floating tensors of one dtype and size, if no mode and no
// tape must see the call. Returns false, and does nothing, for any other call.
bool call_same(OpId op, const Tensor& a, const Tensor& b, Tensor& out);
// x.op_(...): writes args[0]. Equals copy_(args[0], op(args)), with PyTorch's conditions on shape and dtype.
Tensor call_inplace(OpId op, Args args);

// The call that made a view, with the calls that made its input. Replaying them makes the same view of another base.
// The chain is short: one that would be longer than kMaxViewSteps becomes one as_strided of the base.
struct ViewStep : ViewHistory {
  OpId op;
  Args args;  // args[0] is None
  Ref<ViewHistory> previous;
  uint32_t length = 1;
};
constexpr uint32_t kMaxViewSteps = 8;
// Returns the one step that makes t of its base by as_strided.
Ref<ViewHistory> step_by_places(const Tensor& t);
// Returns whether t has a gradient only because a write with history went into the memory behind a complex view, which
// cannot pass the gradient on. Reading t is then an error.
bool lost_history(const Tensor& t);
inline const ViewStep* step_before(const ViewStep& step) { return static_cast<const ViewStep*>(step.previous.get()); }

// The rest of call_op below the tape, on complete and checked arguments. The tape calls it.
Results call_below_tape(OpId op, Args& args);
Tensor call_inplace_below_tape(OpId op, Args& args);
std::string inplace_name(OpId op);  // "add_", "copy_"
// Checks PyTorch's conditions for writing a result of this spec into args[0].
void check_inplace(OpId op, const Args& args, const ResultSpec& spec);
// Returns whether an argument shares memory with args[0], so that op must be computed before args[0] is written. Throws
// if the op refuses that.
bool reads_written(OpId op, const Args& args);
// Runs op's decomposition. Errors about bad arguments name op, not its parts. If `opmath` is false, the kOpmath flag is
// ignored: use that only for dtypes and shapes.
Results decompose_named(const OpInfo& op, const Args& args, bool opmath = true);
// Does the same for a call that is executed. Errors while the parts run name the op that was called, never one that Lua
// lacks.
Results call_parts(const OpInfo& op, const Args& args);
// Rethrows `error` from a handler of it. If it names another op, the message names `name` instead.
[[noreturn]] void rethrow_named(const Error& error, const std::string& name);
// Raises the error for asking for a shape that depends on elements.
[[noreturn]] void fail_dynamic(OpId op);
// Returns the device of a call's results: the device asked for, else that of its tensors. Zero-dimensional tensors on
// the CPU go with any device.
Device result_device(const OpInfo& op, const Args& args);
// Fills in defaults, and checks the number and kinds of the arguments.
void complete_args(const OpInfo& op, Args& args);

// The executor at the bottom (jit/eager installs itself). It sees concrete tensors only. The op's meta rule has already
// checked the inputs, and its specs are passed along.
struct Executor {
  virtual ~Executor() = default;
  virtual Results run(OpId op, const Args& args, const ResultSpecs& specs) = 0;
  virtual void run_inplace(OpId op, const Args& args, const ResultSpecs& specs) = 0;
  // See call_same; n is the number of elements. Returns false if it has no short way.
  virtual bool run_same(OpId, const Tensor&, const Tensor&, int64_t, Tensor&) { return false; }
};
// Installs an executor and returns the previous one.
Executor* set_executor(Executor* executor);

// Runs the decomposition of a composite on complete arguments. With kOpmath, half operands (and a requested half dtype)
// become float32 before it, and the results are rounded after it.
Results decompose(const OpInfo& op, const Args& args);
// Returns r if it has the layout of spec, else a copy with that layout: a permuted contiguous one.
Tensor laid_out(const Tensor& r, const ResultSpec& spec);

// Helpers for writing decompositions and vjp rules.
inline Tensor op1(OpId op, Args args) { return call_op(op, std::move(args))[0]; }
inline Value vint(SymInt v) { return Scalar::of_sym(v); }
inline Value vnum(double v) { return Scalar(v); }
inline Value vdim(int64_t v) { return Scalar::of_int(v); }

// Returns the outermost composite op that is being decomposed, or OpId::kCount outside. Errors while its parts run name
// that op.
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

// The random generator of this thread. Numbers are a function of (seed, call index, element index). An op takes one
// call index.
struct Generator {
  uint64_t seed = 0;
  uint64_t next_call = 0;
};
Generator& default_generator();

}  // namespace lutra
