// The destination of one state's LUTRA_LOGS lines.
#pragma once
#include <cstddef>

struct lua_State;

namespace lutra {

using LogWriter = void (*)(void* arg, const char* text, size_t length);
// Sends the state's log lines to writer instead of standard error.
void set_log_writer(lua_State* L, LogWriter writer, void* arg);

}  // namespace lutra
