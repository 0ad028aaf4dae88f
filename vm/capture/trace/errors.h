// Errors that the program raises and catches within the trace, by error, assert, pcall and coroutine.resume.
#pragma once
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

// An exception that carries an error to the call that catches it.
struct RaisedError {
  Var* value;
};

// Raises an error if a call of the trace catches it. Otherwise it returns, and the caller stops the trace: the original
// code raises the error. `located`: if the value is a text, it gets the place of the call.
void raise_if_caught(Trace& t, const Var* self, Var* value, bool located);

// Calls f as pcall does: returns true and its results, or false and the error.
Vars protected_call(Trace& t, Var* self, Var* handler, Var* f, Vars args);

}  // namespace lutra
