-- Tests exchange of tensor memory with others: lt.from_blob, lt.from_ffi, lt.from_dlpack, x:to_dlpack.
local lt = require "lutra"
local ffi = require "ffi"
local h = require "harness"
local test, equal, truthy, fails = h.test, h.equal, h.truthy, h.raises

local function collect() for _ = 1, 3 do collectgarbage() end end

test("an array of the ffi is a tensor without a copy", function()
  local array = ffi.new("float[2][3]", {{1, 2, 3}, {4, 5, 6}})
  local x = lt.from_ffi(array)
  equal(x.dtype, "float32")
  equal(x.shape[1], 2) equal(x.shape[2], 3)
  x:mul_(10)
  equal(array[1][2], 60)
  array[0][0] = 7
  equal(x[{0, 0}]:item(), 7)
  equal(lt.from_ffi(ffi.new("int64_t[?]", 5)).dtype, "int64")
  equal(lt.from_ffi(ffi.new("uint8_t[4]")):sum():item(), 0)
  equal(lt.from_ffi(ffi.new("double[0]")):numel(), 0)
end)

test("the array lives as long as a tensor over it", function()
  local watch = setmetatable({}, {__mode = "k"})
  local x = (function()
    local array = ffi.new("double[1000]")
    for i = 0, 999 do array[i] = i end
    watch[array] = true
    return lt.from_ffi(array):view(10, 100)[3]
  end)()
  collect()
  truthy(next(watch))
  for _ = 1, 50 do ffi.new("double[1000]") end
  equal(x:sum():item(), 34950)
  x = nil
  collect()
  equal(next(watch), nil)
end)

test("memory at an address, with strides and a deleter", function()
  local array, gone = ffi.new("double[12]"), 0
  for i = 0, 11 do array[i] = i end
  local function deleter(at) gone = gone + (at == tonumber(ffi.cast("uintptr_t", array)) and 1 or 100) end
  local x = lt.from_blob(ffi.cast("double *", array), {3, 2}, {dtype = "float64", strides = {1, 6}, deleter = deleter})
  truthy(x:equal(lt.tensor({{0, 6}, {1, 7}, {2, 8}}, {dtype = "float64"})))
  local y = lt.from_blob(x:data_ptr(), 4, {dtype = lt.float64})
  equal(y[3]:item(), 3)
  equal(lt.from_blob(array, {}, {dtype = "float64"}):item(), 0)
  local view = x[{":", 1}]
  x = nil
  collect()
  equal(gone, 0)
  equal(view:sum():item(), 21)
  view = nil
  collect()
  equal(gone, 1)
  x = lt.from_blob(array, {2}, {dtype = "float64", deleter = deleter})
  x:free()
  equal(gone, 2)
  x = lt.from_blob(array, {2}, {dtype = "float64", deleter = function() error "nobody hears this" end})
  x:free()
end)

test("gradients and compiled code", function()
  local array = ffi.new("float[4]", 1, 2, 3, 4)
  local w = lt.from_ffi(array):requires_grad_()
  local f = lt.compile(function(x) return (x * w):sum() end)
  for _ = 1, 3 do f(lt.ones(4)):backward() end
  equal(w.grad[0]:item(), 3)
  lt.no_grad(function() w:sub_(w.grad) end)
  equal(array[0], -2)
end)

test("DLPack there and back", function()
  for _, dtype in ipairs {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "uint16", "uint32", "uint64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"} do
    for _, versioned in ipairs {true, false} do
      local x = lt.ones(2, 3):to(dtype)
      local d = x:to_dlpack {versioned = versioned}
      local y = lt.from_dlpack(d)
      equal(y.dtype, dtype)
      equal(y:data_ptr(), x:data_ptr())
      truthy(d == nil, "it was taken")
      fails("a null pointer, or a tensor that was taken before", lt.from_dlpack, d)
    end
  end
  local x = lt.arange(24):view(2, 3, 4):permute(2, 0, 1):narrow(0, 1, 2)
  local y = lt.from_dlpack(x:to_dlpack())
  truthy(y:equal(x))
  y:zero_()
  equal(x:sum():item(), 0)
  equal(lt.from_dlpack(lt.zeros(0, 3):to_dlpack()):numel(), 0)
  equal(lt.from_dlpack(lt.tensor(5):to_dlpack()):item(), 5)
end)

test("a struct that nobody takes is released", function()
  local x = lt.ones(3)
  local d = x:to_dlpack()
  fails("free: the memory is shared", x.free, x)
  fails("resize_: the memory is shared", x.resize_, x, 100)
  equal(x:sum():item(), 3)
  d = nil
  collect()
  x:free()
end)

ffi.cdef [[
struct DLManagedTensorVersioned {
  uint32_t major, minor; void *ctx; void (*deleter)(struct DLManagedTensorVersioned *); uint64_t flags;
  void *data; int32_t device_type, device_id; int32_t ndim; uint8_t code, bits; uint16_t lanes;
  int64_t *shape, *strides; uint64_t byte_offset;
};]]

test("structs that are refused stay their owner's", function()
  local x = lt.ones(2, 3)
  local function refused(text, change)
    local d = x:to_dlpack()
    change(d)
    fails(text, lt.from_dlpack, d)
    truthy(d ~= nil)
  end
  refused("version 2.0 of DLPack is not known", function(d) d.major = 2 d.minor = 0 end)
  refused("the memory may only be read", function(d) d.flags = 1 end)
  refused("memory of device type 7 cannot be used", function(d) d.device_type = 7 end)
  refused("there is no dtype for elements of code 2, 24 bits, 1 lanes", function(d) d.bits = 24 end)
  refused("4 lanes", function(d) d.lanes = 4 end)
  refused("dimensions, got 17", function(d) d.ndim = 17 end)
  refused("a tensor cannot have negative stride -1", function(d) d.strides[0] = -1 end)
  refused("negative size", function(d) d.shape[0] = -1 end)
  refused("overflow", function(d) d.shape[0] = 2 ^ 62 end)
  refused("aligned to 4 bytes", function(d) d.byte_offset = 1 end)
  refused("a null pointer", function(d) d.data = nil end)
  refused("the tensor has no sizes", function(d) d.shape = nil end)
  collect()
  x:free()
end)

test("what is refused", function()
  local array = ffi.new("float[4]")
  fails("from_ffi: argument 'array' must be an array of numbers made by ffi.new, got number 3", lt.from_ffi, 3)
  fails("a pointer goes to from_blob", lt.from_ffi, ffi.cast("float *", array))
  fails("from_blob: argument 'pointer' must be a pointer or an address, got nil", lt.from_blob)
  fails("from_blob: number -1 is no address", lt.from_blob, -1, {1})
  fails("from_blob: argument 'sizes' must be a list of integers, got nil", lt.from_blob, array)
  fails("from_blob: unknown option 'type' (known: dtype, strides, device, deleter)", lt.from_blob, array, {4},
    {type = "float64"})
  fails("from_blob: argument 'dtype' must be a dtype", lt.from_blob, array, {4}, {dtype = "float33"})
  fails("differ in length", lt.from_blob, array, {4}, {strides = {1, 1}})
  fails("option 'deleter' must be a function, got number 3", lt.from_blob, array, {4}, {deleter = 3})
  fails("cannot have negative stride", lt.from_blob, array, {4}, {strides = {-1}})
  fails("got a null pointer", lt.from_blob, ffi.cast("float *", nil), {4})
  fails("cannot grow: clone it", lt.from_ffi(array).resize_, lt.from_ffi(array), 100)
  fails("from_dlpack: argument 'ext_tensor' must be a pointer to struct DLManagedTensorVersioned",
    lt.from_dlpack, array)
  fails("from_dlpack: argument 'ext_tensor'", lt.from_dlpack, 3)
  fails("to_dlpack: a tensor that requires grad cannot be shared", lt.ones(2, {requires_grad = true}).to_dlpack,
    lt.ones(2, {requires_grad = true}))
  fails("to_dlpack: unknown option 'version'", lt.ones(2).to_dlpack, lt.ones(2), {version = 1})
  fails("to_dlpack: DLPack has no int4", lt.ones(2):to("int4").to_dlpack, lt.ones(2):to("int4"))
end)

h.finish()
