// One attempt to capture a segment: a frame's bytecode and real values in; a graph, a guard program and trackers of
// what the segment leaves behind out. Nothing real is changed; an attempt that learns it must decide otherwise is
// dropped and made again with its decisions.
#pragma once
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "jit/autograd/control_gradient.h"
#include "jit/graph/graph.h"
#include "ops/core/current_device.h"
#include "ops/defs/autocast.h"
#include "ops/grad/tape.h"
#include "vm/bind/binding.h"
#include "vm/capture/trace/breaks.h"
#include "vm/capture/trace/budget.h"
#include "vm/capture/trace/code.h"
#include "vm/capture/trace/tracker.h"
#include "vm/guard/program.h"
#include "vm/host/collector.h"

struct lua_State;

namespace lutra {

class TraceSizes;
struct Coroutines;
struct TraceState;

// A graph break: why the segment ends before the current instruction.
struct GraphBreak {
  BreakReason why;
  bool dirty = false;  // something was changed by the instruction already: trace again and stop before it
};
struct LongLoop {};  // a loop is too long to be unrolled
struct LoopStop {};  // the segment ends before a loop that is not unrolled, or at the end of its body
struct Restart {};   // trace again with changed decisions
struct TooDear {};   // lt.auto cannot pay for it now

// Whether an error is about what the program does; not our own fault, and not the wish to stop.
inline bool is_users(const Error& e) { return e.kind != ErrorKind::kInternal && e.kind != ErrorKind::kInterrupt; }

// Where lt.cond and its kin are called: the caller's code and instruction.
using ControlPlace = std::pair<const bc::Proto*, bc::Pc>;

using KeptLoops = std::set<std::pair<const bc::Proto*, bc::Pc>>;  // not unrolled; by their heads

// Elements of a storage.
struct StorageRange {
  int64_t first = 0, count = 0;
};

// What earlier attempts have learned.
struct TraceDecisions {
  KeptLoops kept_loops;
  uint64_t stop_step = 0;  // break before this step (0: none)
  BreakReason stop_reason;
  std::map<const Storage*, StorageRange> memories;    // that inputs share, one of which is written
  std::set<std::string> preload_grads;                // by source: leaves whose gradient is read before backward
  bool hooks_outside = false;                         // break where a made tensor gets a hook, keeps its gradient
  bool leaves_outside = false;                        // break where a leaf that requires grad is made
  std::map<ControlPlace, std::string> plain_control;  // control flow that is ordinary Lua, and why
  bool functions_outside = false;                     // break where a result of an autograd.Function is made
  bool sizes_outside = false;                         // break where elements decide a size
  bool sources_apart = false;                         // calls have brought one tensor as two that take gradients
  std::map<size_t, double> likely_sizes;  // that the trace goes on with, by number: those that what is stated fits
  int size_tries = 0;
  int sizes_learnt = 0;  // from calls that brought others
  // By source: whether its first size may be 0 and 1, too: it bounds a loop that is not unrolled, or follows from one.
  std::map<std::string, bool> open_sizes;
  size_t callers = ~size_t{0};  // how many frames above the first one the trace may return to
};

struct TraceOptions {
  int dynamic = -1;  // -1: sizes become symbolic after a miss, 0: never, 1: from the first capture
  std::map<std::string, std::set<int>> dynamic_dims;  // by source
  // By source: as how many other values a number or string came that had been made a constant. Of a size, by size_name.
  std::map<std::string, int> changing_values;
  std::set<std::string> loose_functions;  // by source: another closure of the prototype will do
  std::set<bc::Pc> parted_calls;          // of the first frame: their callees are frames of their own
  // Of loops that are not unrolled and whose body the segment begins in, by source: whether it is a whole number.
  std::map<std::string, bool> loop_variables;
  bool automatic = false;       // nobody has asked for it
  bool has_to_pay = false;      // long stretches without ops do not
  double until_ms = HUGE_VAL;   // of the thread's time of CPU: what takes longer is too dear
  bool fullgraph = false;       // no value may end the segment
  bool is_callee = false;       // nobody has asked for it but a segment that leaves it to Lua
  bool leaves_calls = false;    // no frames are rebuilt: a callee that breaks is a frame of its own
  bool enters_callees = false;  // a callee that breaks before the first op is resumed all the same
};

inline std::string vararg_name(int n) { return str("select(", n + 1, ", ...)"); }
inline std::string size_name(const std::string& tensor, int dim) { return str(tensor, ".shape[", dim + 1, "]"); }
// Among changing_values: a number or size, by its name, that comparisons came out otherwise for.
inline std::string compared_name(const std::string& number) { return number + ", compared"; }

// How a frame of the trace was called.
enum class Via : uint8_t { kCall, kNoGrad, kEnableGrad, kAutocast, kProtected, kCoroutine };

// A function of C that stands between the caller and the frame. It sets a mode, which was another before, catches
// errors, or resumes a coroutine.
struct ModeCall {
  Via via = Via::kCall;
  bool outer_grad = true;
  AutocastMode outer, inner;             // of kAutocast
  DeviceType device = DeviceType::kCPU;  // the one that inner differs for
  // Of kProtected: pcall, or xpcall and its handler. Of kCoroutine: what catches the errors of the body, if any.
  Var *catches = nullptr, *handler = nullptr;
  explicit operator bool() const { return via != Via::kCall; }
  void restore() const {
    if (via == Via::kCall || via == Via::kProtected || via == Via::kCoroutine) return;
    if (via == Via::kAutocast) return set_autocast_mode(outer);
    set_grad_enabled(outer_grad);
  }
};

struct Frame {
  LuaCode* code = nullptr;
  Var* function = nullptr;
  Vars slots;
  std::vector<Cell*> cells;  // of slots that closures share
  Vars varargs;
  Vars multres;  // values above a MULTRES producer's base
  bc::Pc pc = 1, next = 1, began = 1;
  uint64_t step = 0;                    // of the instruction at pc
  uint64_t multres_step = 0;            // of the producer of multres
  std::vector<const bc::Loop*> active;  // loops being unrolled, outermost first
  size_t rounds = 0, nodes_before = 0;  // of the outermost: how often a numeric loop has come round; ops before it
  std::set<bc::Pc> asked;               // comparisons of symbols that it has come by
  std::vector<ModeCall> modes;          // what stands between its caller and it, outermost first
  bool tail = false;                    // has made a tail call: not part of the chain any more
  bool returned_to = false;             // the trace began in a frame that it called
  bool came_round = false;              // likewise, and may have done so in other rounds
  bool expression = false;  // runs for a metamethod, an iterator or a builtin: its caller cannot be resumed after it
  bool done = false;
  Vars results;
  int line() const { return int(code->proto().line(pc)); }
  bool began_in(const bc::Loop& l) const { return began >= l.first_body && began <= l.end; }
  bool is_builtin() const { return code->is_builtin(); }
  bool is_library() const { return is_builtin() || std::string_view(code->file).starts_with("lutra/"); }
};

class Region;

// A frame that the segment begins in, or one above that the trace may return to: closures made before the segment may
// have its variables.
struct OpenFrame {
  int base = 0;                     // place of its first slot (mirror::place_of)
  std::vector<unsigned> slots{};    // that may be open
  Frame* frame = nullptr;           // null: the trace has not come to it
  Vars before{};                    // beside slots: as the segment found them
  std::map<unsigned, Cell*> met{};  // by slot: variables that functions had before it came, or that went out of scope
};

class Trace {
 public:
  Trace(lua_State* L, TraceState& state, TraceDecisions& decisions, const TraceOptions& options);
  ~Trace();

  // -- the interpreter (interpreter.cc)
  Vars run(Frame& frame);
  void step(Frame& frame);
  [[noreturn]] void stop(Break why, const BreakAbout& about = {});
  Var* slot(Frame& f, unsigned i);
  void set(Frame& f, unsigned i, Var* v);

  // -- trackers (wrap.cc)
  Var* nil();
  Var* boolean(bool b);
  Var* number(double d);
  Var* scalar(const Scalar& s);
  Var* string(const std::string& s);
  Var* tensor(const Tensor& fake);
  Var* fresh_table(int array_size = 0, int hash_size = 0);
  Var* value(const Value& v);
  Var* wrap(const Source* source);  // pops the value at the top of the stack; lazy
  Var* constant_from_stack();       // pops; a value that is constant for this trace
  Var* force(Var* v);               // looks at it: its type is guarded from here on
  bool truthy(Var* v);
  double constant(Var* number);  // specialises
  Scalar symbolic(Var* number);  // keeps it symbolic where it can be
  // A number or string that earlier misses were about, with so many values.
  bool has_varied(Var* v, int values = 1);
  // Whether it is made of what is known to change and may make a comparison come out otherwise.
  bool has_come_out_otherwise(const Var* v) const;
  // Whether all that an expression is made of may be a constant: numbers that no miss was about, no sizes.
  bool may_be_pinned(int32_t expr) const;
  // The element of an input that has one, a number that no miss was about: a constant from here on. None of others, and
  // where it is not wanted.
  std::optional<double> steady_element(const Tensor& input, bool (*is_wanted)(double));
  void stop_if_unsteady(const Source& value);
  // How many other lengths the real table has come with.
  int lengths_of(const Table& t) const { return values_of("#" + t.source->text); }
  const std::string& text(Var* string);         // specialises
  const std::string& pinned_text(Var* string);  // likewise, for a branch: there are no more values than ways
  void guard_identity(Var* v);
  void guard_callee(Var* f);  // which code runs: identity, or the prototype where closures come and go
  bool same(Var* a, Var* b);  // rawequal
  Key key(Var* v);
  void push_real(Var* v);  // pushes the real value (constants and pinned values)
  bool is_real(Var* v);
  std::map<uint64_t, int> table_makers;  // pins of functions that make tables of templates, by the template
  int pin();                             // pops the top of the stack into the pins
  void push_pin(int pin);

  // -- tables (tables.cc)
  Var* raw_get(Table* t, Var* key);
  Var* get_by_changing(Table* t, Var* key);  // null where the key is better a constant
  void raw_set(Table* t, Var* key, Var* value);
  bool set_by_changing(Table* t, Var* key, Var* value);  // false where the key is better a constant
  TableEntry* find_moving(Table* t, Var* key);  // null where no write at a position that changes is of that key
  Var* metatable(Var* v);                       // of a table, string or tensor: a table Var or nil
  Var* metamethod(Var* v, const char* name);
  Var* root_table(const Source* source);  // pops it; a table that is always one
  Var* index(Var* object, Var* key);
  Var* methods_of(Var* object);
  [[noreturn]] void stop_at_index(Var* object);
  void set_index(Var* object, Var* key, Var* value);
  int64_t length(Table* t);                       // specialises
  void charge(uint64_t moves);                    // work of a builtin that no instruction counts
  void need_room(uint64_t more);                  // before so many values are wrapped
  Var* length_of(Table* t, bool is_seen = true);  // stays symbolic where it can
  std::pair<Var*, Var*> next(Table* t, Var* key);
  Vars keys_in_any_order(Table* t);
  Table* table_of(Var* v);

  // -- calls (calls.cc)
  Vars call(Var* f, Vars args, bool expression = false);
  Vars call(Var* f, Vars args, bool expression, const ModeCall& mode);
  [[noreturn]] void stop_at_leaf();
  bool is_new_leaf(const Tensor& fake) const;  // a leaf made in the segment
  Vars call_binding(const Binding& b, Vars args);
  Var* storage_offset(Var* tensor);
  void guard_offset(const Vars& args);  // of as_strided: an offset of its own counts from the storage's beginning
  Vars call_pure(Var* f, const Vars& args, const std::string& name);  // a C function of constants, run now
  Var* tensor_attribute(Var* object, Var* key);
  void set_tensor_attribute(Var* object, Var* key, Var* value);
  void load_grad(Tensor fake, const Source* source);
  void prepare_backward();
  void finish_backward();

  Cell* new_cell();
  Cell* slot_cell(Frame& f, unsigned slot);                         // that closures share
  std::pair<OpenFrame*, unsigned> open_slot(const void* variable);  // null: none
  bool has_open_slots() const;
  bool is_apart(const Frame& f, unsigned i, const void* variable);
  void check_place(const Source* function, unsigned i, const OpenFrame& frame, unsigned slot, const Cell* cell);
  Cell* upvalue(Frame& f, unsigned i);
  void close_slots(Frame& f, unsigned from);  // UCLO
  void push_prototype(Var* function);         // real or made in the trace; only with the mirror
  // A function of the program that Lua will call, as the trace ends before what calls it: this one, or the outermost
  // inside of the caller.
  void leave_out(Var* function);
  void leave_out(const Frame& caller);
  // Stack index of a table of them, 0: nobody asks. [function] = true. Of one that the trace makes, [another closure of
  // its prototype] = which child it is of the first frame's function, or {the function that makes it, which child}.
  int left_out = 0;
  std::map<bc::Pc, size_t> called_ops;          // by call of the first frame: the nodes that it has made
  bool is_loose(const Source* function) const;  // another closure of the prototype may stand there in a later call

  // -- guards (guards.cc)
  int reg(const Source* s);
  // Of a number that is made of numbers and sizes; null where that cannot be loaded.
  const Source* computed(int32_t expr);
  void check(GuardOp op, const Source* s, int index = 0, const std::string& expected = "");
  void check_pair(GuardOp op, const Source* s, const Source* other);
  void check_group(GuardOp op, const Source* s, GuardGroup group, const std::string& expected);
  int constant_slot(Var* v);  // in the entry's table of constants
  int constant_slot_from_stack();
  int weak_slot(int pin);
  const Source* source(SourceKind kind, const Source* base, const Source* key, int index, const std::string& text);

  void close();  // tracing is over: ops are real again
  uint64_t first_step() const { return 1; }
  const char* file() const { return frames.empty() ? nullptr : frames.back()->code->file; }
  int line() const { return frames.empty() ? 0 : frames.back()->line(); }
  std::string call_chain() const;             // of BreakReason
  GuardPlace place() const { return here_; }  // of the instruction that ran last
  // The line at here_ has asked what was asked of symbols since the last call.
  void note_relations(const SymEnv& env);

  lua_State* L;
  TraceState& state;
  TraceDecisions& decisions;
  const TraceOptions& options;
  int pins, constants, weak;  // stack indexes
  int pin_count = 0, constant_count = 0, weak_count = 0;

  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  GraphRecorder recorder{*graph};
  Sources sources;
  GuardProgram program;
  std::deque<Var> vars;
  std::deque<Table> tables;
  std::deque<Cell> cells;
  std::deque<Closure> closures;
  std::deque<MadeText> texts;
  std::deque<Frame> frame_store;
  std::vector<Frame*> frames;   // running now, outermost first
  std::vector<ModeCall> modes;  // of the frame that is called next
  uint64_t steps = 0;
  Budget budget;
  uint64_t fresh_tables = 0;

  struct TensorInput {
    Tensor fake, real;
    const Source* source;
    bool grad_loaded = false;  // fake's grad stands for the real one
    Tensor initial_grad;       // fake
    bool requires_grad = false;
    bool grad_known = false;    // by a guard (not merely overwritten)
    Edge edge;                  // where the fake's gradient went to when the segment began
    bool memory = false;        // the elements among which other inputs lie
    bool hooks_loaded = false;  // the fake has the hooks that the real one had
    bool unhooked = false;      // none, by a guard
  };
  std::vector<TensorInput> inputs;  // by graph input
  std::vector<int32_t> unbacked;    // numbers of the graph that are sizes which elements decide
  std::vector<SymGuard> stated;     // what the program says of them
  std::unordered_map<const TensorImpl*, ReadNumber> read_numbers;  // by the tensors that the numbers are
  std::unordered_map<const TensorImpl*, int> input_of_real, input_of_fake;
  std::unordered_map<const Storage*, int> input_of_storage;  // of fakes: each has a storage of its own
  std::unordered_map<const void*, Table*> table_of_real;
  std::unordered_map<const void*, Cell*> cell_of_real;
  std::vector<Table*> written_tables;
  std::vector<Cell*> written_cells;
  std::map<std::pair<int, std::string>, int> constant_slots;
  std::unordered_map<const Source*, int> registers;
  bool initial_grad_mode;
  bool grad_mode_read = false;
  int plain_checkpoints = 0;  // calls of lt.checkpoint, which a graph has as those of the function
  const uint64_t gpu_reads = current_cuda_index_reads(), device_reads = default_device_reads();  // before the trace
  std::vector<std::unique_ptr<Region>> regions;  // being recorded, outermost first
  std::vector<RecordedFunction> functions;       // that have been
  const std::shared_ptr<Trace*> alive = std::make_shared<Trace*>(this);
  std::vector<bool> carries_gradients;  // what the region that is opened next carries in, where it is known
  // The current instruction writes what is older than the innermost region.
  void writes_outside(const Table& table);
  void writes_outside(const Cell& cell);
  void writes_outside();
  std::set<const Source*> remade;      // functions of frames above, and closures that frames make: others in each call
  std::set<const void*> children;      // of the functions whose frames the segment begins in: prototypes
  std::vector<unsigned> open_slots;    // of the first frame: closures made before the segment may share them
  std::vector<OpenFrame> open_frames;  // innermost first; those before the first frame have returned to it
  bc::Pc last_close = 0;               // the first frame's UCLO before its return, which does nothing in a trace
  bool backward_called = false;
  Var* random = nullptr;  // math.random, which has drawn so often
  int draws = 0;
  Var* seed = nullptr;           // of manual_seed
  std::vector<Tensor> retained;  // fakes that keep their gradient
  struct Hooked {
    std::weak_ptr<char> hook;  // expired: it cannot run any more
    Tensor tensor;
    Edge edge;  // where the tensor's gradient came from then
    Var* function;
    uint64_t step;  // where it was registered
    BreakReason why;
    std::function<void()> remove;
  };
  std::deque<Hooked> hooked;
  std::vector<std::function<void()>> loaded_hooks;  // what removes those of inputs from fakes
  std::unique_ptr<Coroutines> coroutines;           // that the trace has made; null: none yet
  bool ended = false;                               // no instruction is interpreted any more
  AutocastTrace autocast;
  bool effect = false;                                 // the current instruction has changed something
  Var *string_meta = nullptr, *tensor_meta = nullptr;  // the metatables of all strings, of all tensors
  std::set<std::pair<const Cell*, const Source*>> same_variables, own_variables;  // guarded already
  std::unordered_map<const Source*, Var*> environments;                           // by function
  int arguments = 0;                                                              // of the portal
  // Whether the innermost frame is of a function that an earlier round of the loop which f unrolls did not call where
  // this round calls it, or such a one has called it: as in a list of layers of several classes.
  bool differs_in_rounds(const Frame& f) const;

 private:
  void note_call(const bc::Proto& callee);
  // By frame that unrolls a loop, and the calls from there on; the prototypes called and the first round of each.
  std::map<std::pair<const Frame*, size_t>, std::map<const bc::Proto*, size_t>> called_in_rounds_;
  void stop_at_budget(bool dirty);
  bool is_dynamic_number(const Source& s) const;
  int values_of(const std::string& source) const;
  bool is_open(const Tensor& real, const Source& source, bool learnt) const;
  template <class F>
  void each_leaf(int32_t expr, F f) const;  // f(source or null, dim or -1) of the numbers and sizes that it is made of
  void stop_at_pin(int32_t expr);
  const Source* computed(int32_t expr, int& left);
  std::unique_ptr<SymScope> sym_scope_;
  GuardPlace here_;  // of the instruction that runs
  std::unique_ptr<ModeScope> mode_scope_;
  std::optional<CollectorPause> no_finalizers_;
  std::unique_ptr<TraceSizes> sizes_scope_;
  // The sizes of a tensor that becomes input `input`: symbols where they are dynamic.
  Sizes symbolic_sizes(const Tensor& real, const Source* source, int input);
  int add_tensor_input(const Tensor& real, const Source* source);
  void add_constant_inputs();
  // Inputs that share memory are views of one input.
  int add_view_input(const Tensor& real, const Source* source, const StorageRange& range);
  int memory_input(const Tensor& real, const Source* source, const StorageRange& range);
  void force_table(Var* v);
  void force_userdata(Var* v);
  TensorSpec spec_of(const Tensor& real, const Tensor& fake);
};

}  // namespace lutra
