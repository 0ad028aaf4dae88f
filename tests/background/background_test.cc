// Tests background jobs: they run once, and can be waited for, dropped and stopped. Also tests compilations as jobs.
#include "jit/background/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "jit/autograd/eventual.h"
#include "jit/compile_later.h"
#include "jit/graph/env_copy.h"
#include "jit/runtime/config.h"
#include "ops/core/interrupt.h"
#include "ops/core/settings.h"
#include "tests/golden.h"

namespace lutra {
namespace {

using std::chrono::milliseconds;

void await(Job& job) {
  while (!job.wait(milliseconds(10))) continue;
}
void await(CompileLater& work) {
  while (!work.wait(milliseconds(10))) continue;
}

}  // namespace

TEST_CASE("jobs of the background run once; who asks for one that failed runs it again", "[background]") {
  std::atomic<int> runs{0};
  std::atomic<bool> short_of_memory{true};
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 50; i++) {
    jobs.push_back(Job::start([&, i] {
      runs++;
      if (i % 2 && short_of_memory) fail("job ", i);
    }));
  }
  CHECK_THROWS_WITH(jobs[49]->finish(), "job 49");  // not in their order
  for (size_t i = 0; i < jobs.size(); i++) {
    if (i % 2 == 0) {
      jobs[i]->finish();
      CHECK(jobs[i]->done());
    } else {
      CHECK_THROWS_AS(jobs[i]->finish(), Error);
      CHECK_THROWS_AS(jobs[i]->done(), Error);
    }
  }
  short_of_memory = false;
  const int before = runs;
  for (const auto& job : jobs) CHECK(job->done());
  for (const auto& job : jobs) job->finish();
  CHECK(runs == before + 25);
}

// A job that still runs for a while, started by a thread that has ended.
void begin_last_job() {
  static std::atomic<bool> begun{false};
  std::thread([] {
    Job::start([] {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      (void)!write(1, "the job ended\n", 14);
    });
  }).join();
  while (!begun) std::this_thread::yield();
}

// A later case runs this one in a process: it exits while its first job runs, on a thread that has started no job.
TEST_CASE("exits beside a job", "[.]") {
  begin_last_job();
  std::exit(0);
}

// An object that is destroyed at exit, like a library's static object.
struct Late {
  ~Late() { (void)!write(1, "the object went\n", 16); }
};

// The same long after the first jobs: the last but one makes an object that the last one uses.
TEST_CASE("exits beside a late job", "[.]") {
  std::thread([&] {
    for (int i = 0; i < 600; i++) await(*Job::start([] {}));
    await(*Job::start([] {
      const MakesObjects scope;
      static Late late;
    }));
  }).join();
  begin_last_job();
  std::thread([] { std::exit(0); }).join();
}

std::string output_of(const std::string& test) {
  FILE* child =
      popen(("exec " + std::filesystem::read_symlink("/proc/self/exe").string() + " '" + test + "' 2>&1").c_str(), "r");
  REQUIRE(child);
  std::string out;
  for (int c; (c = fgetc(child)) != EOF;) out += char(c);
  CHECK(pclose(child) == 0);
  INFO(out);
  CHECK(out.find("the job ended") != std::string::npos);
  return out;
}

TEST_CASE("a job that runs is waited for when the process exits, whichever thread does it", "[background]") {
  output_of("exits beside a job");
}

TEST_CASE("a job that runs is waited for before an object goes that a late job made", "[background]") {
  const std::string out = output_of("exits beside a late job");
  CHECK(out.find("the job ended") < out.find("the object went"));
  CHECK(out.find("the object went") != std::string::npos);
}

TEST_CASE("a polite job leaves the processor to others", "[background]") {
  int nice = 0;
  bool background = false;
  const auto job = Job::start(
      [&] {
        nice = getpriority(PRIO_PROCESS, id_t(gettid()));
        background = in_background();
      },
      Job::kPolite);
  await(*job);
  CHECK(job->done());
  CHECK(nice > getpriority(PRIO_PROCESS, id_t(gettid())));
  CHECK(background);
  CHECK_FALSE(in_background());
}

TEST_CASE("a dropped job never begins, or has ended", "[background]") {
  std::atomic<bool> begun{false}, go{false}, ended{false};
  std::atomic<int> runs{0};
  const auto first = Job::start(
      [&] {
        begun = true;
        while (!go) std::this_thread::yield();
        std::this_thread::sleep_for(milliseconds(20));
        ended = true;
      },
      Job::kPolite);
  while (!begun) std::this_thread::yield();
  std::vector<std::shared_ptr<Job>> others;
  for (int i = 0; i < 8; i++) others.push_back(Job::start([&] { runs++; }, Job::kPolite));
  CHECK_FALSE(first->wait(milliseconds(1)));
  for (const auto& job : others) job->drop();
  const int before = runs;  // more than one thread may work
  go = true;
  first->drop();
  CHECK(ended);
  await(*Job::start([] {}, Job::kPolite));
  CHECK(runs == before);
}

TEST_CASE("in the background, wishes to stop are those of the job alone", "[background]") {
  std::atomic<bool> wish{false};
  interrupt_wanted = true;
  {
    const BackgroundStop scope(wish);
    CHECK_NOTHROW(check_stop());
    CHECK_NOTHROW(check_stop());
    CHECK(interrupt_wanted);
    wish = true;
    CHECK_THROWS_AS(check_stop(), Error);
    CHECK_THROWS_AS(check_stop(), Error);
  }
  CHECK_THROWS_WITH(check_stop(), "interrupted!");
  CHECK_NOTHROW(check_stop());
}

TEST_CASE("work that is done later has the settings and modes of its beginning", "[background]") {
  const std::string saved = settings().isa;
  settings().isa = "interp";
  set_grad_enabled(false);
  std::atomic<bool> go{false};
  std::string isa;
  bool grad = true;
  CompileLater work([&] {
    while (!go) std::this_thread::yield();
    isa = current_isa(), grad = grad_enabled();
    settings().isa = "avx2";  // its own
    default_generator().next_call += 100;
  });
  settings().isa = saved;
  set_grad_enabled(true);
  const uint64_t calls = default_generator().next_call;
  go = true;
  await(work);
  CHECK_NOTHROW(work.check());
  CHECK(isa == "interp");
  CHECK_FALSE(grad);
  CHECK(settings().isa == saved);
  CHECK(default_generator().next_call == calls);
}

TEST_CASE("work that nobody wants any more is stopped; what it throws is told", "[background]") {
  std::atomic<bool> begun{false}, stopped{false};
  {
    CompileLater work([&] {
      begun = true;
      try {
        while (true) check_stop();
      } catch (const Error&) {
        stopped = true;
        throw;
      }
    });
    while (!begun) std::this_thread::yield();
  }
  CHECK(stopped);
  CompileLater wrong([] { fail("not like this"); });
  await(wrong);
  CHECK(wrong.done());
  CHECK_THROWS_WITH(wrong.check(), "not like this");
}

TEST_CASE("the copy of an env has its ids, and is asked alone", "[background]") {
  SymEnv env;
  env.assume_sizes({2, 1 << 20});
  const int32_t a = env.leaf(SymOp::kSize, 0, 0, 6), b = env.leaf(SymOp::kSize, 1, 0, 4);
  const int32_t s = env.leaf(SymOp::kScalarInput, 0, 0, 0, 0.5);
  const int32_t sum = env.make(SymOp::kAdd, env.make(SymOp::kMul, b, env.make(SymOp::kMul, a, b)), env.constant(3));
  const int32_t number = env.make(SymOp::kNMul, env.make(SymOp::kToNum, sum), env.make(SymOp::kNExp, s));
  env.make(SymOp::kFloorDiv, sum, env.constant(2));
  CHECK(env.ask(SymCmp::kLt, b, a));
  const auto copy = copy_of(env);
  REQUIRE(copy->size() == env.size());
  for (int32_t id = 1; id < int32_t(env.size()); id++) CHECK(copy->print(id) == env.print(id));
  CHECK(copy->guards().size() == env.guards().size());
  CHECK((*copy)[number].d == env[number].d);
  const size_t guards = env.guards().size(), size = env.size();
  CHECK(copy->ask(SymCmp::kEq, sum, copy->constant(99)));
  copy->make(SymOp::kAdd, sum, a);
  CHECK(env.guards().size() == guards);
  CHECK(env.size() == size);
}

TEST_CASE("a graph runs before it is compiled and after, to the same bits", "[background]") {
  const auto graph = [] {
    return parse_graph(R"(graph {
  sym size(0, 0) = 3
  %0 = input 'x' : f32[size(0, 0), 4] strides [4, 1]
  %1 = exp(%0) : f32[size(0, 0), 4] strides [4, 1]
  %2 = sum(%1, {1}, true, None) : f32[size(0, 0), 1] strides [1, 1]
  %3 = mul(%1, %2) : f32[size(0, 0), 4] strides [4, 1]
  return %3
}
)");
  };
  const Tensor x = make_tensor({3, 4}, DType::kFloat32);
  for (int i = 0; i < 12; i++) x->data_as<float>()[i] = float(i) * 0.37f - 2;
  CompileOptions options;
  EventuallyCompiled now(graph(), options);
  options.background = true;
  EventuallyCompiled later(graph(), options);
  const Tensor want = now.run({x}, {})[0].tensor();
  for (int round = 0; round < 50; round++) {
    if (round == 25) {
      while (!later.wait(milliseconds(10))) continue;
    }
    const Tensor got = later.run({x}, {})[0].tensor();
    REQUIRE(std::memcmp(got->data(), want->data(), 48) == 0);
  }
}

TEST_CASE("an env for other sizes has their hints, and none where an answer differs", "[background]") {
  SymEnv env;
  const int32_t a = env.leaf(SymOp::kSize, 0, 0, 6);
  const int32_t part = env.make(SymOp::kFloorDiv, env.constant(12), a);
  CHECK(env.ask(SymCmp::kLt, a, env.constant(8)));
  const auto sized = [&](int64_t n) {
    return copy_for(env, [n](SymExpr e) {
      if (e.op == SymOp::kSize) e.i = n;
      return e;
    });
  };
  REQUIRE(sized(4));
  CHECK((*sized(4))[part].i == 3);
  CHECK(env[part].i == 2);
  CHECK(!sized(9));
}

TEST_CASE("a graph that is compiled late is compiled again for sizes that were told apart", "[background]") {
  const auto graph = [] {
    return parse_graph(R"(graph {
  sym size(0, 2) = 7 in 2 to 1000
  %0 = input 'x' : f32[1, 4, size(0, 2)] strides [mul(size(0, 2), 4), size(0, 2), 1]
  %1 = input 'g' : f32[1, 4, 1, floordiv(size(0, 2), 2)] strides [0, 0, 0, 0]
  %2 = unsqueeze(%0, 2) : f32[1, 4, 1, size(0, 2)] strides [mul(size(0, 2), 4), size(0, 2), size(0, 2), 1]
  %3 = pool_tap(%2, {1, floordiv(size(0, 2), 2)}, {1, 2}, {1, 2}, {0, 0}, {1, 1})
      : i32[1, 4, 1, floordiv(size(0, 2), 2)]
      strides [mul(floordiv(size(0, 2), 2), 4), floordiv(size(0, 2), 2), floordiv(size(0, 2), 2), 1]
  %4 = pool_put(%1, {1, size(0, 2)}, {1, 2}, {1, 2}, {0, 0}, {1, 1}, %3) : f32[1, 4, 1, size(0, 2)]
      strides [mul(size(0, 2), 4), size(0, 2), size(0, 2), 1]
  return %4
}
)");
  };
  const auto x = [](int64_t n) {
    const Tensor t = make_tensor({1, 4, n}, DType::kFloat32);
    for (int64_t i = 0; i < 4 * n; i++) t->data_as<float>()[i] = float(i * 7 % 11);
    return t;
  };
  const auto g = [](int64_t n) {
    const Tensor one = make_tensor({1}, DType::kFloat32);
    *one->data_as<float>() = 0.5f;
    return alias(one, {1, 4, 1, n / 2}, {0, 0, 0, 0}, 0);
  };
  for (const bool background : {false, true}) {
    CompileOptions options;
    options.background = background;
    EventuallyCompiled e(graph(), options);
    const auto run = [&](int64_t n) {
      while (!e.wait(milliseconds(10))) continue;
      const std::vector<Tensor> inputs = {x(n), g(n)};
      const Tensor got = e.run(inputs, {})[0].tensor(), want = interpret(*graph(), inputs, {})[0].tensor();
      REQUIRE(std::memcmp(got->data(), want->data(), size_t(16 * n)) == 0);
      return e.versions();
    };
    CHECK(run(7) == 1);
    CHECK(run(9) == 1);
    CHECK(run(6) == 1);  // may never come again
    CHECK(run(8) == 2);
    for (const int64_t n : {6, 12, 7, 11, 20, 21}) CHECK(run(n) == 2);
  }
}

}  // namespace lutra
