// A loop of frames, as a game has it, whose agents ask a net each frame and from whose play the net learns.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <lutra.hpp>

namespace {

const char kProgram[] = R"(
  local nn, optim = lt.nn, lt.optim
  lt.manual_seed(2)
  local net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 2))
  local opt = optim.AdamW(net:parameters(), {lr = 3e-3})
  think = lt.compile(function(state) return lt.no_grad(net, state) end)
  learn = lt.compile(function(state, target)
    local loss = nn.functional.mse_loss(net(state), target)
    opt:zero_grad() loss:backward() opt:step()
    return loss
  end)
  log(("net of %d parameters"):format(lt.nn.utils.parameters_to_vector(net:parameters()):numel()))
)";

constexpr int kAgents = 64, kFrames = 300;

}  // namespace

int main() try {
  lutra::State S;
  S.register_function("log", [](const std::vector<lutra::Value>& in) -> std::vector<lutra::Value> {
    std::printf("program: %s\n", in.at(0).string().c_str());
    return {};
  });
  S.run(kProgram, "=program");
  const lutra::Function think = S.function("think"), learn = S.function("learn");

  std::vector<float> state(kAgents * 3), target(kAgents * 2);  // the game's own memory
  const lutra::Tensor states = S.tensor(state.data(), {kAgents, 3}), targets = S.tensor(target.data(), {kAgents, 2});
  float loss = 0;
  double slowest = 0;
  for (int frame = 0; frame < kFrames; frame++) {
    for (int i = 0; i < kAgents; i++) {
      const float angle = 0.1f * float(i) + 0.02f * float(frame), distance = 0.5f + 0.01f * float(i % 8);
      float *s = &state[size_t(i) * 3], *t = &target[size_t(i) * 2];
      s[0] = std::cos(angle), s[1] = std::sin(angle), s[2] = distance;
      t[0] = -s[0] * distance, t[1] = -s[1] * distance;  // towards the middle
    }
    const auto start = std::chrono::steady_clock::now();
    const lutra::Tensor moves = think(states);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (frame >= 10) slowest = std::max(slowest, took.count());
    loss = learn(states, targets).item<float>();
    if (frame % 100 == 0)
      std::printf("frame %3d  loss %.4f  first move %.2f\n", frame, double(loss), double(moves.data<float>()[0]));
  }
  std::printf("loss %.5f; the slowest thought took %.0f us\n", double(loss), slowest);
  return loss < 0.01f ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
