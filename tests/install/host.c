/* A host that knows only the installed header. */
#include <lutra.h>
#include <stdio.h>

int main(void) {
  lutra_State* S = lutra_open(NULL);
  if (!S) return fputs(lutra_error(NULL), stderr), 1;
  if (lutra_abi() != LUTRA_ABI) return 2;
  if (lutra_do_string(S, "print(lt.ones(2, 2):sum():item())", "=host")) return fputs(lutra_error(S), stderr), 3;
  lutra_close(S);
  return 0;
}
