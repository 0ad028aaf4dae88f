// Loaded chunks in, the same functions out, with frames for their tail calls.
#pragma once

struct lua_State;

namespace lutra {

// LUTRA_TAILCALLS is not "keep".
bool keeps_frames();

// Replaces the Lua function at the top of the stack, just loaded from source, by one whose tail calls keep their
// frames.
void keep_frames(lua_State* L);

// Makes load, loadstring, loadfile, dofile and the searcher of require do so, and watches for deep stacks. Only for a
// state that Lutra has opened: it wraps the state's allocator for the rest of its life.
void install_loader(lua_State* L);

// The state is about to close: its allocator is its own again. LuaJIT gives back the memory of a state as a whole only
// where it knows the allocator.
void remove_loader(lua_State* L);

}  // namespace lutra
