// lt._native.cuda: the functions from which stdlib/cuda.lua makes lt.cuda. A device is nil (the current one), an index,
// or a string.
#include <lua.hpp>

#include "ops/cuda/allocator.h"
#include "ops/cuda/event.h"
#include "ops/cuda/loaded_module.h"
#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"

namespace lutra {
namespace {

Device read_gpu(const char* fn, ArgReader& in, int h) {
  if (in.kind(h) == LuaKind::kNil) return {DeviceType::kCUDA, int8_t(current_cuda_index())};
  const Device device = parse_device(fn, "device", in, h);
  if (device.type != DeviceType::kCUDA) fail(fn, ": device '", to_string(device), "' is not a GPU");
  return device;
}

// Reads a device for queries about memory. These also work if no GPU was used; only a wrong index is an error.
Device read_any_device(const char* fn, ArgReader& in, int h) {
  const Device device = read_gpu(fn, in, h);
  if (cuda::is_available() && device.index >= cuda::device_count()) cuda::context(device);
  return device;
}

cuda::Context& read_context(const char* fn, ArgReader& in, int h) { return cuda::context(read_gpu(fn, in, h)); }

LuaResults is_available(const Binding&, ArgReader&) { return {cuda::is_available()}; }
LuaResults device_count(const Binding&, ArgReader&) { return {vdim(cuda::device_count())}; }

// cuda.missing() -> {driver = why, nvrtc = why}: why each is unavailable; empty if both can be used.
int missing(lua_State* L) {
  lua_createtable(L, 0, 2);
  if (!cuda::is_available()) {
    lua_pushstring(L, cuda::problem().c_str());
    lua_setfield(L, -2, "driver");
  }
  if (!cuda::has_nvrtc()) {
    lua_pushstring(L, cuda::nvrtc_problem().c_str());
    lua_setfield(L, -2, "nvrtc");
  }
  return 1;
}

LuaResults current_device(const Binding&, ArgReader&) {
  cuda::context({DeviceType::kCUDA, int8_t(current_cuda_index())});
  return {vdim(current_cuda_index())};
}

LuaResults set_device(const Binding&, ArgReader& in) {
  if (in.kind(0) == LuaKind::kNil) fail("cuda.set_device: argument 'device' is missing");
  set_current_cuda_index(read_context("cuda.set_device", in, 0).index);
  return {};
}

LuaResults device_name(const Binding&, ArgReader& in) { return {read_context("cuda.get_device_name", in, 0).name}; }

LuaResults device_capability(const Binding&, ArgReader& in) {
  const int arch = read_context("cuda.get_device_capability", in, 0).arch;
  return {vdim(arch / 10), vdim(arch % 10)};
}

LuaResults synchronize(const Binding&, ArgReader& in) {
  cuda::synchronize(read_gpu("cuda.synchronize", in, 0));
  return {};
}

LuaResults empty_cache(const Binding&, ArgReader&) {
  for (int i = 0; i < cuda::device_count(); i++) cuda::empty_cache({DeviceType::kCUDA, int8_t(i)});
  return {};
}

LuaResults mem_get_info(const Binding&, ArgReader& in) {
  read_context("cuda.mem_get_info", in, 0);
  size_t free_bytes = 0, total = 0;
  LUTRA_CUDA(memory_info(&free_bytes, &total));
  return {vdim(int64_t(free_bytes)), vdim(int64_t(total))};
}

template <int64_t cuda::MemoryStats::*kField>
LuaResults statistic(const Binding& self, ArgReader& in) {
  return {vdim(cuda::memory_stats(read_any_device(self.name.c_str(), in, 0)).*kField)};
}

LuaResults reset_peak(const Binding&, ArgReader& in) {
  cuda::reset_peak_stats(read_any_device("cuda.reset_peak_memory_stats", in, 0));
  return {};
}

LuaResults memory_summary(const Binding&, ArgReader& in) {
  return {cuda::memory_summary(read_any_device("cuda.memory_summary", in, 0))};
}

void set_number(lua_State* L, const char* name, int64_t value) {
  lua_pushnumber(L, double(value));
  lua_setfield(L, -2, name);
}

// Returns the statistics under PyTorch's names.
int memory_stats(lua_State* L) {
  LuaReader in(L);
  const cuda::MemoryStats s = cuda::memory_stats(read_any_device("cuda.memory_stats", in, 0));
  lua_createtable(L, 0, 8);
  set_number(L, "allocated_bytes.all.current", s.allocated);
  set_number(L, "allocated_bytes.all.peak", s.max_allocated);
  set_number(L, "reserved_bytes.all.current", s.reserved);
  set_number(L, "reserved_bytes.all.peak", s.max_reserved);
  set_number(L, "allocation.all.allocated", s.allocations);
  set_number(L, "segment.all.current", s.segments);
  set_number(L, "num_alloc_retries", s.retries);
  set_number(L, "num_ooms", s.out_of_memory);
  return 1;
}

int device_properties(lua_State* L) {
  LuaReader in(L);
  const cuda::Context& c = read_context("cuda.get_device_properties", in, 0);
  lua_createtable(L, 0, 6);
  lua_pushlstring(L, c.name.data(), c.name.size());
  lua_setfield(L, -2, "name");
  set_number(L, "major", c.arch / 10);
  set_number(L, "minor", c.arch % 10);
  set_number(L, "total_memory", int64_t(c.total_bytes));
  set_number(L, "multi_processor_count", c.multiprocessors);
  set_number(L, "shared_memory_per_block_optin", c.shared_bytes);
  return 1;
}

// -- events: userdata that hold a cuda::Event

const char kEventKey = 0;

int drop_event(lua_State* L) {
  auto* slot = static_cast<cuda::Event**>(lua_touserdata(L, 1));
  delete *slot;
  *slot = nullptr;
  return 0;
}

cuda::Event& event_at(lua_State* L, const char* fn, int idx) {
  bool is_event = false;
  if (lua_type(L, idx) == LUA_TUSERDATA && lua_getmetatable(L, idx)) {
    lua_pushlightuserdata(L, const_cast<char*>(&kEventKey));
    lua_rawget(L, LUA_REGISTRYINDEX);
    is_event = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (!is_event) fail("cuda.Event.", fn, ": expects an event, got ", luaL_typename(L, idx));
  return **static_cast<cuda::Event**>(lua_touserdata(L, idx));
}

// (device, timing)
int make_event(lua_State* L) {
  LuaReader in(L);
  const Device device = read_gpu("cuda.Event", in, 0);
  auto event = std::make_unique<cuda::Event>(device, lua_toboolean(L, 2));
  auto** slot = static_cast<cuda::Event**>(lua_newuserdata(L, sizeof(cuda::Event*)));
  *slot = nullptr;
  lua_pushlightuserdata(L, const_cast<char*>(&kEventKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, drop_event);
    lua_setfield(L, -2, "__gc");
    lua_pushlightuserdata(L, const_cast<char*>(&kEventKey));
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_setmetatable(L, -2);
  *slot = event.release();
  return 1;
}

int record_event(lua_State* L) {
  event_at(L, "record", 1).record();
  return 0;
}

int wait_event(lua_State* L) {
  event_at(L, "synchronize", 1).synchronize();
  return 0;
}

int query_event(lua_State* L) {
  lua_pushboolean(L, event_at(L, "query", 1).passed());
  return 1;
}

// Returns the milliseconds between two events.
int event_elapsed(lua_State* L) {
  cuda::Event &start = event_at(L, "elapsed_time", 1), &end = event_at(L, "elapsed_time", 2);
  if (!start.timing() || !end.timing()) {
    fail("cuda.Event.elapsed_time: both events must be made with {enable_timing = true}");
  }
  if (!start.recorded() || !end.recorded()) {
    fail("cuda.Event.elapsed_time: both events must be recorded before their times are compared");
  }
  if (start.device() != end.device()) {
    fail("cuda.Event.elapsed_time: the events are on ", to_string(start.device()), " and ", to_string(end.device()));
  }
  lua_pushnumber(L, double(start.elapsed_ms(end)));
  return 1;
}

using Stats = cuda::MemoryStats;

const Special kCudaSpecials[] = {
    {"cuda.is_available", 0, is_available, nullptr},
    {"cuda.device_count", 0, device_count, nullptr},
    {"cuda.missing", kHostEffect, nullptr, missing},
    {"cuda.current_device", kHostEffect, current_device, nullptr},
    {"cuda.set_device", kHostEffect, set_device, nullptr},
    {"cuda.get_device_name", kHostEffect, device_name, nullptr},
    {"cuda.get_device_capability", kHostEffect, device_capability, nullptr},
    {"cuda.get_device_properties", kHostEffect, nullptr, device_properties},
    {"cuda.synchronize", kHostEffect, synchronize, nullptr},
    {"cuda.empty_cache", kHostEffect, empty_cache, nullptr},
    {"cuda.mem_get_info", kHostEffect, mem_get_info, nullptr},
    {"cuda.memory_allocated", kHostEffect, statistic<&Stats::allocated>, nullptr},
    {"cuda.max_memory_allocated", kHostEffect, statistic<&Stats::max_allocated>, nullptr},
    {"cuda.memory_reserved", kHostEffect, statistic<&Stats::reserved>, nullptr},
    {"cuda.max_memory_reserved", kHostEffect, statistic<&Stats::max_reserved>, nullptr},
    {"cuda.reset_peak_memory_stats", kHostEffect, reset_peak, nullptr},
    {"cuda.memory_summary", kHostEffect, memory_summary, nullptr},
    {"cuda.memory_stats", kHostEffect, nullptr, memory_stats},
    {"cuda.Event", kHostEffect, nullptr, make_event},
    {"cuda.event_record", kHostEffect, nullptr, record_event},
    {"cuda.event_synchronize", kHostEffect, nullptr, wait_event},
    {"cuda.event_query", kHostEffect, nullptr, query_event},
    {"cuda.event_elapsed", kHostEffect, nullptr, event_elapsed},
};

}  // namespace

std::span<const Special> cuda_specials() { return kCudaSpecials; }

}  // namespace lutra
