-- Tests that Sequential, ModuleList and ModuleDict run, count, iterate and save the same children, whether these were
-- added by position, by name or as fields, or were replaced or removed.
local h = require "harness"
local lt = require "lutra"
local nn = lt.nn
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

-- A module that multiplies by 10 and adds its digit: the result tells who ran, in order.
local Digit = nn.Module:extend("Digit")
function Digit:init(d)
  self.d = d
  self.weight = nn.Parameter(lt.tensor({d}))
end
function Digit:forward(x) return x * 10 + self.d end

local function ran(seq)
  local x = lt.tensor(0)
  local eager = seq(x):item()
  equal(lt.compile(seq)(x):item(), eager, "compiled")
  return eager
end

local function keys(module)
  local out = {}
  for key in pairs(module:state_dict()) do out[#out + 1] = key end
  table.sort(out)
  return table.concat(out, " ")
end

local function names(module)
  local out = {}
  for name in module:named_children() do out[#out + 1] = name end
  return table.concat(out, " ")
end

test("children that were added by name run in order", function()
  local seq = nn.Sequential()
  seq:add_module("up", Digit(1))
  seq:add_module("act", Digit(2))
  equal(ran(seq), 12)
  equal(seq:len(), 2)
  equal(keys(seq), "act.weight up.weight")
  local tail = nn.Sequential(Digit(1))
  tail:add_module("extra", Digit(2))
  equal(ran(tail), 12)
  tail.more = Digit(3)
  equal(ran(tail), 123)
  tail:append(Digit(4))
  equal(ran(tail), 1234)
  equal(names(tail), "0 extra more 3") -- as PyTorch numbers it
  equal(tail:len(), 4)
  tail.label = "no module"
  equal(ran(tail), 1234)
end)

test("the ordered form with names", function()
  local seq = nn.Sequential({{"up", Digit(1)}, {"act", Digit(2)}})
  equal(ran(seq), 12)
  equal(names(seq), "up act")
  equal(ran(nn.Sequential({{"up", Digit(1)}})), 1)
  equal(names(nn.ModuleList({{"a", Digit(1)}, Digit(2)})), "a 1")
  raises('the fields of a table have no order: give {{"up", module}, ...}', nn.Sequential, {up = Digit(1)})
  raises("have no order", nn.Sequential, {Digit(1), up = Digit(2)})
  raises("have no order", nn.ModuleList, {up = Digit(1)})
  raises("the name 'a' is given twice", nn.Sequential, {{"a", Digit(1)}, {"a", Digit(2)}})
  raises("'forward' is a method's name", nn.Sequential, {{"forward", Digit(1)}})
  raises("a string without dots", nn.Sequential, {{"a.b", Digit(1)}})
  raises("a module is needed, not nil", nn.Sequential, {{"a"}})
  raises("a module is needed, not the class Digit", nn.Sequential, {{"a", Digit}})
end)

test("PyTorch's numbers are positions", function()
  local seq = nn.Sequential(Digit(1))
  seq:add_module("0", Digit(7))
  seq:add_module("1", Digit(8))
  equal(ran(seq), 78)
  equal(keys(seq), "0.weight 1.weight")
  equal(seq[2].d, 8)
  seq:add_module("01", Digit(9)) -- a name
  equal(names(seq), "0 1 01")
  local backwards = nn.Sequential()
  backwards[2], backwards[1] = Digit(2), Digit(1)
  equal(ran(backwards), 12)
end)

test("replaced and taken away", function()
  local seq = nn.Sequential(Digit(1), Digit(2), Digit(3))
  local f = lt.compile(function(x) return seq(x) end)
  equal(f(lt.tensor(0)):item(), 123)
  seq[2] = Digit(7)
  equal(f(lt.tensor(0)):item(), 173)
  seq[2] = nil
  equal(f(lt.tensor(0)):item(), 13)
  equal(ran(seq), 13)
  equal(seq:len(), 2)
  seq[2] = Digit(5)
  equal(f(lt.tensor(0)):item(), 153)
  equal(seq:pop().d, 3)
  equal(f(lt.tensor(0)):item(), 15)
  equal(seq:pop(1).d, 1)
  equal(ran(seq), 5)
  seq:insert(1, Digit(4)):append(Digit(6))
  equal(ran(seq), 456)
  seq.last = Digit(9)
  equal(f(lt.tensor(0)):item(), 4569)
  raises("Sequential.insert: some of the children have names", seq.insert, seq, 1, Digit(1))
  equal(seq:pop().d, 9)
  equal(seq:pop(2).d, 5)
  equal(ran(seq), 46)
  raises("there is no module 7", seq.pop, seq, 7)
  local gone = nn.Sequential({{"a", Digit(1)}, {"b", Digit(2)}})
  gone.a = nil
  equal(ran(gone), 2)
  gone.a = 5
  equal(ran(gone), 2)
  gone.a = Digit(3)
  equal(ran(gone), 32)
end)

test("parts", function()
  local seq = nn.Sequential(Digit(1), Digit(2), Digit(3), Digit(4))
  equal(ran(seq:slice(2, 3)), 23)
  equal(ran(seq:slice(3)), 34)
  equal(ran(seq:slice()), 1234)
  equal(seq:slice(5):len(), 0)
  truthy(seq:slice(2, 2)[1] == seq[2], "the same module")
  local mixed = nn.Sequential({{"a", Digit(1)}, {"b", Digit(2)}, {"c", Digit(3)}})
  equal(names(mixed:slice(2)), "b c")
  equal(ran(seq[{1, 3}]), 12) -- to before the third, as x[{{0, 2}}] of a tensor
  equal(ran(seq[{2}]), 234)
  equal(ran(seq[{nil, -1}]), 123)
  equal(ran(seq[{-2}]), 34)
  equal(ran(seq[{nil, nil, 2}]), 13)
  equal(seq[{3, 2}]:len(), 0)
  equal(seq[{2, 99}]:len(), 3)
  truthy(seq[{2}][1] == seq[2] and seq[-1] == seq[4])
  equal(seq[5], nil)
  equal(names(mixed[{1, 3}]), "a b")
  truthy(lt.isinstance(seq[{1, 2}], nn.Sequential))
  local Block = nn.Sequential:extend("Block")
  equal(ran(Block(Digit(1), Digit(2), Digit(3))[{2}]), 23)
  raises("Sequential: argument 'slice' must be whole numbers {start, stop, step}, got string 'a'",
    function() return seq[{0, "a"}] end)
  raises("argument 'step' must be a whole number >= 1, got number -1", function() return seq[{nil, nil, -1}] end)
  raises("the table has a field first", function() return seq[{first = 1}] end)
  raises("a part cannot be assigned", function() seq[{1, 2}] = Digit(1) end)
  raises("there is no module -5 of 4", function() return seq[-5] end)
  raises("argument 'first' must be a whole number >= 1", seq.slice, seq, 0)
  equal(nn.ModuleList({Digit(1), Digit(2)}):slice(1, 1):len(), 1)
end)

test("lists and dictionaries of parameters", function()
  local list = nn.ParameterList({lt.ones(2), nn.Parameter(lt.zeros(3))})
  list:append(lt.ones(1)):extend({lt.ones(4)})
  equal(#list, 4)
  equal(list:len(), 4)
  equal(keys(list), "0 1 2 3")
  truthy(nn.is_parameter(list[1]) and list[4].requires_grad)
  list[2] = nn.Parameter(lt.ones(5))
  equal(list[2]:numel(), 5)
  raises("ParameterList: argument 'value' must be a Tensor, got number 3", list.append, list, 3)
  local dict = nn.ParameterDict({{"b", lt.ones(1)}, {"a", lt.ones(2)}})
  dict:update({c = lt.ones(3)})
  local order = {}
  for name, value in dict:items() do order[#order + 1] = name .. value:numel() end
  equal(table.concat(order, " "), "b1 a2 c3")
  equal(keys(dict), "a b c")
  equal(dict:get("z", 7), 7)
  equal(dict:setdefault("d", lt.ones(4)):numel(), 4)
  equal(dict:pop("a"):numel(), 2)
  equal(dict:len(), 3)
  raises("ParameterDict: there is no parameter 'a'", dict.pop, dict, "a")
  raises("'keys' is a method's name", nn.ParameterDict, {keys = lt.ones(1)})
  local Net = nn.Module:extend("Net")
  function Net:init() self.weights, self.named = list, dict end
  function Net:forward(x)
    for i = 1, #self.weights do x = x + self.weights[i]:sum() end
    for _, value in self.named:items() do x = x * value:sum() end
    return x
  end
  local net = Net()
  equal(keys(net), "named.b named.c named.d weights.0 weights.1 weights.2 weights.3")
  equal(ran(net), 144)
  equal(tostring(nn.ParameterList({lt.ones(2, 3)})),
    "ParameterList(\n  (0): Parameter containing: [float32 of size 2x3]\n)")
end)

test("a child that stands there twice", function()
  local d = Digit(2)
  equal(ran(nn.Sequential(d, d)), 22)
  equal(nn.Sequential(d, d):len(), 2)
  local dict = nn.ModuleDict({{"a", d}, {"b", d}})
  equal(dict:len(), 2)
  local seen = {}
  for name in dict:keys() do seen[#seen + 1] = name end
  deep(seen, {"a", "b"})
  local n = 0
  for module in dict:values() do
    truthy(module == d)
    n = n + 1
  end
  equal(n, 2)
  equal(#dict:parameters(), 1)
end)

test("names that are taken", function()
  local net = nn.Linear(2, 2)
  raises("'forward' is a method's name", net.add_module, net, "forward", Digit(1))
  raises("'training' is a field of the module already", net.register_buffer, net, "training", lt.ones(1))
  raises("'in_features' is a field of the module already", net.register_parameter, net, "in_features",
    nn.Parameter(lt.ones(1)))
  net:register_parameter("weight", nn.Parameter(lt.zeros(2, 2)))
  equal(net.weight:sum():item(), 0)
  raises("'keys' is a method's name", nn.ModuleDict, {keys = Digit(1)})
end)

test("random changes, against a list of names", function()
  local seed = tonumber(os.getenv("LUTRA_FUZZ_SEED")) or 1
  math.randomseed(seed)
  for round = 1, 40 do
    local seq, want = nn.Sequential(), {}
    for step = 1, 12 do
      local kind, d = math.random(5), math.random(9)
      if kind <= 2 then
        seq:append(Digit(d))
        want[#want + 1] = d
      elseif kind == 3 and not seq["n" .. d] then
        seq:add_module("n" .. d, Digit(d))
        want[#want + 1] = d
      elseif kind == 4 and #want > 0 then
        local at = math.random(#want)
        equal(seq:pop(at).d, table.remove(want, at), "round " .. round)
      elseif kind == 5 and #want > 3 then
        local copy = nn.Sequential(seq:slice(1, 2), seq:slice(3))
        equal(copy(lt.zeros(1, {dtype = "float64"})):item(), seq(lt.zeros(1, {dtype = "float64"})):item())
      end
      local number = 0
      for _, digit in ipairs(want) do number = number * 10 + digit end
      equal(seq(lt.zeros({}, {dtype = "float64"})):item(), number,
        string.format("seed %d, round %d, step %d", seed, round, step))
      equal(seq:len(), #want)
    end
  end
end)

h.finish()
