-- Tests errors at run time: compiled code raises eager's errors with the same text at the same line, for values that an
-- op cannot take, used or not, and for writes to memory that is read at the same time.
local h = require "harness"
local lt = require "lutra"
local F = lt.nn.functional
local test, equal, truthy = h.test, h.equal, h.truthy

local function ids(...) return lt.tensor({...}, {dtype = "int64"}) end

-- Compares results and effects, or errors, of bad calls of f. Calls that f accepts come before them.
local function same(make, f, bad)
  local compiled, outcomes = lt.compile(f), {}
  for _, run in ipairs {f, compiled} do
    for _ = 1, run == compiled and 2 or 1 do truthy(pcall(run, make(false))) end
    local arguments = {make(true)}
    local ok, message = pcall(run, unpack(arguments))
    equal(ok, not bad)
    outcomes[#outcomes + 1] = tostring(message) .. "\n" .. tostring(arguments[1])
  end
  equal(outcomes[2], outcomes[1])
  lt.reset()
end

-- x, indices, divisors, logits: good ones or bad ones.
local function arguments(bad)
  return lt.ones(4), lt.arange(12):to("float32"):view(4, 3), bad and ids(0, 1, 4, 2) or ids(0, 1, 3, 2), bad
    and ids(1, 0, 2, 3) or ids(1, -2, 3, 2),
    bad and lt.tensor {0.5, -1, 0, 1} or lt.tensor {0.5, 1, 0.25, 1}, ids(7, 8, 9, 10)
end

local failing = {
  index = function(_, t, i) return t[i] end,
  ["index of two"] = function(_, t, i) return t[{i, i:clamp(0, 2)}] end,
  index_select = function(_, t, i) return t:index_select(0, i) end,
  gather = function(_, t, i) return t:gather(0, i:view(4, 1)) end,
  take_along_dim = function(_, t, i) return t:take_along_dim(i:view(4, 1), 0) end,
  take = function(x, _, i) return x:take(i) end,
  embedding = function(_, t, i) return F.embedding(i, t) end,
  one_hot = function(_, _, i) return F.one_hot(i, 4) end,
  cross_entropy = function(_, _, i) return F.cross_entropy(lt.ones(4, 4), i) end,
  nll_loss = function(_, _, i) return F.nll_loss(lt.ones(4, 4), i) end,
  scatter = function(x, _, i) return lt.zeros(4):scatter(0, i, x) end,
  ["scatter of a number"] = function(_, _, i) return lt.zeros(4):scatter(0, i, 2) end,
  scatter_add = function(x, _, i) return lt.zeros(4):scatter_add(0, i, x) end,
  scatter_reduce = function(x, _, i) return lt.zeros(4):scatter_reduce(0, i, x, "amax") end,
  index_add = function(x, _, i) return lt.zeros(4):index_add(0, i, x) end,
  index_copy = function(x, _, i) return lt.zeros(4):index_copy(0, i, x) end,
  index_fill = function(_, _, i) return lt.zeros(4):index_fill(0, i, 2) end,
  index_reduce = function(x, _, i) return lt.ones(4):index_reduce(0, i, x, "prod") end,
  index_put = function(x, _, i) return lt.zeros(4):index_put({i}, x) end,
  put = function(x, _, i) return lt.zeros(4):put(i, x) end,
  remainder = function(_, _, _, d, _, n) return n % d end,
  floor_divide = function(_, _, _, d, _, n) return n:floor_divide(d) end,
  fmod = function(_, _, _, d, _, n) return n:fmod(d) end,
  ["div that rounds"] = function(_, _, _, d, _, n) return n:div(d, {rounding_mode = "floor"}) end,
  bernoulli = function(_, _, _, _, p) return lt.bernoulli(p) end,
  multinomial = function(_, _, _, _, p) return lt.multinomial(p, 2, {replacement = true}) end,
  masked_scatter = function(x, _, i) return lt.zeros(4):masked_scatter(i:lt(4), x[{{0, 4}}] * 1) end,
  binary_cross_entropy = function(_, _, _, _, p) return F.binary_cross_entropy(p, lt.ones(4)) end,
}
local harmless = {masked_scatter = true}

for name, op in pairs(failing) do
  local bad = not harmless[name]
  test(name .. " fails though nobody wants its result", function()
    same(arguments, function(x, ...) x:add_(1) local _ = op(x, ...) return x * 2 end, bad)
  end)
  test(name .. " fails as an operand", function()
    same(arguments, function(x, ...) x:add_(1) return op(x, ...):sum() * 0 + x end, bad)
  end)
  test(name .. " fails before a later write", function()
    same(arguments, function(x, ...) local _ = op(x, ...) * 2 x:mul_(3) return x end, bad)
  end)
end

-- m is 4 x 4; whether the call is refused.
local overlapping = {
  {function(m) m:add_(m:t()) end, true}, {function(m) m:copy_(m:t()) end, true},
    {function(m) m["1:"]:add_(m[":3"]) end, true},
  {function(m) m:add_(m[0]) end, true}, {function(m) m:add_(m[0][0]) end, true},
    {function(m) m:lerp_(m:t(), 0.5) end, true},
  {function(m) m:addcmul_(m:t(), m) end, true}, {function(m) m[":"] = m:t() end, true},
    {function(m) m:clamp_min_(m:t()) end, true},
  {function(m) m:index_copy_(0, ids(0, 1, 2, 3), m) end, true},
    {function(m) m:index_add_(0, ids(3, 2), m["0:2"]) end, true},
  {function(m) m:scatter_(0, ids(0, 1, 2, 3):view(1, 4), m) end, true}, {function(m) m[ids(3, 2, 1, 0)] = m end, true},
  {function(m) m:add_(m) end, false}, {function(m) m:addcmul_(m, m) end, false},
    {function(m) m["0:2"]:add_(m["2:"]) end, false},
  {function(m) m[0] = m[1] end, false}, {function(m) m[{":", {0, 2}}]:add_(m[{":", {2, 4}}]) end, false},
  {function(m) m:add_(m[{":", {0, 1}}]) end, false}, {function(m) m:mul_(m:diagonal()) end, false},
  {function(m) m:masked_fill_(m:gt(1), m[0][1]) end, false}, {function(m) m[m:gt(3)] = m[0][1] end, false},
  {function(m) m:index_fill_(0, ids(1), m[0][1]) end, false}, {function(m) m:masked_scatter_(m:gt(8), m) end, false},
  {function(m) m:addmm_(m, m) end, false}, {function(m) m[0]:addmv_(m, m[1]) end, false},
}

for i, case in ipairs(overlapping) do
  local write, refused = case[1], case[2]
  for _, grad in ipairs {false, true} do
    test("overlap " .. i .. (grad and " with history" or ""), function()
      local outcomes, compiled = {}, lt.compile(function(m) write(m) return m end, {dynamic = true})
      for _, run in ipairs {function(m) write(m) return m end, compiled, compiled} do
        local m = lt.arange(16):to("float32"):view(4, 4):clone():requires_grad_(grad)
        local x = grad and m * 1 or m
        local ok, message = pcall(run, x)
        equal(ok, not refused, tostring(message))
        if refused then truthy(message:find("share some memory; clone() one of them", 1, true), message) end
        outcomes[#outcomes + 1] = tostring(refused and message or "") .. tostring(x:detach())
          .. tostring(x.requires_grad)
      end
      equal(outcomes[2], outcomes[1])
      equal(outcomes[3], outcomes[1])
      lt.reset()
    end)
  end
end

test("two arguments that share memory", function()
  local function f(a, b) a:add_(b) return a * 2 end
  local compiled = lt.compile(f)
  for _ = 1, 2 do truthy(compiled(lt.ones(3, 3), lt.ones(3, 3)):equal(lt.full({3, 3}, 4))) end
  local m = lt.rand(3, 3)
  local _, want = pcall(f, m, m:t())
  local _, got = pcall(compiled, m, m:t())
  equal(got, want)
  truthy(want:find("share some memory", 1, true))
  for n = 3, 5 do
    local x = lt.rand(n, n)
    h.raises("share some memory", compiled, x, x:t())
    h.raises("share some memory", lt.compile(function(x) x:mul_(x:t()) return x end, {dynamic = true}), x)
  end
end)

-- The graph of these backends runs op by op: what it wrote before an op failed is undone, as the original code runs.
test("a write before an op that fails happens once, whatever runs the graph", function()
  local function programs(wrap)
    local m, w = lt.ones(4), lt.ones(4)
    local seen = {}
    local function see(f, ...)
      local ok, message = pcall(f, ...)
      seen[#seen + 1] = ("%s %s %s"):format(ok, ok and h.text(message) or tostring(message):gsub("^.-:%d+: ", ""),
        h.text {m, w})
    end
    local index = wrap(function(x, at)
      m:mul_(2)
      m["1:3"]:add_(1)
      w:add_(m)
      w["0:2"]:mul_(3)
      w["1:4"]:sub_(m["1:4"])
      return x:index_select(0, at)
    end)
    local mask = wrap(function(x)
      m:add_(1)
      local y = x[x:gt(0)] * 2
      w:mul_(m)
      return y, y.shape[1]
    end)
    local divide = wrap(function(n, by)
      n:add_(1)
      return n / 2, lt.div(n, by, {rounding_mode = "floor"})
    end)
    local counts = lt.arange(3)
    for _, at in ipairs {{0, 1}, {9, 1}, {2, 0}, {-9}} do see(index, lt.arange(4), lt.tensor(at)) end
    for _, x in ipairs {{1, 2, 3}, {-1, 2, -3}, {-1, -1, -1}, {5, 4, -1}} do see(mask, lt.tensor(x)) end
    for _, by in ipairs {2, 0, 3} do see(divide, counts, lt.tensor {by, 1, 1}) end
    seen[#seen + 1] = h.text(counts)
    return table.concat(seen, "\n")
  end
  local want = programs(function(f) return f end)
  for _, backend in ipairs {"native", "eager", "aot_eager", function() end} do
    lt.reset()
    equal(programs(function(f) return lt.compile(f, {backend = backend}) end), want, tostring(backend))
  end
end)

test("a write of a row before an op that may fail costs the row", function()
  local w, x = lt.randn(8, 1024), lt.randn(1, 1024)
  -- The least time of a step that writes a row of a memory of n rows.
  local function time(n, backend)
    local cache, best = lt.zeros(n, 1024), math.huge
    local f = lt.compile(function(x)
      cache:narrow(0, 3, 1):copy_(x)
      return lt.nn.functional.linear(x, w)
    end, {backend = backend})
    for _ = 1, 7 do
      local start = lt.perf_counter()
      for _ = 1, 20 do f(x) end
      best = math.min(best, lt.perf_counter() - start)
    end
    return best
  end
  for _, backend in ipairs {"eager", "native"} do
    local one, many = time(8, backend), time(4096, backend)
    h.truthy(many < 20 * one, ("%s: %g s, of eight rows %g s"):format(backend, many, one))
  end
end)

test("what fails after a write of a row leaves what eager code leaves", function()
  local table_of = lt.arange(8):view(4, 2):float()
  local programs = {
    function(cache, x, at) cache[1] = x return table_of:index_select(0, at) end,
    function(cache, x, at) cache[1] = x cache["2:4"]:copy_(x * 2) return cache:sum(0) + table_of[at] end,
    function(cache, x, at)  -- reads what it writes then
      local before = cache:sum(0)
      cache[1] = x + before
      return table_of:index_select(0, at) + before
    end,
    function(cache, x, at) cache[1] = cache[2] + x return table_of:index_select(0, at) end,
    function(cache, x, at) cache[1]:add_(x) return table_of:index_select(0, at) end,
    function(cache, x, at) cache[1] = table_of:index_select(0, at)[0] cache[0] = x return cache * 2 end,
    function(cache, x, at) cache[1] = x x:mul_(2) cache[2] = x return table_of:index_select(0, at) end,
    function(cache, x, at) cache:t()[0] = x:sum() return table_of:index_select(0, at), cache + 1 end,
    function(cache, x, at) cache[1] = lt.rand(2) + x return table_of:index_select(0, at) end,
    function(cache, x, at)  -- writes what was made before the op that fails
      local made = lt.slice_scatter(cache, x:view(1, 2), 0, 1, 2)
      local y = table_of:index_select(0, at)
      cache:copy_(made)
      return y
    end,
    function(cache, x, at, row)  -- by a library
      local made = cache:index_copy(0, row, x:view(1, 2))
      local y = table_of:index_select(0, at)
      cache:copy_(made)
      return y
    end,
    function(cache, x, at, row) cache:index_copy_(0, row, x:view(1, 2)) return table_of:index_select(0, at) end,
    function(cache, x, at)  -- or does not
      local made = lt.slice_scatter(cache, x:view(1, 2), 0, 1, 2)
      if at:gt(0):nonzero():size(0) > 0 then cache:copy_(made) return cache * 1 end
      return cache * 3
    end,
  }
  for i, program in ipairs(programs) do
    local function seen(f)
      local list, cache, x = {}, lt.ones(5, 2), lt.tensor {3, 4}
      local row = lt.tensor({1}, {dtype = "int64"})
      lt.manual_seed(i)
      for _, at in ipairs {1, 9, 2, -7, 0} do
        local ok, out = pcall(f, cache, x, lt.tensor({at}, {dtype = "int64"}), row)
        list[#list + 1] = ("%s %s %s"):format(ok and out or h.text(out), cache, x)
        x:add_(1) -- or a write would leave what the call before has left
      end
      return table.concat(list, "\n")
    end
    h.same_by_backends(seen, program, "program " .. i)
  end
end)

h.finish()
