// Rewrites loaded chunks so that their tail calls keep the callers' frames.
#pragma once

struct lua_State;

namespace lutra {

// Returns whether tail calls keep their frames: true unless LUTRA_TAILCALLS is "keep".
bool keeps_frames();

// Replaces the Lua function at the top of the stack, just loaded from source, by one whose tail calls keep their
// frames.
void keep_frames(lua_State* L);

// Makes load, loadstring, loadfile, dofile and the searcher of require call keep_frames, and watches for deep stacks.
// Only for a state that Lutra has opened, since it wraps the state's allocator for the rest of its life.
void install_loader(lua_State* L);

// Restores the state's own allocator. Call it before the state closes: LuaJIT frees a state's memory as a whole only
// with an allocator that it knows.
void remove_loader(lua_State* L);

}  // namespace lutra
