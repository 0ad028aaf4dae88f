-- Tests stored dtypes: tensors hold them, to() converts them, ops that only move memory take them, and every other op
-- refuses them by name. The numbers are PyTorch's. Each check runs eagerly and in compiled code.
local h = require "harness"
local lt = require "lutra"
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

local folder = h.folder()
local function at(name) return folder .. "/" .. name end
local STORED = {"uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"}
local inf, nan = math.huge, 0 / 0

-- f(...) eagerly, then compiled.
local function both(f, check)
  check(f)
  check(lt.compile(f))
end
local function same(got, want)
  equal(#got, #want)
  for i = 1, #want do
    truthy(got[i] == want[i] or (got[i] ~= got[i] and want[i] ~= want[i]), i .. ": " .. tostring(got[i]))
  end
end

test("made of numbers, read back, printed", function()
  deep(lt.tensor({1, 2, 3.7}, {dtype = "uint16"}):totable(), {1, 2, 3})
  deep(lt.tensor({-1, 65535}, {dtype = "uint16"}):totable(), {65535, 65535})
  deep(lt.tensor({1, 2, 3.7}, {dtype = "float8_e4m3fn"}):totable(), {1, 2, 3.75})
  deep(lt.tensor({1, 2, 3.7}, {dtype = "float8_e5m2"}):totable(), {1, 2, 3.5})
  equal(lt.tensor(4294967295, {dtype = "uint32"}):item(), 4294967295)
  equal(tostring(lt.tensor(2 ^ 63, {dtype = "uint64"}):item()), "9223372036854775808ULL")
  equal(tostring(lt.tensor({1, 65535}, {dtype = "uint16"})), "tensor([    1, 65535], dtype=uint16)")
  equal(tostring(lt.tensor({1, 2 ^ 63}, {dtype = "uint64"})),
    "tensor([                  1, 9223372036854775808], dtype=uint64)")
  equal(tostring(lt.tensor({1, 0.5}, {dtype = "float8_e5m2"})), "tensor([1.0000, 0.5000], dtype=float8_e5m2)")
  raises("tensor: data 70000 cannot be converted to uint16 without overflow", lt.tensor, {70000}, {dtype = "uint16"})
  raises("tensor: data -1 cannot be converted to uint64 without overflow", lt.tensor, {-1}, {dtype = "uint64"})
  local ffi = require "ffi"
  deep(lt.tensor(ffi.new("uint32_t[2]", {7, 4294967295})):totable(), {7, 4294967295})
  equal(lt.float8_e5m2, "float8_e5m2")
  raises("lt.float8_e3m4: no such dtype", function() return lt.float8_e3m4 end)
end)

local floats = lt.tensor {-3.7, -1, 0.3, 0.5, 300, 449, 464, 465, 500, 65520, 1e6, inf, -inf, nan, -0.0, 2 ^ -10,
  3 * 2 ^ -17, 2 ^ -18, 61439, 61440}

test("to and back rounds as PyTorch", function()
  local want = {
    uint16 = {65533, 65535, 0, 0, 300, 449, 464, 465, 500, 65520, 16960, 0, 0, 0, 0, 0, 0, 0, 61439, 61440},
    uint32 = {4294967293, 4294967295, 0, 0, 300, 449, 464, 465, 500, 65520, 1000000, 0, 0, 0, 0, 0, 0, 0, 61439, 61440},
    float8_e4m3fn = {-3.75, -1, 0.3125, 0.5, 288, 448, 448, nan, nan, nan, nan, nan, nan, nan, 0, 0, 0, 0, nan, nan},
    float8_e5m2 = {-3.5, -1, 0.3125, 0.5, 320, 448, 448, 448, 512, inf, inf, inf, -inf, nan, 0, 2 ^ -10, 2 ^ -15, 0,
      57344, inf},
  }
  for dtype, numbers in pairs(want) do
    both(function(x) return x:to(dtype):to("float64") end, function(f)
      same(f(floats):totable(), numbers)
      same(f(floats:to("float64")):totable(), numbers)
    end)
  end
  both(function(x) return x:to("uint64") end, function(f)
    deep(f(lt.tensor({-1, 5, 2 ^ 40}, {dtype = "int64"})):to("int64"):totable(), {-1, 5, 2 ^ 40})
    local large = f(lt.tensor({2 ^ 63, 2 ^ 63 + 2 ^ 11, 2 ^ 64, 3.7}, {dtype = "float64"}))
    deep(large:to("float64"):totable(), {2 ^ 63, 2 ^ 63 + 2 ^ 11, 0, 3})
    deep(large:to("float32"):totable(), {2 ^ 63, 2 ^ 63, 0, 3})
    deep(large:to("bool"):totable(), {true, true, false, true})
  end)
end)

-- The number that a code of a float8 stands for.
local function number_of(code, mantissa, bias)
  local a, sign = code % 128, code < 128 and 1 or -1
  local e, m = math.floor(a / 2 ^ mantissa), a % 2 ^ mantissa
  if mantissa == 3 and a == 127 or mantissa == 2 and a > 124 then return nan end
  if mantissa == 2 and a == 124 then return sign * inf end
  if e == 0 then return sign * m * 2 ^ (1 - bias - mantissa) end
  return sign * (1 + m / 2 ^ mantissa) * 2 ^ (e - bias)
end

test("every float8, and the halves between two", function()
  for dtype, format in pairs {float8_e4m3fn = {3, 7}, float8_e5m2 = {2, 15}} do
    local numbers, halves, even = {}, {}, {}
    for code = 0, 255 do numbers[code + 1] = number_of(code, format[1], format[2]) end
    for code = 0, 122 do
      halves[code + 1] = (numbers[code + 1] + numbers[code + 2]) / 2
      even[code + 1] = numbers[code % 2 == 0 and code + 1 or code + 2]
    end
    both(function(x) return x:to(dtype):to("float32") end, function(f)
      same(f(lt.tensor(numbers)):totable(), numbers)
      same(f(lt.tensor(halves)):totable(), even)
    end)
    same(lt.tensor(halves, {dtype = dtype}):totable(), even)
    same(lt.tensor(numbers, {dtype = dtype}):totable(), numbers)
  end
end)

test("memory moves", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = dtype})
    local function all(f, want) both(f, function(g) equal(g(x).dtype, dtype) deep(g(x):totable(), want) end) end
    all(function(t) return t:t() end, {{1, 4}, {2, 5}, {3, 6}})
    all(function(t) return t:t():contiguous() end, {{1, 4}, {2, 5}, {3, 6}})
    all(function(t) return t:clone():view(3, 2) end, {{1, 2}, {3, 4}, {5, 6}})
    all(function(t) return t[1] end, {4, 5, 6})
    all(function(t) return t:t()[lt.tensor({2, 0}, {dtype = "int64"})] end, {{3, 6}, {1, 4}})
    all(function(t) return t:gather(1, lt.tensor({{2}, {0}}, {dtype = "int64"})) end, {{3}, {4}})
    all(function(t) return t:index_select(0, lt.tensor({1}, {dtype = "int64"})) end, {{4, 5, 6}})
    all(function(t) return lt.cat({t, t}, 1) end, {{1, 2, 3, 1, 2, 3}, {4, 5, 6, 4, 5, 6}})
    all(function(t) return lt.stack({t[0], t[1]}) end, {{1, 2, 3}, {4, 5, 6}})
    all(function(t) return t:flip(1) end, {{3, 2, 1}, {6, 5, 4}})
    all(function(t) return lt.zeros_like(t) end, {{0, 0, 0}, {0, 0, 0}})
    all(function(t) return lt.full({2}, 3, {dtype = dtype}) end, {3, 3})
    all(function(t) return t:expand(1, 2, 3) end, {{{1, 2, 3}, {4, 5, 6}}})
    all(function(t) local y = t:clone() y:fill_(3) return y end, {{3, 3, 3}, {3, 3, 3}})
    all(function(t) local y = t:clone() y[0] = t[1] return y end, {{4, 5, 6}, {4, 5, 6}})
    all(function(t) local y = t:clone() y:copy_(lt.ones(2, 3)) return y end, {{1, 1, 1}, {1, 1, 1}})
    deep(x[lt.tensor({{true, false, false}, {false, false, true}})]:totable(), {1, 6})
    local y = x:clone()
    y[lt.tensor({1}, {dtype = "int64"})] = x[lt.tensor({0}, {dtype = "int64"})]
    deep(y:totable(), {{1, 2, 3}, {1, 2, 3}})
  end
end)

test("equality", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({1, 2, 3}, {dtype = dtype})
    equal(lt.equal(x, x:clone()), true)
    equal(lt.equal(x, lt.tensor({1, 2, 4}, {dtype = dtype})), false)
    raises("equal: dtypes " .. dtype .. " and float32 differ", lt.equal, x, lt.ones(3))
  end
  local x = lt.tensor({0.0, nan}, {dtype = "float8_e5m2"})
  equal(lt.equal(x, x), false)
  equal(lt.equal(x[0], lt.tensor(-0.0, {dtype = "float8_e5m2"})), true)
end)

test("files", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({{1, 2}, {3, 4}}, {dtype = dtype})
    for _, name in ipairs {"t.safetensors", "t.npz", "t.npy"} do
      local numpy = dtype:find "uint"
      if numpy or name == "t.safetensors" then
        lt.save(at(name), name == "t.npy" and x or {x = x})
        local y = lt.load(at(name))
        y = name == "t.npy" and y or y.x
        equal(y.dtype, dtype) deep(y:totable(), {{1, 2}, {3, 4}})
      else
        raises("save: NumPy has no " .. dtype, lt.save, at(name), name == "t.npy" and x or {x = x})
      end
    end
  end
end)

test("every other op refuses, by its name and the argument's", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({1, 2}, {dtype = dtype})
    local why = ": not defined for " .. dtype .. ", which tensors can only be stored in; convert by x:to(dtype)"
    local function refused(op, argument, f) both(f,
      function(g) raises(op .. ": argument '" .. argument .. "'" .. why, g, x) end) end
    refused("add", "input", function(t) return t + 1 end)
    refused("add", "input", function(t) return t + t end)
    refused("mul", "other", function(t) return lt.ones(2) * t end)
    refused("sum", "input", function(t) return t:sum() end)
    refused("lt", "input", function(t) return t:lt(2) end)
    refused("sort", "input", function(t) return (t:sort()) end)
    refused("arange", "dtype", function(t) return lt.arange(3, {dtype = t.dtype}) end)
    refused("rand", "dtype", function(t) return lt.rand(3, {dtype = t.dtype}) end)
    refused("relu_", "input", function(t) return t:clone():relu_() end)
    raises(dtype .. " have no common dtype", lt.cat, {lt.ones(1), x})
  end
end)

-- Complex elements as "re+imi", so that they compare.
local function texts(x)
  local function walk(v)
    if type(v) ~= "table" then return tostring(v) end
    local out = {}
    for i, each in ipairs(v) do out[i] = walk(each) end
    return out
  end
  return walk(x:totable())
end
local z = lt.complex(lt.tensor {1, 2.5, -3}, lt.tensor {0, -2, nan})
local ordinary = lt.complex(lt.tensor {{1, 2}, {3, 4}}, lt.tensor {{0, -1}, {-2, -3}})

test("complex: made, read, printed", function()
  local i = z:new_tensor({0}):item()
  equal(tostring(i), "0+0i")
  equal(z.dtype, "complex64") equal(lt.is_complex(z), true) equal(lt.ones(1):is_complex(), false)
  equal(z[1]:item().re, 2.5) equal(z[1]:item().im, -2)
  equal(tostring(z), "tensor([ 1.0000+0.j,  2.5000-2.j, -3.0000+nanj])")
  equal(tostring(z:to("complex128")), "tensor([ 1.0000+0.j,  2.5000-2.j, -3.0000+nanj], dtype=complex128)")
  equal(tostring(z[0]), "tensor(1.+0.j)")
  equal(tostring(lt.zeros({0}, {dtype = "complex64"})), "tensor([], dtype=complex64)")
  equal(tostring(lt.complex(lt.tensor {{1e-5, 1000.5}}, lt.tensor {{1, -2}})),
    "tensor([[1.0000e-05+1.j, 1.0005e+03-2.j]])")
  local made = lt.tensor({{z[1]:item(), 7}, {true, 2}})
  equal(made.dtype, "complex64") deep(texts(made), {{"2.5-2i", "7+0i"}, {"1+0i", "2+0i"}})
  equal(tostring(lt.tensor(z[1]:item(), {dtype = "complex128"})), "tensor(2.5000-2.j, dtype=complex128)")
  raises("tensor: data 2.5-2i is complex, float32 is not", lt.tensor, {z[1]:item()}, {dtype = "float32"})
  local written = ordinary:clone()
  written[0] = z[1]:item()
  deep(texts(written), {{"2.5-2i", "2.5-2i"}, {"3-2i", "4-3i"}})
  raises("index: the assigned number is complex, float32 is not",
    function() local y = lt.ones(2) y[0] = z[1]:item() end)
  local ffi = require "ffi"
  local array = ffi.new("complex[2]", {{1, 2}, {3, 4}})
  deep(texts(lt.tensor(array)), {"1+2i", "3+4i"}) equal(lt.tensor(array).dtype, "complex128")
  equal(lt.cfloat, "complex64") equal(lt.cdouble, "complex128")
end)

test("complex: parts are views", function()
  both(function(t) return lt.view_as_real(t), t.real, t.imag, lt.real(t), lt.imag(t) end, function(f)
    local parts, re, im, re2, im2 = f(ordinary)
    deep(parts:totable(), {{{1, 0}, {2, -1}}, {{3, -2}, {4, -3}}})
    deep(re:totable(), {{1, 2}, {3, 4}}) deep(im:totable(), {{0, -1}, {-2, -3}})
    equal(re:equal(re2) and im:equal(im2), true)
    equal(parts:data_ptr(), ordinary:data_ptr()) equal(im:data_ptr(), ordinary:data_ptr() + 4)
  end)
  both(function(t) return lt.view_as_complex(t) end, function(f)
    local x = lt.tensor {{9, 9}, {1, 2}, {3, 4}}
    deep(texts(f(x)), {"9+9i", "1+2i", "3+4i"})
    deep(texts(f(x["1:"])), {"1+2i", "3+4i"})
    equal(f(x:double()).dtype, "complex128")
    equal(f(x["1:"]):storage_offset(), 1)
  end)
  both(function(t) t.imag:fill_(5) lt.view_as_real(t)[0]:zero_() return t end, function(f)
    deep(texts(f(ordinary:clone())), {{"0+0i", "0+0i"}, {"3+5i", "4+5i"}})
  end)
  both(function(t) local c = lt.view_as_complex(t) c[0] = c[1] return t * 2 end, function(f)
    deep(f(lt.tensor {{1, 2}, {3, 4}}):totable(), {{6, 8}, {6, 8}})
  end)
  both(function(t) return (t.real * 2 + t.imag):sum(), lt.view_as_complex(lt.view_as_real(t) + 1):t() end, function(f)
    local sum, moved = f(ordinary)
    equal(sum:item(), 14) deep(texts(moved), {{"2+1i", "4-1i"}, {"3+0i", "5-2i"}})
  end)
  equal(lt.real(lt.ones(2)).dtype, "float32")
  raises("imag: only defined for complex tensors, got float32", function() return lt.ones(2).imag end)
  raises("view_as_real: only defined for complex tensors, got float32", lt.view_as_real, lt.ones(2))
  raises("view_as_complex: the last dimension must have size 2, got shape {2, 3}", lt.view_as_complex, lt.ones(2, 3))
  raises("view_as_complex: the last dimension must have stride 1, got 2", lt.view_as_complex, lt.ones(2, 4)[":, ::2"])
  raises("view_as_complex: the storage offset must be divisible by 2, got 1", lt.view_as_complex,
    lt.ones(5)["1:"]:view(2, 2))
  raises("view_as_complex: each stride but the last must be divisible by 2, got 3", lt.view_as_complex,
    lt.ones(2, 3)[":, :2"])
  raises("view_as_complex: only defined for float32 and float64 tensors, got int32", lt.view_as_complex,
    lt.ones(2, 2):to("int32"))
  raises("complex: dtypes float32 and float64 differ", lt.complex, lt.ones(2), lt.ones(2):double())
end)

test("complex: to and promotion", function()
  local rows = {bool = {true, true, true}, int32 = {1, 2, -3}, float16 = {1, 2.5, -3}, uint16 = {1, 2, 65533},
    float8_e5m2 = {1, 2.5, -3}}
  for dtype, want in pairs(rows) do
    both(function(t) return t:to(dtype) end, function(f) deep(f(z):totable(), want) end)
  end
  both(function(t) return t:to("bool") end, function(f)
    deep(f(lt.complex(lt.tensor {0, 0, 1}, lt.tensor {0, 2, 0})):totable(), {false, true, true})
  end)
  for _, dtype in ipairs {"bool", "uint8", "int64", "bfloat16", "float64", "uint32", "float8_e4m3fn"} do
    both(function(t) return t:to("complex64"), t:to("complex128") end, function(f)
      local a, b = f(lt.tensor({1, 0, 1}, {dtype = dtype}))
      deep(texts(a), {"1+0i", "0+0i", "1+0i"}) deep(texts(b), {"1+0i", "0+0i", "1+0i"})
    end)
  end
  equal(lt.cat({z, lt.ones(1)}).dtype, "complex64") equal(lt.cat({z, lt.ones(1):double()}).dtype, "complex128")
  raises("to: complex tensors have no gradients yet",
    function() return lt.ones(2, {requires_grad = true}):to("complex64") end)
end)

test("complex: a write whose source requires grad is refused", function()
  local x = lt.ones(2, {requires_grad = true})
  for _, write in ipairs {
    function(to) to:copy_(x) end, function(to) to.real:copy_(x) end, function(to) to.imag:mul_(x) end,
    function(to) lt.view_as_real(to):add_(x:unsqueeze(1)) end, function(to) to[{0}] = x:sum() end,
  } do
    local to = lt.zeros({2}, {dtype = "complex64"})
    raises("complex tensors have no gradients yet", write, to)
    raises("complex tensors have no gradients yet", lt.compile(write), to)
    deep(texts(to), {"0+0i", "0+0i"})
    lt.no_grad(write, to)
  end
end)

test("complex: compiled results that are views through complex elements are views of the same bases", function()
  local makes = {
    function(z) return lt.view_as_complex(z).real end, function(z) return lt.view_as_complex(z).imag end,
    function(z) return lt.view_as_real(lt.view_as_complex(z)) end,
    function(z) return lt.view_as_complex(z)[{{1, 3}}] end,
    function(z) return lt.view_as_complex(z)[{{1, z.shape[1]}}].real end,
    function(z) local c = lt.view_as_complex(z) return c.imag, c end,
    function(z) local c = lt.view_as_complex(z) return c.real, c.imag end,
    function(z) return lt.view_as_complex(z:view(-1):view(3, 2)).real end,
    function(z) local q = z * 1 return lt.view_as_complex(q).real, q end,
    function(z) local q = z * 1 return lt.view_as_complex(q).real, lt.view_as_complex(q), q[{{1, 3}}] end,
    function(z) return lt.view_as_complex(z * 1).real end,
    function(z) return lt.no_grad(function() return lt.view_as_complex(z).real end) end,
  }
  local laters = {
    function(z, w) z:mul_(w) end, function(z) z:mul_(3) end, function(_, w, r) r:mul_(w[0]) end,
    function(_, _, r) lt.view_as_real(lt.view_as_complex(lt.zeros(1, 2))) r:detach():zero_() end,
    function(_, w, _, s) if s then s:mul_(w[0]) end end,
    function(_, w, _, s, t) if t then t:mul_(w[0]) elseif s then s:detach():zero_() end end,
  }
  local function seen(f, later)
    local out, w = {}, lt.tensor({2, 3}, {requires_grad = true})
    local z = lt.arange(6, {dtype = "float32"}):view(3, 2)
    local r, s, t = f(z)
    local function keep(what, ...)
      local ok, v = pcall(...)
      local text = tostring(v):gsub("^[^ ]*:%d+: ", "")
      out[#out + 1] = what .. " " .. text .. (ok and tostring(v and v.requires_grad) or "")
      return ok and v
    end
    keep("later", function() later(z, w, r, s, t) end)
    for i, v in pairs {z, r, s, t} do
      keep("value " .. i, function() return v:detach() end)
      local read = keep("read " .. i, function() return v:clone() end)
      if read and read.requires_grad and read.dtype == lt.float32 then
        read:sum():backward {retain_graph = true}
        keep("gradient", function() return w.grad end)
      end
    end
    return table.concat(out, "\n")
  end
  for i, make in ipairs(makes) do
    for k, later in ipairs(laters) do
      for _, dynamic in ipairs {false, true} do
        local want, compiled = seen(make, later), lt.compile(make, {dynamic = dynamic})
        for _ = 1, 2 do equal(seen(compiled, later), want, ("result %d, then %d"):format(i, k)) end
      end
    end
  end
end)

test("complex: a conjugate transpose", function()
  local x = lt.complex(lt.arange(6):float():view(2, 3), lt.ones(2, 3))
  for _, name in ipairs {"H", "mH"} do
    local function of(t) return t[name] end
    for _, f in ipairs {of, lt.compile(of)} do
      local y = f(x)
      deep(y.real:totable(), x.real:t():totable())
      deep(y.imag:totable(), {{-1, -1}, {-1, -1}, {-1, -1}})
      equal(f(x.real):data_ptr(), x.real:data_ptr())
    end
  end
  local alone = x:conj()
  alone.imag:zero_()
  equal(x.imag:sum():item(), 6)
end)

test("complex: what is read of a view after a write with history is refused", function()
  local w = lt.ones(2, {requires_grad = true})
  local function written(z, c) z:mul_(w) return c end
  for _, write in ipairs {written, lt.compile(written)} do
    for _, read in ipairs {
      function(c) return c:clone() end, function(c) return lt.view_as_real(c) end, function(c) return c.real end,
      function(c) return c:t() end, function(_, part) return part * 2 end, function(c) return lt.cat {c, c} end,
      function(c) c:zero_() end,
    } do
      for _, base in ipairs {function(z) return z end, function(z) return z:view(-1):view(2, 2, 2) end} do
        local z = lt.zeros(2, 2, 2)
        local c = lt.view_as_complex(base(z))
        local part = c.imag
        deep(texts(c:clone()), {{"0+0i", "0+0i"}, {"0+0i", "0+0i"}})
        z:add_(1)
        deep(part:totable(), {{1, 1}, {1, 1}}, nil, "without history")
        write(z, c)
        for _ = 1, 2 do
          raises("complex tensors have no gradients yet", read, c, part)
          raises("complex tensors have no gradients yet", lt.compile(read), c, part)
        end
        deep(texts(c:detach()), {{"1+1i", "1+1i"}, {"1+1i", "1+1i"}})
        equal(c.requires_grad, true)
        equal(tostring(c):sub(1, 7), "tensor(")
        lt.no_grad(read, c, part)
      end
    end
    local f = lt.compile(function(z, c) z:mul_(w) return lt.view_as_real(c) end)
    for _ = 1, 2 do
      local z = lt.ones(2, 2)
      raises("complex tensors have no gradients yet", f, z, lt.view_as_complex(z))
    end
    local z = lt.zeros(2, 2)
    local c = lt.no_grad(lt.view_as_complex, z)
    write(z, c)
    deep(texts(c:clone()), {"0+0i", "0+0i"}, nil, "a view that was made in no_grad has no history")
    local both_ways = lt.view_as_real(c):requires_grad_()
    both_ways:sum():backward()
    deep(both_ways.grad:totable(), {{1, 1}, {1, 1}})
  end
end)

test("complex: memory moves", function()
  for _, dtype in ipairs {"complex64", "complex128"} do
    local x = ordinary:to(dtype)
    local function all(f, want) both(f, function(g) equal(g(x).dtype, dtype) deep(texts(g(x)), want) end) end
    local index = lt.tensor({1, 0}, {dtype = "int64"})
    all(function(t) return t:t() end, {{"1+0i", "3-2i"}, {"2-1i", "4-3i"}})
    all(function(t) return t:t():contiguous() end, {{"1+0i", "3-2i"}, {"2-1i", "4-3i"}})
    all(function(t) return t:clone():view(4) end, {"1+0i", "2-1i", "3-2i", "4-3i"})
    all(function(t) return t[index] end, {{"3-2i", "4-3i"}, {"1+0i", "2-1i"}})
    all(function(t) return t:index_select(1, index) end, {{"2-1i", "1+0i"}, {"4-3i", "3-2i"}})
    all(function(t) return t:gather(1, index:view(2, 1)) end, {{"2-1i"}, {"3-2i"}})
    all(function(t) return lt.cat({t, t}, 1) end, {{"1+0i", "2-1i", "1+0i", "2-1i"}, {"3-2i", "4-3i", "3-2i", "4-3i"}})
    all(function(t) return lt.stack({t[0], t[1]}, 1) end, {{"1+0i", "3-2i"}, {"2-1i", "4-3i"}})
    all(function(t) return t:flip(1) end, {{"2-1i", "1+0i"}, {"4-3i", "3-2i"}})
    all(function(t) return lt.zeros_like(t) end, {{"0+0i", "0+0i"}, {"0+0i", "0+0i"}})
    all(function(t) return lt.full({2}, 3, {dtype = dtype}) end, {"3+0i", "3+0i"})
    all(function(t) return t[0]:expand(2, 2):clone() end, {{"1+0i", "2-1i"}, {"1+0i", "2-1i"}})
    all(function(t) local y = t:clone() y:fill_(3) return y end, {{"3+0i", "3+0i"}, {"3+0i", "3+0i"}})
    all(function(t) local y = t:clone() y[0] = t[1] return y end, {{"3-2i", "4-3i"}, {"3-2i", "4-3i"}})
    all(function(t) local y = t:clone() y:t():copy_(lt.tensor {{5, 6}, {7, 8}}) return y end,
      {{"5+0i", "7+0i"}, {"6+0i", "8+0i"}})
    all(function(t) local y = t:clone() y[index["1:"]] = t[1] return y end, {{"3-2i", "4-3i"}, {"3-2i", "4-3i"}})
    local mask = lt.tensor {{true, false}, {false, true}}
    all(function(t) return lt.where(mask, t, lt.zeros(2, 2)) end, {{"1+0i", "0+0i"}, {"0+0i", "4-3i"}})
    all(function(t) return t:masked_fill(mask, 2) end, {{"2+0i", "2-1i"}, {"3-2i", "2+0i"}})
    all(function(t) local y = t:clone() y[mask] = t:t():flip(0):reshape(-1)["2:"] return y end,
      {{"1+0i", "2-1i"}, {"3-2i", "3-2i"}})
    all(function(t) return t:masked_scatter(mask, t:flip(0)) end, {{"3-2i", "2-1i"}, {"3-2i", "4-3i"}})
    deep(texts(x[mask]), {"1+0i", "4-3i"})
    deep(texts(x:masked_select(lt.tensor {true, false})), {"1+0i", "3-2i"})
    deep(texts(lt.cat({x, x}):unfold(0, 2, 2)[1]), {{"1+0i", "3-2i"}, {"2-1i", "4-3i"}})
  end
end)

test("complex: equality", function()
  local x = lt.complex(lt.tensor {1, 2, 3}, lt.tensor {1, 0, -1})
  both(function(t) return t:eq(t:flip(0)), t:ne(2), t:eq(lt.tensor {2, 2, 2}) end, function(f)
    local a, b, c = f(x)
    deep(a:totable(), {false, true, false}) deep(b:totable(), {true, false, true}) deep(c:totable(),
      {false, true, false})
  end)
  equal(x:equal(x:clone()), true) equal(x:equal(x:flip(0)), false) equal(z:equal(z), false)
  equal(x:allclose(lt.view_as_complex(lt.view_as_real(x) + 1e-7)), true)
  equal(x:allclose(lt.view_as_complex(lt.view_as_real(x) + 1e-2)), false)
  deep(z:isclose(z):totable(), {true, true, false}) deep(z:isclose(z, {equal_nan = true}):totable(), {true, true, true})
  for _, dtype in ipairs(STORED) do
    local s = lt.tensor({1, 2, 3}, {dtype = dtype})
    both(function(t) return t:eq(t:flip(0)), t:ne(2) end, function(f)
      local a, b = f(s)
      deep(a:totable(), {false, true, false}) deep(b:totable(), {true, false, true})
    end)
    both(function(t) return lt.where(t:eq(2), t, t:flip(0)) end, function(f) deep(f(s):totable(), {3, 2, 1}) end)
  end
end)

test("complex: files", function()
  for _, dtype in ipairs {"complex64", "complex128"} do
    local x = ordinary:t():to(dtype)
    for _, name in ipairs {"c.safetensors", "c.npz", "c.npy"} do
      if name ~= "c.safetensors" or dtype == "complex64" then
        lt.save(at(name), name == "c.npy" and x or {x = x})
        local y = lt.load(at(name))
        y = name == "c.npy" and y or y.x
        equal(y.dtype, dtype) deep(texts(y), texts(x))
      else
        raises("save: .safetensors files have no complex128: convert 'x' by x:to(dtype), or save to .npz", lt.save,
          at(name), {x = x})
      end
    end
  end
end)

test("complex: arithmetic is refused by name", function()
  local function refused(op, argument, f)
    both(f, function(g)
      raises(op .. ": argument '" .. argument .. "': not defined for complex64, which tensors can only be stored in", g,
        ordinary)
    end)
  end
  refused("add", "input", function(t) return t + 1 end)
  refused("mul", "other", function(t) return lt.ones(2, 2) * t end)
  refused("matmul", "input", function(t) return lt.matmul(t, t) end)
  refused("sum", "input", function(t) return t:sum() end)
  refused("abs", "input", function(t) return t:abs() end)
  refused("randn", "dtype", function(t) return lt.randn(2, {dtype = t.dtype}) end)
  raises("index_put: accumulate: not defined for complex64", lt.index_put, z, {lt.tensor({0}, {dtype = "int64"})},
    z["1:2"], true)
end)

test("int4: two elements a byte", function()
  local x = lt.tensor({{1, -2, 7, -8}, {3, 4, -5, 0}}, {dtype = "int4"})
  equal(x.dtype, "int4") equal(x.nbytes, 4) deep(x.shape, {2, 4})
  deep(x:totable(), {{1, -2, 7, -8}, {3, 4, -5, 0}})
  equal(tostring(x), "tensor([[ 1, -2,  7, -8],\n        [ 3,  4, -5,  0]], dtype=int4)")
  for _, dtype in ipairs {"int8", "int64", "float32", "bfloat16", "complex64", "uint16", "bool"} do
    both(function(t) return t:to(dtype):to("float32") end, function(f)
      deep(f(x):totable(), lt.tensor({{1, -2, 7, -8}, {3, 4, -5, 0}}):to(dtype):to("float32"):totable())
    end)
  end
  both(function(t) return t:to("int4") end, function(f)
    deep(f(lt.tensor {1.9, -1.9, 9, -9}):totable(), {1, -1, -7, 7})
    deep(f(lt.tensor {{true, false}}):totable(), {{1, 0}})
    deep(f(x:to("int8")):totable(), x:totable())
  end)
  both(function(w, s) return (w:to("float32") * s):sum(1) end,
    function(f) deep(f(x, lt.tensor {{0.5}, {2}}):totable(), {-1, 4}) end)
  local index = lt.tensor({1, 0}, {dtype = "int64"})
  local function all(f, want) both(f, function(g) equal(g(x).dtype, "int4") deep(g(x):totable(), want) end) end
  all(function(t) return t[1] end, {3, 4, -5, 0})
  all(function(t) return t[":, 2:"] end, {{7, -8}, {-5, 0}})
  all(function(t) return t[":, 2:"]:clone() end, {{7, -8}, {-5, 0}})
  all(function(t) return t:view(8) end, {1, -2, 7, -8, 3, 4, -5, 0})
  all(function(t) return lt.cat({t, t[":1"]}) end, {{1, -2, 7, -8}, {3, 4, -5, 0}, {1, -2, 7, -8}})
  all(function(t) return lt.stack({t[1], t[0]}) end, {{3, 4, -5, 0}, {1, -2, 7, -8}})
  all(function(t) return t[index] end, {{3, 4, -5, 0}, {1, -2, 7, -8}})
  all(function(t) return t:index_select(0, index) end, {{3, 4, -5, 0}, {1, -2, 7, -8}})
  all(function(t) return t:flip(0) end, {{3, 4, -5, 0}, {1, -2, 7, -8}})
  all(function(t) return lt.zeros_like(t) end, {{0, 0, 0, 0}, {0, 0, 0, 0}})
  all(function(t) local y = t:clone() y[0] = t[1] return y end, {{3, 4, -5, 0}, {3, 4, -5, 0}})
  all(function(t) local y = t:clone() y[1] = 2 return y end, {{1, -2, 7, -8}, {2, 2, 2, 2}})
  all(function(t) local y = t:clone() y:fill_(-3) return y end, {{-3, -3, -3, -3}, {-3, -3, -3, -3}})
  all(function(t) local y = t:clone() y[":, :2"] = lt.ones(2, 2) return y end, {{1, 1, 7, -8}, {1, 1, -5, 0}})
  both(function(t) local y = lt.zeros(2, 4) y:copy_(t) return y end, function(f) deep(f(x):totable(), x:totable()) end)
  equal(x:equal(x:clone()), true) equal(x:equal(x:flip(0)), false)
  deep(x:eq(7):totable(), {{false, false, true, false}, {false, false, false, false}})
  raises("select: int4 lies two elements a byte", function() return x[":, 1"] end)
  raises("slice: int4 lies two elements a byte", function() return x[":, 1:3"] end)
  raises("t: int4 lies two elements a byte", function() return x:t() end)
  raises("to: int4 lies two elements a byte, so the last dimension is whole and even: not so with sizes {3}",
    function() return lt.ones(3):to("int4") end)
  raises("gather: not defined for int4, which lies two elements a byte; convert by x:to('int8')", lt.gather, x, 0,
    index:view(1, 2))
  raises("flip: not defined for int4", lt.flip, x, {1})
  raises("add: argument 'input': not defined for int4", function() return x + 1 end)
  raises("tensor: data 8 cannot be converted to int4 without overflow", lt.tensor, {8, 0}, {dtype = "int4"})
  raises("save: .safetensors files have no int4: convert 'x' by x:to(dtype)", lt.save, at("i.safetensors"), {x = x})
  raises("save: NumPy has no int4: convert by x:to(dtype)", lt.save, at("i.npy"), x)
end)

test("finfo and iinfo", function()
  local function one(f, dtype, want)
    local got = f(dtype)
    for key, v in pairs(want) do truthy(got[key] == v, dtype .. " " .. key .. ": " .. tostring(got[key])) end
  end
  one(lt.finfo, "float8_e4m3fn", {bits = 8, max = 448, min = -448, eps = 0.125, tiny = 2 ^ -6, resolution = 1})
  one(lt.finfo, "float8_e5m2", {bits = 8, max = 57344, min = -57344, eps = 0.25, tiny = 2 ^ -14, resolution = 1})
  one(lt.iinfo, "uint16", {bits = 16, min = 0, max = 65535})
  one(lt.iinfo, "uint32", {bits = 32, min = 0, max = 4294967295})
  one(lt.iinfo, "uint64", {bits = 64, min = 0ULL, max = 18446744073709551615ULL})
  for _, dtype in ipairs {"float8_e4m3fn", "float8_e5m2"} do
    local most = lt.finfo(dtype).max
    equal(lt.tensor(most, {dtype = dtype}):item(), most)
  end
end)

test("16 dimensions", function()
  local sizes = {}
  for d = 1, 16 do sizes[d] = d % 3 == 0 and 2 or 1 end
  local x = lt.arange(32, {dtype = "float32"}):reshape(sizes)
  both(function(t) return t:amax(), t:sum({0, 5, 15}), (t + t):transpose(2, 14):contiguous(), t:softmax(11),
    t:sort(14) end, function(f)
    local most, sum, moved = f(x)
    equal(most:item(), 31)
    equal(sum:dim(), 13) equal(sum:sum():item(), 496)
    deep(moved:reshape(2, 2, 2, 2, 2):totable(), (x + x):reshape(2, 2, 2, 2, 2):transpose(0, 4):totable())
  end)
  deep(x:repeat_interleave(2, 2).shape[3], 4)
  deep(x["repeat"](x, unpack(sizes)).shape[3], 4)
  equal(tostring(x):sub(1, 23), "tensor(" .. ("["):rep(16))
  local y = x:clone()
  y[lt.tensor({0}, {dtype = "int64"})] = 0
  equal(y:sum():item(), 0)
  raises("tensors have at most 16 dimensions, got 17", function() return x:unsqueeze(0) end)
  raises("tensors have at most 16 dimensions, got 17", lt.compile(function(t) return t:unsqueeze(0) end), x)
  sizes[17] = 1
  raises("tensors have at most 16 dimensions, got 17", lt.zeros, sizes)
  for d = 18, 40 do sizes[d] = 1 end
  raises("tensors have at most 16 dimensions, got 40", lt.zeros, sizes)
end)

h.finish()
