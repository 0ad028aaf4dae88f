-- x.data, the state of random numbers, dtypes of results.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises, deep = h.test, h.equal, h.truthy, h.raises, h.deep
local nn = lt.nn

-- Tensors and random numbers -------------------------------------------------------------------------------------------

test("x.data shares memory, has no history, and can be replaced", function()
  local p = nn.Parameter(lt.ones(2))
  p.data:add_(1)
  deep(p:tolist(), {2, 2})
  equal(p.data.requires_grad, false)
  p.data = lt.zeros(3)
  deep(p:tolist(), {0, 0, 0})
  truthy(p.requires_grad and nn.is_parameter(p))
  raises("data: must be a Tensor, got number 3", function() p.data = 3 end)
  raises("data: a tensor that requires grad cannot be int64", function() p.data = lt.arange(3) end)
  raises("data: the tensor is a view or the result of an op", function() (p * 2).data = lt.ones(3) end)
  local f = lt.compile(function(value)
    p.data = value * 2
    return p.data + 1
  end)
  for i = 1, 2 do
    deep(f(lt.full({2}, i)):tolist(), {2 * i + 1, 2 * i + 1})
    deep(p:tolist(), {2 * i, 2 * i})
  end
end)

test("the state of random numbers comes back", function()
  lt.manual_seed(4)
  lt.rand(3)
  local state = lt.get_rng_state()
  equal(state.dtype, "uint8")
  local a = lt.rand(5)
  lt.set_rng_state(state)
  truthy(lt.rand(5):equal(a))
  raises("set_rng_state: argument 'new_state' must be a Tensor", lt.set_rng_state, 3)
  raises("16 bytes", lt.set_rng_state, lt.ones(16))
end)

test("dtypes of results", function()
  local int, half, double = lt.ones(2):int(), lt.ones(2):half(), lt.ones({}):double()
  equal(lt.result_type(int, 2), "int32")
  equal(lt.result_type(int, 2.5), "float32")
  equal(lt.result_type(half, double), "float16")
  equal(lt.result_type(double, int), "float64")
  equal(lt.promote_types("int8", "uint8"), "int16")
  equal(lt.promote_types("float16", "bfloat16"), "float32")
  raises("promote_types: argument 'type2' must be a dtype", lt.promote_types, "int8", 3)
end)

h.finish()
