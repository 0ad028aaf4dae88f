// One attempt to capture a segment. It interprets a frame's bytecode with its real values, and produces a graph, a
// guard program and trackers of the segment's effects. It changes nothing real. An attempt that learns that it must
// decide otherwise is dropped and repeated with its decisions.
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

// A graph break: the segment ends before the current instruction.
struct GraphBreak {
  BreakReason why;
  bool dirty = false;  // the instruction has already changed something: trace again and stop before it
};
struct LongLoop {};      // a loop is too long to be unrolled
struct LoopStop {};      // the segment ends before a loop that is not unrolled, or at the end of its body
struct Restart {};       // trace again with changed decisions
struct TooExpensive {};  // the attempt is too expensive for lt.auto now

// Returns whether an error is the program's: neither an internal error nor an interrupt.
inline bool is_users(const Error& e) { return e.kind != ErrorKind::kInternal && e.kind != ErrorKind::kInterrupt; }

// The place of a call of lt.cond or a similar function: the caller's code and instruction.
using ControlPlace = std::pair<const bc::Proto*, bc::Pc>;

using KeptLoops = std::set<std::pair<const bc::Proto*, bc::Pc>>;  // loops that are not unrolled, by their heads

// A range of elements of a storage.
struct StorageRange {
  int64_t first = 0, count = 0;
};

// Decisions that earlier attempts have learned.
struct TraceDecisions {
  KeptLoops kept_loops;
  uint64_t stop_step = 0;  // break before this step (0: none)
  BreakReason stop_reason;
  std::map<const Storage*, StorageRange> memories;  // memory shared by inputs, one of which is written
  std::set<std::string> preload_grads;              // sources of leaves whose gradient is read before backward
  bool hooks_outside = false;   // break where a tensor of the trace gets a hook or retains its gradient
  bool leaves_outside = false;  // break where a leaf that requires grad is made
  std::map<ControlPlace, std::string> plain_control;  // control flow that stays ordinary Lua, and why
  std::set<ControlPlace> peeled;                      // scans whose first step is a part of the graph around them
  bool functions_outside = false;                     // break where a result of an autograd.Function is made
  bool sizes_outside = false;                         // break where a size depends on elements
  bool sources_apart = false;  // calls have passed one tensor as two arguments that take gradients
  // Sizes with which the trace continues, by number, because they fit the stated facts.
  std::map<size_t, double> likely_sizes;
  int size_tries = 0;
  int sizes_learnt = 0;                // number of sizes learnt from calls that passed others
  std::set<std::string> closed_sizes;  // by size_name: sizes for which the trace needs to know whether they are 0 or 1
  size_t callers = ~size_t{0};         // number of frames above the first one to which the trace may return
};

struct TraceOptions {
  int dynamic = -1;  // -1: sizes become symbolic after a miss, 0: never, 1: from the first capture
  std::map<std::string, std::set<int>> dynamic_dims;  // by source, or elements_text for all elements of a list
  // By source: how many other values a number or string had that was made a constant. For a size, by size_name.
  std::map<std::string, int> changing_values;
  bool small_sizes = false;               // calls have passed sizes 0 or 1 where other sizes were captured
  std::set<std::string> loose_functions;  // sources of functions for which any closure of the prototype is accepted
  std::set<bc::Pc> parted_calls;          // calls of the first frame whose callees are compiled as frames of their own
  // Variables of loops that are not unrolled and in whose body the segment begins. By source: whether it is a whole
  // number.
  std::map<std::string, bool> loop_variables;
  bool automatic = false;       // lt.auto compiles it, without a request
  bool has_to_pay = false;      // the trace ends after too many instructions without ops
  double until_ms = HUGE_VAL;   // limit in the thread's CPU time; a longer attempt is too expensive
  bool fullgraph = false;       // the segment may not end because of a value
  bool is_callee = false;       // compiled only because a segment leaves the call to Lua
  bool leaves_calls = false;    // frames are not rebuilt: a callee that breaks is compiled as a frame of its own
  bool enters_callees = false;  // a callee that breaks before its first op is still resumed
  std::shared_ptr<std::atomic<double>> late_ms{};  // CompileOptions::late_ms
};

inline std::string vararg_name(int n) { return str("select(", n + 1, ", ...)"); }
inline std::string size_name(const std::string& tensor, int dim) { return str(tensor, ".shape[", dim + 1, "]"); }
// Returns the key in changing_values of a number or size for which a comparison had another result.
inline std::string compared_name(const std::string& number) { return number + ", compared"; }

// The way in which a frame of the trace was called.
enum class Via : uint8_t { kCall, kNoGrad, kEnableGrad, kAutocast, kProtected, kCoroutine };

// A C function between the caller and the frame. It sets a mode, catches errors, or resumes a coroutine.
struct ModeCall {
  Via via = Via::kCall;
  bool outer_grad = true;
  AutocastMode outer, inner;             // for kAutocast
  DeviceType device = DeviceType::kCPU;  // the device type for which `inner` differs from `outer`
  // For kProtected: pcall, or xpcall and its handler. For kCoroutine: the function that catches the body's errors, if
  // any.
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
  std::vector<Cell*> cells;  // cells of slots that closures share
  Vars varargs;
  Vars multres;  // values above a MULTRES producer's base
  bc::Pc pc = 1, next = 1, began = 1;
  uint64_t step = 0;                    // step of the instruction at pc
  uint64_t multres_step = 0;            // step of the producer of multres
  std::vector<const bc::Loop*> active;  // loops being unrolled, outermost first
  // Of the outermost loop: iterations of a numeric loop; number of nodes before it.
  size_t rounds = 0, nodes_before = 0;
  std::set<bc::Pc> asked;       // comparisons of symbols that it has executed
  std::vector<ModeCall> modes;  // C functions between its caller and it, outermost first
  bool tail = false;            // has made a tail call, so it is no longer part of the call chain
  bool returned_to = false;     // the trace began in a frame that this frame called
  bool came_round = false;      // the same, and it may have done so in other iterations
  bool expression = false;  // runs for a metamethod, an iterator or a builtin, so its caller cannot be resumed after it
  bool done = false;
  Vars results;
  int line() const { return int(code->proto().line(pc)); }
  bool began_in(const bc::Loop& l) const { return began >= l.first_body && began <= l.end; }
  bool is_builtin() const { return code->is_builtin(); }
  bool is_library() const { return is_builtin() || std::string_view(code->file).starts_with("lutra/"); }
};

class Region;

// A frame in which the segment begins, or one above to which the trace may return. Closures made before the segment may
// share its variables.
struct OpenFrame {
  int base = 0;                   // position of its first slot (mirror::place_of)
  std::vector<unsigned> slots{};  // slots that may be open upvalues
  Frame* frame = nullptr;         // null: the trace has not reached it
  Vars before{};                  // parallel to slots: values at the segment's beginning
  // By slot: variables that functions used before the trace reached the frame, or that went out of scope.
  std::map<unsigned, Cell*> met{};
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
  Var* wrap(const Source* source);  // pops the value at the top of the stack; returns a lazy Var
  Var* constant_from_stack();       // pops a value that is constant for this trace
  Var* force(Var* v);               // inspects it: its type is guarded from here on
  bool truthy(Var* v);
  double constant(Var* number);  // specialises
  Scalar symbolic(Var* number);  // keeps it symbolic if possible be
  // Returns whether earlier misses brought at least `values` other values of this number or string.
  bool has_varied(Var* v, int values = 1);
  bool is_learnt(const Source& tensor, int dim) const;  // a miss has shown that the size changes
  // Returns whether it contains a number or size that is known to change, so that a comparison may have another result.
  bool has_come_out_otherwise(const Var* v) const;
  // Returns whether an expression may become a constant: it contains only numbers without misses, and no sizes.
  bool may_be_pinned(int32_t expr) const;
  // Returns the element of a one-element input and makes it a constant. Returns nullopt for other inputs, if there was
  // a miss about the number, or if is_wanted returns false.
  std::optional<double> steady_element(const Tensor& input, bool (*is_wanted)(double));
  void stop_if_unsteady(const Source& value);
  void stop_if_unsteady(const Source& tensor, int dim, int most);
  // Returns how many other lengths the real table had in misses.
  int lengths_of(const Table& t) const { return values_of("#" + t.source->text); }
  const std::string& text(Var* string);         // specialises
  const std::string& pinned_text(Var* string);  // specialises for a branch, which has only as many values as paths
  void guard_identity(Var* v);
  // Guards which code runs: by identity, or by prototype if closures are made again and again.
  void guard_callee(Var* f);
  bool same(Var* a, Var* b);  // rawequal
  Key key(Var* v);
  void push_real(Var* v);  // pushes the real value (constants and pinned values)
  bool is_real(Var* v);
  std::map<uint64_t, int> table_makers;  // pins of functions that make tables from templates, by template
  int pin();                             // pops the top of the stack into the pins
  void push_pin(int pin);

  // -- tables (tables.cc)
  Var* raw_get(Table* t, Var* key);
  Var* get_by_changing(Table* t, Var* key);  // null if the key should be a constant
  void raw_set(Table* t, Var* key, Var* value);
  bool set_by_changing(Table* t, Var* key, Var* value);  // false if the key should be a constant
  TableEntry* find_moving(Table* t, Var* key);           // null if no write at a symbolic position has that key
  Var* metatable(Var* v);                                // for a table, string or tensor: a table Var or nil
  Var* metamethod(Var* v, const char* name);
  Var* root_table(const Source* source);  // pops a value that is always a table
  Var* index(Var* object, Var* key);
  Var* methods_of(Var* object);
  [[noreturn]] void stop_at_index(Var* object);
  void set_index(Var* object, Var* key, Var* value);
  int64_t length(Table* t);                       // specialises
  void know_length(Table* t);                     // specialises, if it is a list with items
  void charge(uint64_t moves);                    // counts work of a builtin, which no instruction counts
  void need_room(uint64_t more);                  // call it before `more` values are wrapped
  Var* length_of(Table* t, bool is_seen = true);  // stays symbolic if possible
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
  void guard_offset(const Vars& args);  // for as_strided: an explicit offset counts from the storage's beginning
  Vars call_pure(Var* f, const Vars& args, const std::string& name);  // runs a C function of constants now
  Var* tensor_attribute(Var* object, Var* key);
  void set_tensor_attribute(Var* object, Var* key, Var* value);
  void load_grad(Tensor fake, const Source* source);
  void prepare_backward();
  void finish_backward();

  Cell* new_cell();
  Cell* slot_cell(Frame& f, unsigned slot);                         // the cell of a slot that closures share
  std::pair<OpenFrame*, unsigned> open_slot(const void* variable);  // null if there is none
  bool has_open_slots() const;
  bool is_apart(const Frame& f, unsigned i, const void* variable);
  void check_place(const Source* function, unsigned i, const OpenFrame& frame, unsigned slot, const Cell* cell);
  Cell* upvalue(Frame& f, unsigned i);
  void close_slots(Frame& f, unsigned from);  // UCLO
  void push_prototype(Var* function);         // a real function or one made in the trace; only with the mirror
  // Record a function of the program that Lua will call because the trace ends before its call: this function, or the
  // outermost one inside of the caller.
  void leave_out(Var* function);
  void leave_out(const Frame& caller);
  // Stack index of the table of these functions, or 0 if not needed. [function] = true. For one that the trace makes,
  // [another closure of its prototype] = the child's constant in the first frame's function, or {the function that
  // makes it, the child's constant}.
  int left_out = 0;
  std::map<bc::Pc, size_t> called_ops;          // by call of the first frame: the most nodes that it made
  bool is_loose(const Source* function) const;  // a later call may have another closure of the prototype there

  // -- guards (guards.cc)
  int reg(const Source* s);
  // Returns a source for a number computed from numbers and sizes; null if it cannot be loaded.
  const Source* computed(int32_t expr);
  void check(GuardOp op, const Source* s, int index = 0, const std::string& expected = "");
  void check_pair(GuardOp op, const Source* s, const Source* other);
  void check_group(GuardOp op, const Source* s, GuardGroup group, const std::string& expected);
  int constant_slot(Var* v);  // index in the entry's table of constants
  int constant_slot_from_stack();
  int weak_slot(int pin);
  const Source* source(SourceKind kind, const Source* base, const Source* key, int index, const std::string& text);

  void close();  // ends tracing: ops are real again
  uint64_t first_step() const { return 1; }
  const char* file() const { return frames.empty() ? nullptr : frames.back()->code->file; }
  int line() const { return frames.empty() ? 0 : frames.back()->line(); }
  std::string call_chain() const;             // for BreakReason
  GuardPlace place() const { return here_; }  // of the last instruction that ran
  // Records here_ as the place of the guards on symbols that were added since the last call.
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
  std::vector<Frame*> frames;   // running frames, outermost first
  std::vector<ModeCall> modes;  // for the frame that is called next
  uint64_t steps = 0;
  Budget budget;
  uint64_t fresh_tables = 0;

  struct TensorInput {
    Tensor fake, real;
    const Source* source;
    bool grad_loaded = false;  // the fake's grad stands for the real one
    Tensor initial_grad;       // fake
    bool requires_grad = false;
    bool grad_known = false;    // known by a guard (not merely overwritten)
    Edge edge;                  // the edge of the fake's gradient when the segment began
    bool memory = false;        // it is the memory that other inputs are views of
    bool hooks_loaded = false;  // the fake has the hooks that the real one had
    bool unhooked = false;      // it has no hooks, by a guard
  };
  std::vector<TensorInput> inputs;                                 // indexed by graph input
  std::vector<int32_t> unbacked;                                   // numbers of the graph that are unbacked sizes
  std::vector<SymGuard> stated;                                    // facts that the program states about them
  std::unordered_map<const TensorImpl*, ReadNumber> read_numbers;  // by the tensors that hold the numbers
  std::unordered_map<const TensorImpl*, int> input_of_real, input_of_fake;
  std::unordered_map<const Storage*, int> input_of_storage;  // by storage of the fake; each fake has its own
  std::unordered_map<const void*, Table*> table_of_real;
  std::unordered_map<const void*, Cell*> cell_of_real;
  std::vector<Table*> written_tables;
  std::vector<Cell*> written_cells;
  std::map<std::pair<int, std::string>, int> constant_slots;
  std::unordered_map<const Source*, int> registers;
  bool initial_grad_mode;
  bool grad_mode_read = false;
  int plain_checkpoints = 0;  // calls of lt.checkpoint that the graph contains as plain calls of the function
  // Counts before the trace.
  const uint64_t gpu_reads = current_cuda_index_reads(), device_reads = default_device_reads();
  std::vector<std::unique_ptr<Region>> regions;  // being recorded, outermost first
  std::vector<RecordedFunction> functions;       // recorded functions
  const std::shared_ptr<Trace*> alive = std::make_shared<Trace*>(this);
  std::vector<bool> carries_gradients;  // which values carried by the next region have gradients, if known
  // Called when the current instruction writes something older than the innermost region.
  void writes_outside(const Table& table);
  void writes_outside(const Cell& cell);
  void writes_outside();
  // Functions of frames above, and closures that frames make, which are new in each call.
  std::set<const Source*> remade;
  std::set<const void*> children;      // child prototypes of the functions in whose frames the segment begins
  std::vector<unsigned> open_slots;    // slots of the first frame that closures made before the segment may share
  std::vector<OpenFrame> open_frames;  // innermost first; those before the first frame have returned to it
  bc::Pc last_close = 0;               // the first frame's UCLO before its return; it does nothing in a trace
  bool backward_called = false;
  Var* random = nullptr;                // math.random or math.randomseed
  const Source* random_seed = nullptr;  // the argument of math.randomseed, and its value
  double random_seed_value = 0;
  int draws = 0;                 // calls of math.random, since math.randomseed if that was called
  Var* seed = nullptr;           // the argument of manual_seed
  std::vector<Tensor> retained;  // fakes that retain their gradient
  struct Hooked {
    std::weak_ptr<char> hook;  // expired if it cannot run any more
    Tensor tensor;
    Edge edge;  // the tensor's edge at that time
    Var* function;
    uint64_t step;  // the step that registered it
    BreakReason why;
    std::function<void()> remove;
  };
  std::deque<Hooked> hooked;
  std::vector<std::function<void()>> loaded_hooks;  // functions that remove the hooks of inputs from fakes
  std::unique_ptr<Coroutines> coroutines;           // coroutines that the trace has made; null: none yet
  bool ended = false;                               // true when no instruction is interpreted any more
  AutocastTrace autocast;
  bool effect = false;                                 // the current instruction has changed something
  Var *string_meta = nullptr, *tensor_meta = nullptr;  // the metatables of all strings, of all tensors
  std::set<std::pair<const Cell*, const Source*>> same_variables, own_variables;  // already guarded
  std::unordered_map<const Source*, Var*> environments;                           // environments by function
  int arguments = 0;                                                              // number of the portal's arguments
  // Returns whether this iteration of the loop that f unrolls is the first to call the innermost frame's function, or
  // one of its callers, at a place where earlier iterations called others. A loop over layers of several classes does
  // so.
  bool differs_in_rounds(const Frame& f) const;

 private:
  void note_call(const bc::Proto& callee);
  // By frame that unrolls a loop and a hash of the calls from there on: the called prototypes, and the first iteration
  // of each.
  std::map<std::pair<const Frame*, size_t>, std::map<const bc::Proto*, size_t>> called_in_rounds_;
  void stop_at_budget(bool dirty);
  bool is_dynamic_number(const Source& s) const;
  int values_of(const std::string& source) const;
  bool is_open(const Tensor& real, const Source& source, size_t dim) const;
  template <class F>
  // Calls f(source or null, dim or -1) for the numbers and sizes in the expression.
  void each_leaf(int32_t expr, F f) const;
  void stop_at_pin(int32_t expr);
  const Source* computed(int32_t expr, int& left);
  std::unique_ptr<SymScope> sym_scope_;
  GuardPlace here_;  // place of the current instruction
  std::unique_ptr<ModeScope> mode_scope_;
  std::optional<CollectorPause> no_finalizers_;
  std::unique_ptr<TraceSizes> sizes_scope_;
  // Returns the sizes of a tensor that becomes input `input`; dynamic ones are symbols.
  Sizes symbolic_sizes(const Tensor& real, const Source* source, int input);
  int add_tensor_input(const Tensor& real, const Source* source);
  void add_constant_inputs();
  // Makes inputs that share memory views of one input.
  int add_view_input(const Tensor& real, const Source* source, const StorageRange& range);
  int memory_input(const Tensor& real, const Source* source, const StorageRange& range);
  void force_table(Var* v);
  void force_userdata(Var* v);
  TensorSpec spec_of(const Tensor& real, const Tensor& fake);
};

}  // namespace lutra
