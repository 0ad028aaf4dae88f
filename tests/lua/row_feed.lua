-- Tests a kernel whose rows a scatter takes in blocks (jit/device/cpu/row_feed.h): the bits and errors are eager's.
local h = require "harness"
local lt = require "lutra"
local test, equal = h.test, h.equal

local nodes, edges, width = 300, 5000, 70
lt.manual_seed(1)
local values, weight = lt.randn(nodes, width), lt.randn(edges, 1)
local source, target = lt.randint(0, nodes, {edges}), lt.randint(0, nodes, {edges})

local function same(f, ...)
  for _, threads in ipairs {1, 2} do
    lt.set_num_threads(threads)
    local want, got = f(...), lt.compile(f)(...)
    equal(got.dtype, want.dtype)
    equal(got:eq(want):all():item(), true, "the same bits")
  end
end
local function case(name, f, ...)
  local args = {...}
  test(name, function() same(f, unpack(args)) end)
end
local function empty(v, ...) return v:new_zeros(...) end

local function add(v, w, s, t) return empty(v, nodes, v:size(1)):index_add(0, t, v[s] * w) end
case("index_add", add, values, weight, source, target)
case("half of the sum", function(v, w, s, t)
  return empty(v, nodes, width):index_add(0, t, v[s] * w, {alpha = 0.5})
end, values, weight, source, target)
case("float64", add, values:to("float64"), weight:to("float64"), source, target)
case("every second index", function(v, w, s, t)
  return empty(v, nodes, width):index_add(0, t:view(-1, 2):select(1, 0), v[s]:narrow(0, 0, edges / 2) + 1)
end, values, weight, source, target)
case("rows of one element", function(v, w, s, t)
  return empty(v, nodes):index_add(0, t, v:select(1, 0)[s]:exp())
end, values, weight, lt.cat({source, source, target, source, target, target, source, source}),
  lt.cat({target, source, target, source, target, source, source, source}))
case("three dimensions", function(v, w, s, t)
  return empty(v, nodes, 7, 10):index_add(0, t, v:view(nodes, 7, 10)[s] * w:unsqueeze(-1))
end, values, weight, source, target)
case("columns", function(v, w, s, t)
  return empty(v, width, nodes):index_add(1, t, v:t():index_select(1, s) * w:t())
end, values, weight, source, target)
case("rows that others read, too", function(v, w, s, t)
  local rows = v[s] * w
  return empty(v, nodes, width):index_add(0, t, rows) + rows:sum()
end, values, weight, source, target)
case("onto the rows' source", function(v, w, s, t) return v:index_add(0, t, v[s] * w) end, values, weight, source,
  target)
case("two in a row", function(v, w, s, t)
  local once = empty(v, nodes, width):index_add(0, t, v[s] * w)
  return empty(v, nodes, width):index_add(0, s, once[t] * w)
end, values, weight, source, target)
case("gradients", function(v, w, s, t)
  local x, y = v:detach():requires_grad_(true), w:detach():requires_grad_(true)
  local out = empty(v, nodes, width):index_add(0, t, x[s] * y)
  local dx, dy = lt.autograd.grad((out * out):sum(), {x, y})
  return lt.cat({dx:flatten(), dy:flatten()})
end, values, weight, source, target)

test("negative indices", function()
  same(function(v, w, s, t)
    local out = empty(v, nodes, width)
    out[t - nodes] = v[s - nodes] * w
    return out
  end, values, weight, source, lt.cat({lt.arange(nodes), source:narrow(0, 0, edges - nodes)}))
end)

-- There are as many rows as targets: one kernel computes the rows and the tensor that they are added to.
test("a kernel that writes the base, too", function()
  local n = 4000
  local x, y, e, s, t = lt.randn(n, 64), lt.randn(n, 64), lt.randn(n, 1), lt.randint(0, n, {n}), lt.randint(0, n, {n})
  same(function(a, b, c, from, to)
    local h = a[from] * c
    return h:index_add(0, to, h * b + c)
  end, x, y, e, s, t)
  same(function(a, b, c, from, to)
    local rows, out = a[from] + 1, a + 1
    return out:index_put({to}, rows, true)
  end, x, y, e, s, t)
end)

-- Of several bad indices, the one that eager code finds first is reported.
test("errors", function()
  local function message(f, ...)
    local ok, why = pcall(f, ...)
    equal(ok, false)
    return (tostring(why):gsub("^.-: ", "", 1))
  end
  local bad_source, bad_target = source:clone(), target:clone()
  bad_source[edges - 10], bad_target[20] = nodes + 5, nodes + 7
  local compiled = lt.compile(add)
  for _, bad in ipairs {{bad_source, target}, {source, bad_target}, {bad_source, bad_target}} do
    equal(message(compiled, values, weight, bad[1], bad[2]), message(add, values, weight, bad[1], bad[2]))
    local got, want = compiled(values, weight, source, target), add(values, weight, source, target)
    equal(got:eq(want):all():item(), true)
  end
end)

h.finish()
