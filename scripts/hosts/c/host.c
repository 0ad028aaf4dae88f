/* Trains a net on the host's own arrays and asks it for predictions. Lutra reads and writes them in place. */
#include <lutra.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 512, kSteps = 400 };

static const char program[] =
    "local nn, optim = lt.nn, lt.optim\n"
    "lt.manual_seed(1)\n"
    "net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))\n"
    "local opt = optim.AdamW(net:parameters(), {lr = 0.01})\n"
    "step = lt.compile(function(x, y)\n"
    "  local loss = nn.functional.mse_loss(net(x), y)\n"
    "  opt:zero_grad() loss:backward() opt:step()\n"
    "  return loss\n"
    "end)\n";

static void must(lutra_State* S, int code) {
  if (code == LUTRA_OK) return;
  fprintf(stderr, "%s\n", lutra_error(S));
  exit(1);
}

int main(void) {
  static float points[kRows][2], heights[kRows][1];
  const int64_t point_sizes[] = {kRows, 2}, height_sizes[] = {kRows, 1};
  lutra_State* S = lutra_open(NULL);
  lutra_Function *step, *net;
  lutra_Tensor *batch[2], *result;
  float loss = 0;
  int i;
  if (!S) return fprintf(stderr, "%s\n", lutra_error(NULL)), 1;
  for (i = 0; i < kRows; i++) {
    points[i][0] = 2 * (float)rand() / (float)RAND_MAX - 1, points[i][1] = 2 * (float)rand() / (float)RAND_MAX - 1;
    heights[i][0] = (float)sin(3 * points[i][0]) * points[i][1];
  }
  must(S, lutra_do_string(S, program, "=program"));
  must(S, lutra_function(S, "step", &step));
  must(S, lutra_function(S, "net", &net));
  must(S, lutra_tensor_from_memory(S, points, LUTRA_FLOAT32, 2, point_sizes, NULL, NULL, NULL, NULL, &batch[0]));
  must(S, lutra_tensor_from_memory(S, heights, LUTRA_FLOAT32, 2, height_sizes, NULL, NULL, NULL, NULL, &batch[1]));
  for (i = 0; i < kSteps; i++) {
    must(S, lutra_invoke(step, batch, 2, &result, 1));
    if (i % 100 == 0 || i == kSteps - 1) {
      must(S, lutra_tensor_copy_to(result, &loss, sizeof loss));
      printf("step %3d  loss %.4f\n", i, loss);
    }
    lutra_tensor_free(result);
  }
  must(S, lutra_invoke(net, batch, 1, &result, 1));
  printf("at (%.2f, %.2f): %.2f, the net says %.2f\n", points[0][0], points[0][1], heights[0][0],
         ((float*)lutra_tensor_data(result))[0]);
  lutra_tensor_free(result), lutra_tensor_free(batch[0]), lutra_tensor_free(batch[1]);
  lutra_function_free(step), lutra_function_free(net);
  lutra_close(S);
  return loss < 0.01 ? 0 : 1;
}
