-- Tests that the standard library is loaded name by name. Each test reads names that no earlier test has read.
local lt = require "lutra"
jit.off() -- its traces lie on the heap, too
jit.flush()
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local nn, optim = lt.nn, lt.optim
local F, lazy = nn.functional, lt._native.lazy

test("what nobody uses is not on the heap", function()
  collectgarbage()
  collectgarbage()
  local kb = collectgarbage "count"
  truthy(kb < 360, "lt.nn, lt.nn.functional and lt.optim: " .. kb .. " KB")
  jit.on()
  for t, names in pairs {[nn] = {"GRU", "Conv2d"}, [F] = {"embedding_bag"}, [optim] = {"SGD"}} do
    for _, name in ipairs(names) do equal(rawget(t, name), nil, name) end
  end
end)

test("a name may be read for the first time in compiled code", function()
  local weight, ids = lt.randn(10, 4), lt.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = "int64"})
  local bags = lt.compile(function(i) return F.embedding_bag(i, weight) end, {fullgraph = true})
  truthy(bags(ids):equal(F.embedding_bag(ids, weight)))
  local layer = lt.compile(function(x) return nn.Softsign()(x) * 2 end, {fullgraph = true})
  truthy(layer(weight):equal(F.softsign(weight) * 2))
  local clipped = lt.compile(function(p) return nn.utils.parameters_to_vector({p}) end, {fullgraph = true})
  equal(clipped(weight):numel(), 40)
  local absent = lt.compile(function(x) return nn.NoSuchLayer == nil and x + 1 or x end)
  truthy(absent(weight):equal(weight + 1))
end)

test("a name may be given another value before it is loaded, and takes its own again", function()
  local mine = nn.Module:extend("Mine")
  nn.GELU = mine
  truthy(nn.GELU == mine and nn.CELU ~= mine)
  truthy(nn.TransformerEncoderLayer(4, 2, {activation = "gelu"}))
  nn.GELU = nil
  equal(nn.GELU._name, "GELU")
  rawset(nn, "Fold", mine)
  truthy(nn.Fold == mine)
end)

test("a class is one, however it was reached", function()
  local layer = nn.TransformerEncoderLayer(4, 2)
  local classes = {linear1 = "Linear", norm1 = "LayerNorm", dropout1 = "Dropout", self_attn = "MultiheadAttention"}
  for name, class in pairs(classes) do truthy(lt.isinstance(layer[name], nn[class]), class) end
  truthy(lt.isinstance(nn.LazyConv2d(3, 2), nn.Conv2d))
  truthy(lt.isinstance(lt.deepcopy(nn.ParameterList {lt.ones(2)}), nn.ParameterList))
  equal(rawget(nn, "BatchNorm2d"), nil)
  local net = nn.Sequential(nn.Linear(2, 3), nn.PReLU())
  net:load_state_dict(lt.deepcopy(net):state_dict())
  local Wide = nn.GroupNorm:extend("Wide")
  truthy(lt.isinstance(Wide(1, 2), nn.GroupNorm))
end)

test("errors name classes that are not loaded", function()
  equal(lt._native.closest("LSTMCel", lazy.names(nn)), "LSTMCell")
  raises("make one, RNN(...)", nn.Sequential, nn.RNN)
end)

-- Names that a file of a list has for itself, by file.
local own = {["nn.packed"] = {is_packed = true}}

test("every name has a value, every value of a file a name", function()
  for t, place in pairs(lazy.places) do
    for name in pairs(lazy.names(t)) do truthy(t[name] ~= nil, name) end
    for file in pairs(place[2]) do
      for name in pairs(lt._native.use(file)) do
        local known = (own[file] or {})[name]
        for _, other in pairs(lazy.places) do
          known = known or other[2][file] and (" " .. other[2][file] .. " "):find(" " .. name .. " ", 1, true)
        end
        truthy(known, file .. "." .. name)
      end
    end
  end
  local count = 0
  for _ in pairs(nn) do count = count + 1 end
  equal(count, 149, "pairs(nn) behind lazy.all(nn)")
end)

h.finish()
