// Hot frames that are never called again, because they loop. The loop from which most of their ops come gets a point at
// its head, and the frame continues in the bytecode that has it.
#include "vm/capture/dispatch/enter.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/capture/dispatch/compiled.h"
#include "vm/capture/dispatch/state.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

// Returns the pc in the original code of the instruction at `at` in the code that a frame runs. Returns 0 if that code
// is not the compiled prototype's (a stub, whose copy of it lies elsewhere) or is older than its newest.
bc::Pc original_pc(const CompiledProto& compiled, bool is_original, uint64_t version, bc::Pc at) {
  if (is_original) return at;
  if (version != compiled.version || !compiled.patched) return 0;
  const auto& moved = compiled.patched->moved;
  const auto found = std::find(moved.begin(), moved.end(), at);
  return found == moved.end() ? 0 : bc::Pc(found - moved.begin());
}

// Returns the innermost loop from which three quarters of the calls came.
const bc::Loop* busiest_loop(const std::vector<bc::Loop>& loops, const Places& places) {
  const bc::Loop* busiest = nullptr;
  for (const bc::Loop& l : loops) {
    const auto n = std::count_if(places.begin(), places.end(), [&](bc::Pc pc) { return l.contains(pc); });
    if (size_t(n) * 4 >= places.size() * 3) busiest = &l;
  }
  return busiest;
}

// Returns whether loop n of the code is an ITERC in the prototype; null: in one that has not run.
bool calls_iterator(lua_State* L, const CompiledProto& compiled, const mirror::Proto* p, size_t n) {
  const bc::Loop& l = compiled.code->loops()[n];
  if (!p) return l.kind == bc::Loop::Kind::kIterC;
  const auto places = compiled.iterators.find(version_of(L, p));
  return bc::op(p->bytecode()[places == compiled.iterators.end() ? l.iter : places->second[n]]) == bc::Op::ITERC;
}

// Makes the function at `index` run the compiled prototype's newest bytecode from now on, and follow it.
bool run_newest(CaptureState& state, lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int index) {
  refresh(state, L, compiled);
  follow(L, *compiled, index);
  push_clone(state, L, compiled, index, false);
  const bool done = redirect(L, index, lua_gettop(L)).empty();
  lua_pop(L, 1);
  if (done) remember_compiled(L, index, *compiled);
  return done;
}

}  // namespace

bool iterates_alike(lua_State* L, const CompiledProto& compiled, bc::Pc pc, const mirror::Proto* from,
                    const mirror::Proto* to) {
  const std::vector<bc::Loop>& loops = compiled.code->loops();
  for (size_t n = 0; n < loops.size(); n++) {
    if (!loops[n].iter || !loops[n].contains(pc)) continue;
    if (calls_iterator(L, compiled, from, n) != calls_iterator(L, compiled, to, n)) return false;
  }
  return true;
}

bool enter_loop(CaptureState& state, lua_State* L, const mirror::LuaFrame& frame, const Places& places) {
  if (!frame.called) return false;
  mirror::push_object(L, mirror::kFunc, frame.function);
  push_function_of_frame(L, lua_gettop(L));
  const int function = lua_gettop(L);
  if (is_resumed(L, function)) return false;
  const mirror::Proto* runs = mirror::proto_of(frame.function);
  const mirror::Proto* original = original_proto(L, function);
  const std::shared_ptr<CompiledProto> own = compiled_proto(L, function);
  if (runs != original && !own) return false;
  const std::shared_ptr<CompiledProto> compiled = find_proto(state, L, function, CaptureOptions(), 0);
  if (!compiled || compiled->failed || (own && own != compiled)) return false;
  const uint64_t version = version_of(L, runs);
  const auto place = [&](bc::Pc at) { return original_pc(*compiled, runs == original, version, at); };
  const bc::Pc pc = place(bc::Pc(frame.called - runs->bytecode()));
  Places found;
  std::transform(places.begin(), places.end(), found.begin(), place);
  const LuaCode& code = *compiled->code;
  const bc::Loop* loop = busiest_loop(code.loops(), found);
  if (pc == 0 || !loop) return false;
  const auto known = compiled->points.find(loop->first_body);
  const bool has_point = known != compiled->points.end();  // the frame of another closure was entered
  if (has_point && (runs != original || known->second.dead)) return false;
  if (!iterates_alike(L, *compiled, pc, runs, nullptr)) return false;
  KeptLoops kept;
  for (const bc::Loop& l : code.loops()) {
    if (&l == loop || compiled->points.count(l.first_body)) kept.insert({&code.proto(), l.head});
  }
  if (!compiled->patched && compiled->log->empty()) compiled->automatic = true;
  if (!has_point) add_point(*compiled, loop->first_body, kept, {loop->first_body, loop->end});
  const auto point = compiled->points.find(loop->first_body);
  if (point == compiled->points.end()) return false;
  note_variables(point->second, code);
  return run_newest(state, L, compiled, function) && move_frame(L, frame, function, compiled->patched->moved[pc]);
}

}  // namespace lutra
