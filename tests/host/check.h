/* What tests of hosts share: checks that are counted. */
#ifndef LUTRA_TESTS_HOST_CHECK_H
#define LUTRA_TESTS_HOST_CHECK_H

#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check(int ok, const char* what) {
  if (!ok) {
    ++failures;
    fprintf(stderr, "FAILED %s\n", what);
  }
}

#endif
