-- x.data, deepcopy, isinstance, the state of random numbers, dtypes of results.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises, deep = h.test, h.equal, h.truthy, h.raises, h.deep
local nn, optim = lt.nn, lt.optim

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

-- Copies ---------------------------------------------------------------------------------------------------------------

test("a deep copy shares nothing, and keeps what is shared within it", function()
  local net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
  net[1].tied = net[1].weight
  net[1].weight:requires_grad_(false)
  net(lt.randn(3, 2)):sum():backward()
  local copy = lt.deepcopy(net)
  local theirs = net:state_dict()
  for name, value in pairs(copy:state_dict()) do truthy(value:equal(theirs[name]) and value:data_ptr() ~= theirs[name]:data_ptr(), name) end
  truthy(copy[1].tied == copy[1].weight and not copy[1].weight.requires_grad)
  truthy(copy[1].bias.grad:equal(net[1].bias.grad) and copy[1].bias.grad ~= net[1].bias.grad)
  copy[1].bias.grad:zero_()
  truthy(net[1].bias.grad:abs():sum():item() > 0)
  equal(getmetatable(copy), nn.Sequential)
  truthy(lt.deepcopy(lt.compile(net)):len() == 2)
  local opt = optim.Adam(net:parameters(), {lr = 0.5})
  local other = lt.deepcopy(opt)
  equal(other.param_groups[1].lr, 0.5)
  truthy(other.state[other.param_groups[1].params[1]].exp_avg ~= nil)
  raises("has a history", lt.deepcopy, {net[1].bias * 2})
  local list = lt.deepcopy({1, {lt.ones(2)}, nn.Linear})
  truthy(list[3] == nn.Linear and list[2][1]:equal(lt.ones(2)))
end)

test("isinstance", function()
  local net, Mine = nn.Sequential(nn.Linear(1, 1)), nn.Linear:extend "Mine"
  truthy(lt.isinstance(net, nn.Sequential) and lt.isinstance(net, nn.Module) and not lt.isinstance(net, nn.Linear))
  truthy(lt.isinstance(Mine(1, 1), nn.Linear) and lt.isinstance(net, {nn.Linear, nn.Sequential}))
  truthy(lt.isinstance(lt.compile(net), nn.Sequential))
  local opt = optim.Adam(net:parameters())
  truthy(lt.isinstance(opt, optim.Optimizer) and lt.isinstance(opt, optim.Adam) and not lt.isinstance(opt, optim.SGD))
  truthy(not lt.isinstance(3, nn.Module) and not lt.isinstance(lt.ones(1), nn.Module))
  raises("isinstance: argument 'class' must be a class or a list of classes, got number 3", lt.isinstance, net, 3)
  local f = lt.compile(function(m, x) return lt.isinstance(m, nn.Linear) and x * 2 or x end, {fullgraph = true})
  equal(f(net[1], lt.tensor(2)):item(), 4)
  equal(f(net, lt.tensor(2)):item(), 2)
end)

h.finish()
