// Where the lines of LUTRA_LOGS go that come from one state.
#pragma once
#include <cstddef>

struct lua_State;

namespace lutra {

using LogWriter = void (*)(void* arg, const char* text, size_t length);
// Instead of standard error.
void set_log_writer(lua_State* L, LogWriter writer, void* arg);

}  // namespace lutra
