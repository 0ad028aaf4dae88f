// A C++ host that uses only the installed headers.
#include <cstdio>
#include <lutra.hpp>

int main() {
  lutra::State S;
  std::vector<float> data = {1, 2, 3};
  std::printf("%g\n", double(S.op("sum", {S.tensor(data.data(), {3})}).item<float>()));
}
