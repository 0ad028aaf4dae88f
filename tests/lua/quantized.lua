-- Tests 8-bit and 4-bit weights: products against PyTorch's formula in float64, eager and compiled alike, on every
-- instruction set and any number of threads; layers made from trained ones.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local nn = lt.nn
lt.config.recompile_limit = 100

local function close(got, want, dtype)
  local bound = ({float32 = 3e-6, float16 = 2 ^ -9, bfloat16 = 2 ^ -7})[dtype]
  local far, most = (got:double() - want):abs():max():item(), want:abs():max():item()
  truthy(far <= bound * math.max(most, 1e-3), ("%g away, of %g, in %s"):format(far, most, dtype))
end
local function same(a, b, what)
  equal(a.dtype, b.dtype)
  truthy(a:eq(b):all():item(), what)
end

local function int8_case(m, n, k, dtype)
  return lt.randn(m, k):to(dtype), lt.randint(-128, 128, {n, k}):to("int8"), (lt.rand(n) * 0.1 + 0.01):to(dtype)
end
local function int8(x, w, s) return lt.weight_int8pack_mm(x, w, s) end
local function int8_formula(x, w, s) return x:double():matmul(w:double():t()) * s:double() end

local function int4_case(m, n, k, group, dtype)
  local values = lt.randint(-8, 8, {n, k}):to("int8")
  return lt.randn(m, k):to(dtype), values, (lt.randn(k / group, n, 2) * 0.1):to(dtype)
end
local function int4_formula(x, values, s, group)
  local n, k = values:size(0), values:size(1)
  local by, of = s:double():transpose(0, 1):unsqueeze(2), values:double():view(n, k / group, group)
  return x:double():matmul((of * by:select(3, 0) + by:select(3, 1)):view(n, k):t())
end

local shapes = {{1, 5, 64}, {1, 40, 200}, {2, 33, 37}, {3, 64, 128}, {4, 1, 17}, {5, 100, 64}, {9, 70, 130},
  {33, 20, 96}, {40, 300, 65}, {1, 300, 1}}

for _, dtype in ipairs {"float32", "float16", "bfloat16"} do
  test("int8, " .. dtype, function()
    lt.manual_seed(1)
    local compiled = lt.compile(int8)
    for _, s in ipairs(shapes) do
      local x, w, scales = int8_case(s[1], s[2], s[3], dtype)
      local got = int8(x, w, scales)
      equal(got.dtype, dtype)
      close(got, int8_formula(x, w, scales), dtype)
      same(compiled(x, w, scales), got, "compiled")
      same(int8(x:t():contiguous():t(), w:t():contiguous():t(), scales), got, "of other strides")
      close(int8(x, w, scales:float()), int8_formula(x, w, scales), dtype)
    end
    equal(#lt.guards(compiled) > 0, true)
  end)
  test("int4, " .. dtype, function()
    lt.manual_seed(2)
    for _, s in ipairs(shapes) do
      for _, group in ipairs {32, 64, 128, 256} do
        local k = group * (s[3] % 5 + 1)
        local x, values, scales = int4_case(s[1], s[2], k, group, dtype)
        local w = values:to("int4")
        local function int4(x, w, scales) return lt.weight_int4pack_mm(x, w, group, scales) end
        local got = int4(x, w, scales)
        close(got, int4_formula(x, values, scales, group), dtype)
        same(lt.compile(int4)(x, w, scales), got, "compiled")
        same(int4(x, w, scales:permute(2, 0, 1):contiguous():permute(1, 2, 0)), got, "scales of other strides")
      end
    end
  end)
end

test("each instruction set and any number of threads", function()
  lt.manual_seed(3)
  local x, w, s = int8_case(3, 500, 333, "float32")
  local y, v, z = int4_case(3, 500, 352, 32, "float32")
  v = v:to("int4")
  local isa, threads, first = lt.config.isa, lt.config.num_threads, nil
  for _, each in ipairs {"interp", "avx2", "avx512"} do
    lt.config.isa = each
    for _, count in ipairs {1, 3} do
      lt.config.num_threads = count
      local ok, a = pcall(int8, x, w, s)
      if ok then
        local b = lt.weight_int4pack_mm(y, v, 32, z)
        first = first or {a, b}
        same(a, first[1], each)
        same(b, first[2], each)
      end
    end
  end
  lt.config.isa, lt.config.num_threads = isa, threads
end)

test("rows do not depend on those beside them", function()
  lt.manual_seed(4)
  local x, w, s = int8_case(7, 60, 100, "float32")
  local all = int8(x, w, s)
  for i = 0, 6 do same(int8(x:narrow(0, i, 1), w, s), all:narrow(0, i, 1), "row " .. i) end
end)

test("empty ones", function()
  equal(int8(lt.randn(0, 8), lt.zeros({3, 8}, {dtype = "int8"}), lt.ones(3)):numel(), 0)
  equal(int8(lt.randn(2, 0), lt.zeros({3, 0}, {dtype = "int8"}), lt.ones(3)):sum():item(), 0)
  local none = lt.zeros({3, 0}, {dtype = "uint8"})
  equal(lt.weight_int4pack_mm(lt.randn(2, 0), none, 32, lt.ones(0, 3, 2)):sum():item(), 0)
end)

test("refused", function()
  local x, w, s = int8_case(2, 3, 64, "float32")
  raises("weight_int8pack_mm: the input must be of float32, float16 or bfloat16, got float64", int8, x:double(), w, s)
  raises("weight_int8pack_mm: 'mat2' must be of int8, got float32", int8, x, w:float(), s)
  raises("weight_int8pack_mm: the scales must be of the input's dtype float32 or float32, got int64", int8, x, w,
    s:long())
  raises("weight_int8pack_mm: 'scales' must have shape {3}, got {2}", int8, x, w, s:narrow(0, 0, 2))
  raises("cannot be multiplied (64 != 32)", int8, x, w:narrow(1, 0, 32), s)
  local bytes = w:to("uint8"):narrow(1, 0, 32)
  raises("weight_int4pack_mm: qGroupSize must be 32, 64, 128 or 256, got 16", lt.weight_int4pack_mm, x, bytes, 16,
    lt.ones(4, 3, 2))
  raises("weight_int4pack_mm: rows of 64 elements are no whole groups of 128", lt.weight_int4pack_mm, x, bytes, 128,
    lt.ones(1, 3, 2))
  raises("weight_int4pack_mm: 'qScaleAndZeros' must have shape {2, 3, 2}", lt.weight_int4pack_mm, x, bytes, 32,
    lt.ones(1, 3, 2))
end)

-- The layer's product is that of the weight it stands for, which is near the trained one.
local function layer_case(bits, most)
  lt.manual_seed(5)
  local linear = nn.Linear(256, 48)
  local q = nn.QuantizedLinear(linear, {bits = bits, group_size = 64})
  local x = lt.randn(2, 3, 256)
  lt.no_grad(function()
    local want = nn.functional.linear(x, q:dequantize(), linear.bias)
    truthy((q(x) - want):abs():max():item() < 1e-5)
    same(lt.compile(function(x) return q(x) end)(x), q(x), "compiled")
    truthy((q:dequantize() - linear.weight):abs():max():item() < most, "near the weight")
    equal(q(x:select(0, 0):select(0, 0)):dim(), 1)
  end)
  return q
end

test("layers", function()
  equal(tostring(layer_case(8, 1 / 16 / 127)), "QuantizedLinear(in_features=256, out_features=48, bias=True, bits=8)")
  equal(tostring(layer_case(4, 2 / 16 / 15)),
    "QuantizedLinear(in_features=256, out_features=48, bias=True, bits=4, group_size=64)")
  raises("QuantizedLinear: 48 features are no whole groups of 32", nn.QuantizedLinear, nn.Linear(48, 5),
    {bits = 4, group_size = 32})
  raises("QuantizedLinear: bits must be 8 or 4, got 3", nn.QuantizedLinear, nn.Linear(48, 5), {bits = 3})
end)

test("quantize_ replaces layers, saves and loads", function()
  lt.manual_seed(6)
  local tied = nn.Linear(64, 64)
  local function make()
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.ModuleList({tied, tied}), nn.Linear(64, 10, {bias = false}))
  end
  local net = make()
  equal(nn.utils.quantize_(net, {filter = function(_, name) return name ~= "3" end}), net)
  truthy(getmetatable(net[1]) == nn.QuantizedLinear and getmetatable(net[4]) == nn.Linear)
  truthy(net[3][1] == net[3][2] and getmetatable(net[3][1]) == nn.QuantizedLinear)
  equal(#net:parameters(), 3)
  local file = h.folder() .. "/quantized.safetensors"
  lt.save(file, net:state_dict())
  local other = nn.utils.quantize_(make(), {filter = function(_, name) return name ~= "3" end})
  other:load_state_dict(lt.load(file))
  same(other[1].weight, net[1].weight, "weights")
  same(other[1](lt.ones(1, 64)), net[1](lt.ones(1, 64)), "products")
  net:to("bfloat16")
  equal(net[1].weight.dtype, "int8")
  equal(net[1](lt.ones({1, 64}, {dtype = "bfloat16"})).dtype, "bfloat16")
end)

h.finish()
