-- Tests each integer argument of ops and methods with another value in each call. It takes the examples of the op table
-- and replaces each of their integers, and passes each integer argument that they leave out. Results are eager's, bit
-- for bit. A stream of values costs at most four graphs: for the first value, 0, 1, and all others. The table below
-- lists arguments that cost more, with the reason.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local examples, names = lt._native.use "meta.examples", lt._native.use "meta.names"

local VALUES = {5, 6, 7, 9, 1, 0, 12, 11, 8, 10}
local MOST = 4

local SPECIALISES = {
  ["code is made for a window, its stride, padding and dilation"] = "adaptive_avg_pool1d adaptive_avg_pool2d "
    .. "adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices "
    .. "avg_pool1d avg_pool2d conv1d conv_transpose1d local_response_norm lp_pool1d lp_pool2d max_pool1d "
    .. "max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_unpool1d max_unpool2d",
  ["it says how many ops or results there are"] = "chunk combinations diff matrix_power mvlgamma mvlgamma_ polygamma "
    .. "polygamma_ rot90 special.multigammaln special.polygamma split split_copy tensor_split unsafe_chunk "
    .. "unsafe_split",
  ["the formula is another one"] = "round round_ special.round",
  ["a bound is compared and computed with before the ops"] = "fake_quantize_per_tensor_affine histogram range",
  ["elements are made by the host"] = "tril_indices triu_indices",
  ["a tensor itself gets another shape"] = "as_strided_ resize_ squeeze_ swapaxes_ swapdims_ transpose_ unsqueeze_",
  ["the place of a weight's row that has no gradient is a constant"] = "embedding",
  ["it runs outside of graphs"] = "data_ptr from_blob from_ffi limits memory",
}
local listed, met = {}, {}
for reason, list in pairs(SPECIALISES) do
  for name in list:gmatch "%S+" do listed[name] = reason end
end

-- Inputs of which most numbers are a legal size, index or count.
local function environment()
  lt.manual_seed(1)
  local env = setmetatable({lt = lt}, {__index = _G})
  for name in ("x y m"):gmatch "%a" do env[name] = lt.randn(16, 16) end
  env.p, env.v, env.w, env.a, env.image = lt.rand(16, 16), lt.randn(16), lt.randn(12), lt.randn(16, 16, 16),
    lt.randn(1, 4, 16, 16)
  env.n, env.k = lt.arange(1, 17):to("float32"), lt.arange(2, 18):to("float32")
  env.i, env.j, env.labels = lt.tensor({0, 2}, {dtype = "int64"}), lt.randint(0, 16, {16, 16}), lt.randint(0, 16, {16})
  env.signs, env.mask, env.z = lt.ones(16), lt.rand(16, 16):gt(0.5), lt.complex(lt.randn(16), lt.randn(16))
  env.leaf, env.path = lt.tensor({1, 2, 3}, {requires_grad = true}), "sweep.npy"
  return env
end

-- Returns the result of a call, tensors as their bits, so that NaNs are compared, too.
local function bits(t)
  if t:is_complex() then t = lt.view_as_real(t) end
  local bytes = {t.dtype, table.concat(t.shape, ",")}
  if t:numel() > 0 then bytes[3] = table.concat(t:contiguous():view(-1):view "uint8":tolist(), ",") end
  return table.concat(bytes, " ")
end

local function text(v)
  if type(v) == "userdata" then return bits(v) end
  if type(v) == "number" then return ("%a"):format(v) end
  if type(v) ~= "table" then return tostring(v) end
  local out = {}
  for i = 1, #v do out[i] = text(v[i]) end
  return "{" .. table.concat(out, "; ") .. "}"
end

local function outcome(f, n)
  lt.manual_seed(2)
  local r = {pcall(f, n)}
  local ok = table.remove(r, 1)
  return ok and text(r) or (tostring(r[1]):gsub("^.-:%d+: ", "")), ok
end

-- Runs `line`, an expression of N, with all values; false and a text where it costs more than it may.
local function sweep(name, line)
  local f = setfenv(assert(loadstring("return function(N) return " .. line .. " end", "=" .. name)), environment())()
  local legal = 0
  lt.reset()
  local g = lt.compile(f)
  for _, n in ipairs(VALUES) do
    local want, ok = outcome(f, n)
    if ok then
      legal = legal + 1
      equal(outcome(g, n), want, line .. " of " .. n)
    end
  end
  local breaks, graphs = lt._report(g).break_reasons, lt.counters().stats.unique_graphs
  if #breaks == 0 and graphs <= MOST then return true end
  local reason = breaks[1] and ", " .. breaks[1].reason or ""
  return false, ("%s: %d graphs for %d values%s"):format(line, graphs, legal, reason)
end

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true "
  .. "until while"):gmatch "%a+" do keywords[word] = true end

-- The example with each whole number replaced by N; with each argument of integers that it leaves out, by its name.
local function lines_of(d)
  local found, line = pcall(examples.example, d)
  if not found then return {} end
  for _, word in ipairs {"tmpname", "seed", "empty", "path"} do
    if line:find(word) then return {} end
  end
  local out = {}
  for at, digits in line:gmatch "()%f[%w.](%d+)%f[^%w.]" do
    out[#out + 1] = line:sub(1, at - 1) .. "N" .. line:sub(at + #digits)
  end
  if line:find "{" or not line:find "%)$" then return out end
  for _, form in ipairs(d.forms) do
    for _, a in ipairs(form) do
      if type(a) == "table" and a.type and a.type:find "integer" and not keywords[a.name] then
        local list = a.type:find "integers" and not a.type:find "integer or"
        out[#out + 1] = ("%s%s{%s = %s})"):format(line:sub(1, -2), line:find "%(%)$" and "" or ", ", a.name,
          list and "{N}" or "N")
      end
    end
  end
  return out
end

local tried = 0
for _, d in ipairs(names.list) do
  test(d.name, function()
    for _, line in ipairs(lines_of(d)) do
      tried = tried + 1
      local ok, what = sweep(d.name, line)
      met[d.name] = met[d.name] or not ok
      truthy(ok or listed[d.name], what)
    end
  end)
end

-- A graph for the first value, one for all others of its sign, one for those of the other sign, one for 0.
for _, line in ipairs {"x:diagonal(N)", "x:diag(N)", "v:diag(N)", "lt.diag_embed(v, {offset = N})", "x:triu(N)",
  "x:tril(N)"} do
  test(line .. " of negative numbers", function()
    for values, most in pairs {[{-1, -2, -3, -4, -7, -5}] = 2, [{2, -1, 3, -2, -5, 4, 0, -7, 6}] = 4} do
      local f = setfenv(assert(loadstring("return function(N) return " .. line .. " end")), environment())()
      lt.reset()
      local g = lt.compile(f)
      for _, n in ipairs(values) do equal(outcome(g, n), outcome(f, n), line .. " of " .. n) end
      local graphs = lt.counters().stats.unique_graphs
      truthy(graphs <= most and #lt._report(g).break_reasons == 0, ("%s: %d graphs"):format(line, graphs))
    end
  end)
end

test("what specialises is listed, and nothing else is", function()
  truthy(tried > 700, tried .. " lines were tried")
  for name, reason in pairs(listed) do truthy(met[name], name .. " is listed: " .. reason) end
end)

h.finish()
