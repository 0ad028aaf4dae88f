// Additions to an error message: the name that was probably meant, the module whose forward failed.
#pragma once

struct lua_State;

namespace lutra {

void open_advice(lua_State* L);  // the module table is at the top of the stack
void advise(lua_State* L);       // call it in an error handler; replaces the message, the only value on the stack

}  // namespace lutra
