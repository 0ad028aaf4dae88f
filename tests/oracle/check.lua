-- check.lua DIR [family...]: compares every case's values and gradients, in every recorded form, with PyTorch's
-- recorded answers (see README.md), and compiled code, one graph for each case, with eager bit for bit.
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local truthy, equal = h.truthy, h.equal
local inf, nan = math.huge, 0 / 0
local functional = lt.nn.functional -- loaded before any frame is captured
assert(functional)

local epsilon = {float16 = 2 ^ -10, bfloat16 = 2 ^ -7, float32 = 2 ^ -23, float64 = 2 ^ -52}
-- PyTorch's backward of half types rounds intermediate values that ours does not.
local gradient_slack = {float16 = 4, bfloat16 = 4}
local tolerance = {float16 = 2 ^ -8, bfloat16 = 2 ^ -5, float32 = 2e-6, float64 = 1e-12}

-- Inputs -------------------------------------------------------------------------------------------------------------

local function plain(recorded, dtype)
  local values, n = {}, 1
  for _, size in ipairs(recorded.shape) do n = n * size end
  if n == 0 then return lt.zeros(recorded.shape, {dtype = dtype}) end
  for i, value in ipairs(recorded) do values[i] = value end
  if #recorded.shape == 0 then return lt.tensor(values[1], {dtype = dtype}) end
  return lt.tensor(values, {dtype = dtype}):view(recorded.shape)
end

local function largest_size(inputs)
  local largest = 0
  for _, recorded in ipairs(inputs) do
    for _, size in ipairs(recorded.shape) do largest = math.max(largest, size) end
  end
  return largest
end

local forms = {}
function forms.base(recorded) return plain(recorded, recorded.dtype) end
function forms.strided(recorded)
  local t = plain(recorded, recorded.dtype)
  if t:dim() == 0 then return t end
  if t:dim() == 1 then return lt.stack({t, t}, 1):select(1, 0) end
  return t:transpose(0, -1):contiguous():transpose(0, -1)
end
for _, dtype in ipairs{"float64", "float16", "bfloat16"} do
  forms[dtype] = function(recorded)
    if recorded.dtype ~= "float32" then return forms.base(recorded) end
    return plain(recorded, "float32"):to(dtype)
  end
end
function forms.zero_dim(recorded) return lt.tensor(recorded[1], {dtype = recorded.dtype}) end
function forms.empty(recorded, case)
  local sizes, largest = {}, largest_size(case.inputs)
  for d, size in ipairs(recorded.shape) do sizes[d] = size == largest and 0 or size end
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n == 0 and lt.zeros(sizes, {dtype = recorded.dtype}) or forms.base(recorded)
end

-- Comparisons --------------------------------------------------------------------------------------------------------

local function elements(t) return t:detach():reshape(-1):totable() end

-- Compares with PyTorch's answer. If a case also has the float64 answer (exact), an element near that is right, too.
-- The bound of a gradient is then relative to the largest incoming gradient (limits.incoming), except in half types,
-- because the gradient is linear in these, and they cancel.
local function same(got, want, what, limits, exact)
  if type(want) ~= "table" then return equal(got, want, what) end
  equal(got.dtype, want.dtype, what .. " dtype")
  equal(table.concat(got.shape, ","), table.concat(want.shape, ","), what .. " shape")
  local limit = limits.tol and math.max(limits.tol, tolerance[want.dtype] or 0) or tolerance[want.dtype] or 0
  if limits.gradient then limit = limit * (gradient_slack[want.dtype] or 1) end
  local function largest(values, least) -- sums cancel: an element is as exact as the largest
    for _, w in ipairs(values) do
      if type(w) == "number" and math.abs(w) < inf then least = math.max(least, math.abs(w)) end
    end
    return least
  end
  local scale = largest(want, 0)
  local function near(v, w, scale)
    if v == w or (v ~= v and w ~= w) then return true end
    if type(w) ~= "number" or type(v) ~= "number" or math.abs(w) == inf then return false end
    local allowed = limit * scale
    -- Denormal results have an absolute bound.
    if limits.ulp then allowed = limits.ulp * epsilon[want.dtype] * math.max(math.abs(w), 1.2e-38) end
    return math.abs(v - w) <= allowed
  end
  if scale == 0 then scale = 1 end  -- nothing but zeros, or no number
  local exact_scale = largest(exact or {}, gradient_slack[want.dtype] and scale
    or math.max(scale, limits.incoming or 0))
  local function right(v, i) return near(v, want[i], scale) or (exact and near(v, exact[i], exact_scale)) end
  local flat, zero, zeros = elements(got), want.dtype == "bool" and false or 0, true
  for i, w in ipairs(want) do
    local v = flat[i]
    local good = right(v, i)
    zeros = zeros and (w == zero or right(zero, i))
    if good and limits.signs and w == 0 then good = 1 / v == 1 / w end
    truthy(good, string.format("%s element %d is %s, not %s%s; it", what, i, tostring(v), tostring(w),
      exact and " (float64: " .. tostring(exact[i]) .. ")" or ""))
  end
  local nothing, cancels = true, exact and true  -- what cancels in float64 is zero
  for i, w in ipairs(want) do
    nothing = nothing and w == zero
    cancels = cancels and math.abs(exact[i]) <= 2 ^ -44 * exact_scale
  end
  truthy(nothing or cancels or not zeros, what .. " is refused where all its elements are zeros, it")
end

-- Returns the bits of a tensor as text. All NaNs are equal.
local function bits(t)
  if type(t) ~= "userdata" then return tostring(t) end
  local out = elements(t)
  for i, v in ipairs(out) do
    if v ~= v then out[i] = "nan" elseif v == 0 then out[i] = 1 / v < 0 and "-0" or "0"
    else out[i] = type(v) == "number" and string.format("%.17g", v) or tostring(v) end
  end
  return table.concat(out, " ")
end

-- Running ------------------------------------------------------------------------------------------------------------

-- Cases that cannot be one graph, and why. Any other case whose graph breaks fails.
local by_mask = "is indexed by a mask" -- the shape is data, without a rule for it as a symbol
local sized_by_default = "reads the elements" -- a size that is not given is the largest element, or a sum
local breaking = {
  {"mask 0-dim", by_mask}, {"one_hot counted", sized_by_default},
    {"tensordot by a tensor", sized_by_default},
}

-- Returns the reason why this case's graph breaks, or nil. A name stands for all cases that begin with it.
local function graph_break(case)
  for _, row in ipairs(breaking) do
    if (case.name .. " "):sub(1, #row[1] + 1) == row[1] .. " " then return row[2] end
  end
end

-- Makes a new prototype each time, so that forms do not share a recompile limit.
local function program(code)
  local text = "local lt, inf, nan = ... return function(a, b, c, d, e, f, g, h) return " .. code .. " end"
  return assert(loadstring(text, "=case"))(lt, inf, nan)
end

local function make_inputs(case, form)
  local inputs = {}
  for i, recorded in ipairs(case.inputs) do
    inputs[i] = forms[form:match("^%S+")](recorded, case)
    if recorded.grad then inputs[i] = inputs[i]:detach():requires_grad_(true) end
  end
  return inputs
end

-- Returns the results and the gradients of f on new inputs.
local function run(f, case, form)
  local inputs = make_inputs(case, form)
  local results = {f(unpack(inputs))}
  if #results == 1 and type(results[1]) == "table" then results = results[1] end
  local any = false
  for _, input in ipairs(inputs) do any = any or input.requires_grad end
  for _, result in ipairs(results) do
    if any and type(result) == "userdata" and result.requires_grad then
      local seed = lt.arange(result:numel()):to("float64"):mul(0.37):sub(0.5):view(result.shape):to(result.dtype)
      result:backward(seed, {retain_graph = true})
    end
  end
  local grads = {}
  for i, input in ipairs(inputs) do grads[i] = input.grad or false end
  return results, grads
end

local function check_form(case, form, want)
  local f = program(case.code)
  local results, grads = run(f, case, form)
  equal(#results, #want.results, form .. " number of results")
  -- In float64 what cancels is noise to the end: the base form's witness tells.
  local exact, exact_grads = want.exact or {}, want.exact_grads or form == "float64" and case.exact_grads or {}
  for i, r in ipairs(want.results) do same(results[i], r, form .. " result " .. i, case, exact[i]) end
  local grad_limits = {tol = case.grad_tol or case.tol, gradient = true, incoming = 0}
  for _, r in ipairs(results) do
    if type(r) == "userdata" and r.requires_grad then
      grad_limits.incoming = math.max(grad_limits.incoming, 0.5, 0.37 * (r:numel() - 1) - 0.5)
    end
  end
  for i, g in ipairs(want.grads) do
    equal(grads[i] and true or false, g and true or false, form .. " gradient " .. i .. " exists")
    if g then same(grads[i], g, form .. " gradient " .. i, grad_limits, exact_grads[i]) end
  end
  local reason = graph_break(case)
  if reason then
    local ok, message = pcall(run, lt.compile(program(case.code), {fullgraph = true}), case, form)
    truthy(not ok and tostring(message):find(reason, 1, true), form .. ": the graph no longer breaks ("
      .. tostring(message) .. "); the list")
  end
  local compiled = lt.compile(program(case.code), {fullgraph = not reason})
  local before = lt.counters().cache.hits
  for round = 1, 2 do
    local again, again_grads = run(compiled, case, form)
    equal(#again, #results, form .. " compiled number of results, call " .. round)
    for i, r in ipairs(results) do
      equal(bits(again[i]), bits(r), form .. " compiled result " .. i .. ", call " .. round)
    end
    for i, g in ipairs(grads) do
      equal(again_grads[i] and true or false, g and true or false, form .. " compiled gradient " .. i
        .. " exists, call " .. round)
      if g then equal(bits(again_grads[i]), bits(g), form .. " compiled gradient " .. i .. ", call " .. round) end
    end
  end
  truthy(reason or lt.counters().cache.hits > before, form .. " compiled code ran; the second call was a hit, it")
end

local function check_error(case)
  local inputs = make_inputs(case, "base")
  local ok, message = pcall(function()
    program(case.code)(unpack(inputs))
    if lt.get_default_device() ~= "cpu" then lt.cuda.synchronize() end
  end)
  truthy(not ok, "PyTorch refuses this, Lutra")
  local text = tostring(message):gsub("^[^:]*:%d+: ", "")
  truthy(text:sub(1, #case.error) == case.error and text:find("^[%w_.]*:", 1), "the message '" .. text
    .. "' begins with " .. case.error .. ":")
end

local function check(case)
  if case.error then return check_error(case) end
  check_form(case, "base", case)
  if case.strided then check_form(case, "strided", case) end
  for _, variant in ipairs(case.variants or {}) do
    check_form(case, variant.name, variant)
  end
end

local dir, wanted = arg[1] or "references", {}
for i = 2, #arg do wanted[#wanted + 1] = arg[i] end
if #wanted == 0 then
  for line in io.popen("ls '" .. dir .. "'"):lines() do wanted[#wanted + 1] = line:match("^(.*)%.lua$") end
end
for _, family in ipairs(wanted) do
  for _, case in ipairs(assert(loadfile(dir .. "/" .. family .. ".lua"))()) do
    h.test(family .. ": " .. case.name, function() check(case) end)
  end
end
h.finish()
