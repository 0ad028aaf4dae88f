-- Tests lt.autocast: three networks against PyTorch's results (../oracle/autocast_models.lua), and compiled against
-- eager bit for bit; regions, the cache of casts, guards, graph breaks inside a region. ../oracle/autocast.lua tests
-- which dtype each op runs in.
local lt = require "lutra"
local h = require "harness"
local nn = lt.nn
local F = nn.functional
local device = os.getenv "LUTRA_TEST_DEVICE" or "cpu" -- of the networks; on "cuda" their parts have other types
lt.set_default_device(device)
local test, equal, truthy = h.test, h.equal, h.truthy

local function fails(part, f, ...)
  local ok, message = pcall(f, ...)
  truthy(not ok and tostring(message):find(part, 1, true), tostring(message))
end

test("wrong arguments are named, with the script's line", function()
  local function message(...)
    local args, n = {...}, select("#", ...)
    return select(2, pcall(function() local _ = lt.autocast(unpack(args, 1, n)) end))
  end
  for part, text in pairs {
    ["argument 'device_type' must be \"cpu\" or \"cuda\", got string 'tpu'"] = message("tpu", function() end),
    ["argument 'dtype' must be bfloat16 or float16, got string 'float32'"] = message("cpu", {dtype = lt.float32},
      function() end),
    ["unknown option 'dtyp' (known: dtype, enabled, cache_enabled)"] = message("cpu", {dtyp = lt.bfloat16},
      function() end),
    ["argument 'f' must be a function or a module, got nil"] = message("cpu", {dtype = lt.bfloat16}),
    ["argument 'f' must be a function or a module, got number 3"] = message("cpu", {dtype = lt.bfloat16}, 3),
    ["argument 'f' must be a function or a module, got string 'f'"] = message("cpu", nil, "f"),
    ["argument 'f' must be a function or a module, got a table"] = message("cpu", {}, {}),
    ["argument 'options' must be a table, got number 3"] = message("cpu", 3, function() end),
    ["argument 'enabled' must be a boolean, got string 'no'"] = message("cpu", {enabled = "no"}, function() end),
    ["argument 'cache_enabled' must be a boolean, got number 0"] = message("cpu", {cache_enabled = 0}, function() end),
  } do
    truthy(tostring(text):find("autocast.lua:%d+: autocast: ") and text:find(part, 1, true), tostring(text))
  end
  equal(lt.autocast_region, nil)
  equal(lt.autocast_check, nil)
end)

-- Networks -----------------------------------------------------------------------------------------------------------

local function values(shape, k, scale, plain)
  local n, t = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 1, n do t[i] = math.sin((i - 1) * 0.37 + k) * (scale or 0.5) end
  return lt.tensor(t):view(shape):requires_grad_(not plain)
end

-- Each returns the parameters, and a function of them whose results are intermediate values and the loss.
local models = {}
function models.mlp()
  local x, y = values({5, 8}, 5, 1, true), values({5, 4}, 6, 1, true)
  return {values({16, 8}, 1), values({16}, 2), values({4, 16}, 3), values({4}, 4)}, function(p)
    local a = F.linear(x, p[1], p[2]):relu()
    local out = F.linear(a, p[3], p[4])
    return a, out, F.mse_loss(out, y)
  end
end

function models.convnet()
  local x, y = values({3, 2, 6, 6}, 7, 1, true), lt.tensor({0, 3, 4}, {dtype = "int64"})
  local weight = (values({4}, 3, nil, true) + 1):requires_grad_(true)
  return {values({4, 2, 3, 3}, 1), values({4}, 2), weight, values({4}, 4), values({5, 36}, 5), values({5}, 6)},
    function(p)
    local c = F.conv2d(x, p[1], p[2], {padding = 1})
    local b = F.batch_norm(c, lt.zeros(4), lt.ones(4), p[3], p[4], true)
    local m = F.max_pool2d(b:relu(), 2)
    local out = F.linear(m:flatten(1), p[5], p[6])
    return c, b, m, out, F.cross_entropy(out, y)
  end
end

function models.gpt()
  local d, heads, length, batch, words = 16, 2, 6, 2, 11
  local function ids(...)
    local rows = {}
    for r, step in ipairs {...} do
      rows[r] = {}
      for i = 1, length do rows[r][i] = (i - 1) * step % words end
    end
    return lt.tensor(rows, {dtype = "int64"})
  end
  local words_in, y = ids(5, 7), ids(3, 2)
  local p = {values({words, d}, 1), values({length, d}, 2), values({3 * d, d}, 3), values({3 * d}, 4),
    values({d, d}, 5), values({4 * d, d}, 6),
             values({d, 4 * d}, 7), values({d}, 8)}
  return p, function(p)
    local x = F.embedding(words_in, p[1]) + p[2]
    local n = F.layer_norm(x, {d}, p[8])
    local qkv = F.linear(n, p[3], p[4]):view(batch, length, 3, heads, d / heads):permute(2, 0, 3, 1, 4)
    local a = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {is_causal = true})
    x = x + F.linear(a:transpose(1, 2):reshape(batch, length, d), p[5])
    local g = F.gelu(F.linear(F.layer_norm(x, {d}, p[8]), p[6]), {approximate = "tanh"})
    x = x + F.linear(g, p[7])
    local out = F.linear(F.layer_norm(x, {d}, p[8]), p[1])
    return n, a, x, g, out, F.cross_entropy(out:view(-1, words), y:view(-1))
  end
end

local function gradients(p)
  local list = {}
  for i, t in ipairs(p) do list[i], t.grad = t.grad, nil end
  return list
end

local function near(got, want, limit, what)
  truthy(math.abs(got - want) <= limit, string.format("%s is %.7g, not %.7g; it", what, got, want))
end

for _, row in ipairs(dofile "../oracle/autocast_models.lua") do
  test(row.model .. " in " .. row.dtype, function()
    lt.reset()
    local p, f = models[row.model]()
    local slack = row.dtype == "bfloat16" and 2 ^ -5 or 2 ^ -8
    local function step(p) return lt.autocast(device, {dtype = row.dtype}, f, p) end
    local parts = {step(p)}
    for i, t in ipairs(device == "cpu" and parts or {}) do equal(t.dtype, row.types[i], "part " .. i) end
    local loss = parts[#parts]
    near(loss:item(), row.loss, slack * row.loss, "loss")
    loss:backward()
    local grads = gradients(p)
    for i, want in ipairs(row.grads) do
      local g = grads[i]:to("float64"):view(-1)
      equal(grads[i].dtype, "float32")
      -- A gradient that should be 0 is a sum of the rounding errors of many others, so the limit has a lower bound.
      local limit = 2 * slack * math.max(want[1], row.model == "convnet" and 1 or 0.01)
      near(g:norm():item(), want[1], limit, "norm of gradient " .. i)
      near((g * lt.arange(g:numel()):to("float64"):cos()):sum():item(), want[2], 2 * limit, "gradient " .. i)
    end

    -- The whole step compiled, forward compiled alone, and compiled code that is called in a region.
    local whole = lt.compile(function(p)
      local results = {step(p)}
      results[#results]:backward()
      return results[#results]
    end, {fullgraph = true})
    local forward, called = lt.compile(step, {fullgraph = true}), lt.compile(f, {fullgraph = true})
    local function in_region(p) return lt.autocast(device, {dtype = row.dtype}, called, p) end
    for _, way in ipairs {whole, forward, in_region} do
      for _ = 1, 2 do
        local results = {way(p)}
        truthy(results[#results]:equal(loss), "loss")
        if way ~= whole then
          for i, t in ipairs(parts) do truthy(results[i].dtype == t.dtype and results[i]:equal(t), "part " .. i) end
          results[#results]:backward()
        end
        for i, g in ipairs(gradients(p)) do truthy(g:equal(grads[i]), "gradient " .. i) end
      end
    end
  end)
end

lt.set_default_device("cpu")

-- Regions ------------------------------------------------------------------------------------------------------------

local function product_type(device)
  local a = lt.ones({2, 2}, {device = device})
  return a:mm(a).dtype
end

test("a region sets the mode and puts it back, by an error, too", function()
  equal(lt.get_autocast_dtype("cpu"), "bfloat16")
  equal(lt.get_autocast_dtype("cuda"), "float16")
  equal(lt.is_autocast_enabled(), false)
  equal(product_type(), "float32")
  lt.autocast("cpu", {dtype = "float16", cache_enabled = false}, function()
    equal(lt.is_autocast_enabled("cpu"), true)
    equal(lt.is_autocast_enabled("cuda"), false)
    equal(lt.get_autocast_dtype("cpu"), "float16")
    equal(lt.is_autocast_cache_enabled(), false)
    equal(product_type(), "float16")
    lt.autocast("cpu", {dtype = lt.bfloat16}, function() equal(product_type(), "bfloat16") end)
    lt.autocast("cpu", {enabled = false}, function()
      equal(lt.is_autocast_enabled("cpu"), false)
      equal(product_type(), "float32")
    end)
    fails("of the test", lt.autocast, "cpu", {}, function() error("of the test") end)
    equal(product_type(), "float16")
  end)
  equal(lt.is_autocast_enabled("cpu"), false)
  equal(lt.get_autocast_dtype("cpu"), "bfloat16")
  equal(lt.is_autocast_cache_enabled(), true)
  equal(product_type(), "float32")
end)

test("arguments and results go through, options may be left out", function()
  local function f(...) return select("#", ...), ... end
  equal(table.concat({lt.autocast("cpu", nil, f, 1, 2)}, " "), "2 1 2")
  equal(table.concat({lt.autocast("cpu", f, 3)}, " "), "1 3")
  local linear = nn.Linear(2, 2)
  equal(lt.autocast("cpu", linear, lt.ones(1, 2)).dtype, "bfloat16")
  equal(lt.autocast("cuda", linear, lt.ones(1, 2)).dtype, "float32") -- tensors on the CPU are not its
  local co = coroutine.wrap(function() return lt.autocast("cpu",
    function() return coroutine.yield(product_type()) end) end)
  equal(co(), "bfloat16")
  co()
  equal(lt.is_autocast_enabled("cpu"), false)
end)

test("bad arguments are refused", function()
  fails("device_type' must be \"cpu\" or \"cuda\", got string 'tpu'", lt.autocast, "tpu", {}, print)
  fails("dtype' must be bfloat16 or float16, got string 'float32'", lt.autocast, "cpu", {dtype = "float32"}, print)
  fails("unknown option 'type'", lt.autocast, "cpu", {type = "float32"}, print)
  fails("options' must be a table, got number 3", lt.autocast, "cpu", 3, print)
  fails("set_autocast_dtype: dtype must be", lt.set_autocast_dtype, "cpu", "int64")
  fails("is_autocast_enabled: argument 'device_type'", lt.is_autocast_enabled, "tpu")
  fails("addmm", function()
    lt.autocast("cpu", function() return lt.ones(2, 2):addmm_(lt.ones(2, 2), lt.ones(2, 2):bfloat16()) end)
  end) -- in-place forms are not cast
  equal(lt.autocast("cpu", {dtype = "float32", enabled = false}, product_type), "float32")
end)

test("float64, integers and what is in the right type stay", function()
  lt.autocast("cpu", function()
    local d = lt.ones({2, 2}, {dtype = "float64"})
    equal(d:mm(d).dtype, "float64")
    local b = lt.ones({2, 2}, {dtype = "bfloat16"})
    equal(lt.cat({b, b}).dtype, "bfloat16")
    equal(lt.cat({b, lt.ones(2, 2)}).dtype, "float32")
    fails("float16", lt.stack, {b, b:half()})
  end)
end)

-- The cache ----------------------------------------------------------------------------------------------------------

local function casts_of(options, f)
  local w = lt.ones({4, 4}):requires_grad_(true)
  local seen = {}
  lt.autocast("cpu", options, f, w, function()
    seen[#seen + 1] = lt.ones(4, 4):mm(w)
  end)
  return w, seen
end

test("a leaf is cast once in a region, its gradients meet in float32", function()
  local function gradient_of_two(options)
    local w, seen = casts_of(options, function(_, product) product() product() end)
    local sum = seen[1]:sum() + seen[2]:sum() * 2 ^ -9
    sum:backward()
    return w.grad[{0, 0}]:item()
  end
  equal(gradient_of_two {}, 4 + 2 ^ -7)
  equal(gradient_of_two {cache_enabled = false}, 4 + 2 ^ -7)
  local function casts(options)
    local profile = lt.profile(casts_of)(options, function(_, product) product() product() end)
    local n = 0
    for _, kernel in ipairs(profile.kernels) do
      if kernel.op == "to_dtype" then n = n + kernel.calls end
    end
    return n
  end
  equal(casts {cache_enabled = false} - casts {}, 1)
end)

test("a leaf that is written to is cast again; no_grad and gradients share casts", function()
  local w, seen = casts_of({}, function(w, product)
    product()
    lt.no_grad(w.fill_, w, 2)
    product()
    equal(lt.no_grad(function() return lt.ones(4, 4):mm(w) end).requires_grad, false)
    product()
  end)
  equal(seen[1][{0, 0}]:item(), 4)
  equal(seen[2][{0, 0}]:item(), 8)
  seen[3]:sum():backward()
  equal(w.grad[{0, 0}]:item(), 4)
end)

test("two backward passes over one cast", function()
  local w = casts_of({}, function(_, product) product() end)
  lt.autocast("cpu", function()
    for _ = 1, 2 do lt.ones(4, 4):mm(w):sum():backward() end
  end)
  equal(w.grad[{0, 0}]:item(), 8)
end)

-- Capture ------------------------------------------------------------------------------------------------------------

test("a region in a hook is that hook's alone", function()
  local function gradient(hook)
    local w, x = values({4, 4}, 1), values({3, 4}, 2, nil, true)
    return lt.autocast("cpu", function()
      local y = lt.autocast("cpu", {enabled = false}, function()
        local hidden = lt.mm(x, w)
        hidden:register_hook(hook)
        return lt.mm(hidden, w)
      end)
      y:sum():backward()
      equal(lt.is_autocast_enabled("cpu"), true)
      return w.grad
    end)
  end
  local seen, inside
  local plain = gradient(function() end)
  local hooked = gradient(function(g)
    seen = lt.is_autocast_enabled("cpu")
    inside = lt.autocast("cpu", function() return lt.mm(g, g:t()).dtype end)
  end)
  equal(seen, false)
  equal(inside, "bfloat16")
  equal(hooked.dtype, "float32")
  truthy(lt.equal(hooked, plain))
end)

test("compiled code is guarded on the mode where it matters", function()
  lt.reset()
  local w = lt.ones(2, 2)
  local product = lt.compile(function(x) return x:mm(w) end)
  local sum = lt.compile(function(x) return x + w end)
  for _ = 1, 2 do
    equal(product(w).dtype, "float32")
    equal(lt.autocast("cpu", product, w).dtype, "bfloat16")
    equal(lt.autocast("cpu", {dtype = "float16"}, product, w).dtype, "float16")
    equal(sum(w).dtype, "float32")
    equal(lt.autocast("cpu", sum, w).dtype, "float32")
  end
  equal(#lt.guards(product), 3)
  equal(#lt.guards(sum), 1)
  local r = lt.recompiles(product)
  equal(r[1].kind .. ": " .. r[1].old .. ", " .. r[1].new, "autocast: off, cpu: bfloat16")
end)

test("options made in the frame, whatever their order", function()
  lt.reset()
  local w = lt.ones({2, 2}):requires_grad_(true)
  local function product(x) return x:mm(w):sum() end
  local options = {enabled = true}
  local f = lt.compile(function(x, on, dtype)
    local given = lt.autocast("cpu", options, product, x)
    local made = {dtype = "float16"}
    made.cache_enabled = false
    made.enabled = on
    local loss = lt.autocast("cpu", {dtype = dtype, enabled = on or false}, product, x)
      + lt.autocast("cpu", made, product, x) + given
    loss:backward()
    return loss
  end, {fullgraph = true})
  equal(f(lt.ones(2, 2), true, "bfloat16").dtype, "float32") -- float16 and bfloat16 make float32
  equal(f(lt.ones(2, 2), nil, nil).dtype, "float32")
  options.unknown = 1
  fails("unknown option", lt.autocast, "cpu", options, product, w)
  fails("unknown option", lt.compile(function(x) return lt.autocast("cpu", {type = x.dtype}, product, x) end), w)
end)

test("a break in a region goes on in it", function()
  lt.reset()
  local w = lt.ones(2, 2)
  local function inner(x, log)
    local y = x:mm(w)
    lt.graph_break()
    log[#log + 1] = lt.is_autocast_enabled("cpu")
    return y, lt.exp(y:mm(w))
  end
  local function f(x, log)
    local y, z = lt.autocast("cpu", {dtype = "float16"}, function(x) return lt.no_grad(inner, x, log) end, x)
    log[#log + 1] = lt.is_autocast_enabled("cpu")
    return y, z, x:mm(w)
  end
  local cf = lt.compile(f)
  for _ = 1, 3 do
    local log = {}
    local y, z, m = cf(w, log)
    equal(y.dtype .. " " .. z.dtype .. " " .. m.dtype, "float16 float16 float32")
    equal(tostring(log[1]) .. " " .. tostring(log[2]) .. " " .. #log, "true false 2")
    equal(lt.is_autocast_enabled("cpu"), false)
    equal(lt.is_grad_enabled(), true)
  end
  local failing = lt.compile(function(x) return lt.autocast("cpu", function() error("thrown") end) end)
  for _ = 1, 2 do
    fails("thrown", failing, w)
    equal(lt.is_autocast_enabled("cpu"), false)
  end
end)

test("a train step with a compiled optimiser, one graph", function()
  lt.reset()
  local function train(compiled)
    lt.manual_seed(1)
    local net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    local opt = lt.optim.AdamW(net:parameters(), {lr = 0.01})
    local function step(x, y)
      local loss = lt.autocast("cpu", function() return F.mse_loss(net(x), y) end)
      opt:zero_grad()
      loss:backward()
      opt:step()
      return loss
    end
    local run = compiled and lt.compile(step, {fullgraph = true}) or step
    local x, y, losses = lt.randn(16, 4), lt.randn(16, 2), {}
    for i = 1, 5 do losses[i] = run(x, y):item() end
    return losses
  end
  local eager, compiled = train(false), train(true)
  for i, loss in ipairs(eager) do equal(compiled[i], loss) end
  truthy(eager[5] < eager[1])
end)

h.finish()
