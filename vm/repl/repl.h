// The read-evaluate-print loop of the executable.
#pragma once

struct lutra_State;

namespace lutra {

// Reads standard input until it ends; errors are printed and the session goes on. Returns the exit status.
int run_repl(lutra_State* S);

}  // namespace lutra
