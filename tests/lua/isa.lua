-- Tests that all instruction sets give the same bits for every dtype, eager and compiled, and switch at run time.
local lt = require "lutra"
local h = require "harness"
local test, truthy = h.test, h.truthy

local isas = h.isas {"interp", "avx2", "avx512"}
if #isas == 1 then h.skip("this machine has neither AVX2 nor AVX-512, so there is one instruction set") end
lt.config.isa = "avx512"

local dtypes = {"float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"}

local function same(a, b)
  if a.dtype ~= b.dtype then return false end
  return a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b))):all():item()
end

local programs = {
  arithmetic = function(x, y) return x * 3 + y - x end,
  divide = function(x, y) return x / 3, x:to("float32") / (y:to("float32") + 0.5) end,
  functions = function(x) return x:to("float32"):exp():to(x.dtype), x:sigmoid(), x:tanh() end,
  -- Far angles and large quotients go another way than their neighbours.
  angles = function(x) return x:sin(), x:tan(), (x:to("float32") * x:to("float32"):exp()):cos(), x:atan(), x:acos() end,
  logarithms = function(x) return x:log2(), x:log10(), x:exp2(), x:erfc(), x:erfinv() end,
  remainders = function(x, y)
    local a, b = x:to("float32"):exp() * 3, y:to("float32")
    return a:fmod(b), a:remainder(b), b:floor_divide(a), a:double():fmod(b:double())
  end,
  reduce = function(x) return x:sum(), x:sum(1), x:amax(0), x:argmax(1), x:to("float32"):mean(0) end,
  compare = function(x, y) return x:gt(y), x:eq(1), x:gt(y):logical_and(x:ne(0)) end,
  cast = function(x) return x:to("float16"), x:to("bfloat16"), x:to("int8"), x:to("float64"),
    x:to("int64"):to("float32") end,
  layout = function(x, y) return x:t():contiguous(), x:t() + y:t():contiguous(), x:select(1, 2) end,
  products = function(x, y) return x:to("float32"):matmul(y:to("float32"):t()) end,
}

local function run_all(isa, x, y, wrap)
  lt.config.isa = isa
  local results = {}
  for name, f in pairs(programs) do
    for i, r in ipairs{wrap(f)(x, y)} do results[name .. " " .. i] = r end
  end
  return results
end

for _, dtype in ipairs(dtypes) do
  for _, form in ipairs{"eager", "compiled"} do
    test(dtype .. " " .. form, function()
      lt.manual_seed(7)
      local float = dtype:find("float")
      local x = float and lt.randn({37, 53}) * 4 or lt.randint(0, 100, {37, 53})
      local y = float and lt.randn({37, 53}) or lt.randint(0, 3, {37, 53})
      x, y = x:to(dtype), y:to(dtype)
      if dtype == "bool" then
        programs.arithmetic = function(a, b) return a * b, a:logical_xor(b) end
        programs.reduce = function(a) return a:sum(), a:any(1), a:all(0) end
      end
      -- A prototype of its own for each set: what is compiled stays with its prototype.
      local wrap = form == "eager" and function(f) return f end or function(f)
        return lt.compile(loadstring(string.dump(f)))
      end
      local want = run_all(isas[1], x, y, wrap)
      for i = 2, #isas do
        local got = run_all(isas[i], x, y, wrap)
        for name, w in pairs(want) do
          lt.config.isa = "interp"
          truthy(same(w, got[name]), dtype .. " " .. name .. " on " .. isas[i])
        end
      end
      lt.config.isa = "avx512"
    end)
  end
end

h.finish()
