-- nn: registration by assignment, order of definition, state_dict, conversion, printing.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, deep, raises = h.test, h.equal, h.truthy, h.deep, h.raises
local nn = lt.nn

local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name end
  return table.concat(list, " ")
end

local Net = nn.Module:extend("Net")
function Net:init(hidden)
  self.fc2 = nn.Linear(4, hidden) -- on purpose not in alphabetical order
  self.scale = nn.Parameter(lt.ones(2))
  self.fc1 = nn.Linear(hidden, 2)
  self.note = "plain"
end
function Net:forward(x) return self.fc1(self.fc2(x):relu()) * self.scale end

test("parts register in the order of definition, as plain fields", function()
  local net = Net(3)
  equal(names(net:named_parameters()), "scale fc2.weight fc2.bias fc1.weight fc1.bias")
  equal(names(net:named_children()), "fc2 fc1")
  equal(#net:parameters(), 5)
  truthy(rawget(net, "fc1") == net.fc1 and rawget(net.fc1, "weight"))
  truthy(net:parameters()[1] == net.scale)
  truthy(net.scale.requires_grad and net.scale.is_leaf)
end)

test("lists and iterators of parts take PyTorch's keywords", function()
  local net = Net(3)
  net:register_buffer("seen", lt.zeros(1), false)
  net.fc1:register_buffer("kept", lt.zeros(1), {persistent = true})
  equal(#net:parameters{recurse = false}, 1)
  equal(#net:parameters(false), 1)
  equal(#net:parameters{recurse = true}, 5)
  equal(#net:buffers{recurse = false}, 1)
  equal(#lt.compile(net):parameters(false), 1)
  equal(names(net:named_parameters{recurse = false, prefix = "net"}), "net.scale")
  equal(names(net:named_parameters("net", false)), "net.scale")
  equal(names(net:named_buffers{prefix = "net"}), "net.seen net.fc1.kept")
  equal(names(net:named_modules{prefix = "net"}), "net net.fc2 net.fc1")
  truthy(net:state_dict()["fc1.kept"] and not net:state_dict().seen)
  net.fc1.bias = net.fc2.bias
  equal(names(net:named_parameters{remove_duplicate = false}), "scale fc2.weight fc2.bias fc1.weight fc1.bias")
  raises("parameters: unknown option 'recursive' (known: recurse)", net.parameters, net, {recursive = false})
  raises("named_parameters: argument 'recurse' must be a boolean, got number 1", net.named_parameters, net, "", 1)
  raises("named_modules: argument 'prefix' must be a string, got number 1", net.named_modules, net, 1)
  net:register_module("more", nn.Identity())
  equal(names(net:named_children()), "fc2 fc1 more")
end)

test("several assigned at once count from the left", function()
  local m = nn.Module()
  m.a, m.n, m.b, m.p, m.q = nn.Linear(1, 1), 3, nn.Sequential(nn.ReLU()), nn.Parameter(lt.ones(1)),
    nn.Parameter(lt.ones(1))
  m.z, m.y = nn.Identity(), nn.Identity()
  m.c = nn.Identity()
  equal(names(m:named_children()), "a b z y c")
  equal(names(m:named_parameters()), "p q a.weight a.bias")
  local Decoder = nn.Module:extend("Decoder")
  function Decoder:init(encoder)
    self.head = nn.Linear(1, 1)
    self.encoder = encoder
  end
  equal(names(Decoder(nn.Identity()):named_children()), "head encoder")
  local second, first = nn.Linear(1, 1), nn.Linear(1, 1)
  local s = nn.Sequential(first, second)
  equal(names(s:named_children()), "0 1")
end)

test("a call is forward", function()
  local net = Net(3)
  deep(net(lt.ones(5, 4)).shape, {5, 2})
  local Empty = nn.Module:extend("Empty")
  raises("Empty: forward is not defined", Empty(), 1)
end)

test("re-assignment replaces, nil removes, a field may become a module", function()
  local net = Net(3)
  local new = nn.Linear(4, 3, {bias = false})
  net.fc2 = new
  equal(names(net:named_parameters()), "scale fc2.weight fc1.weight fc1.bias")
  truthy(net:parameters()[2] == new.weight)
  net.fc1 = nil
  equal(names(net:named_parameters()), "scale fc2.weight")
  net.note = nn.Linear(1, 1)
  equal(names(net:named_children()), "fc2 note")
  net.scale = nil
  equal(names(net:named_parameters()), "fc2.weight note.weight note.bias")
end)

test("a parameter's place holds parameters only, a buffer's tensors", function()
  local told = "cannot assign a Tensor as parameter 'weight' (a Parameter or nil is expected)"
  local net = nn.Linear(2, 2)
  net.weight = lt.ones(2, 2)
  raises("Linear: " .. told, net.parameters, net)
  raises(told, net.state_dict, net)
  raises(told, net.eval, nn.Sequential(net))
  net.weight = nil
  raises(told, function() net.weight = lt.ones(2, 2) end)
  net.weight = nn.Parameter(lt.ones(2, 2))
  equal(names(net:named_parameters()), "weight bias")
  net.bias = 3
  raises("cannot assign number 3 as parameter 'bias'", net.parameters, net)
  local norm = nn.BatchNorm1d(3)
  norm.running_mean = 3
  raises("BatchNorm1d: cannot assign number 3 as buffer 'running_mean' (a Tensor or nil is expected)", norm.buffers,
    norm)
  norm.running_mean = lt.ones(3)
  equal(#norm:buffers(), 3)
  local copy = lt.deepcopy(norm)
  copy.weight = lt.ones(3)
  raises("as parameter 'weight'", copy.parameters, copy)
  equal(#norm:parameters(), 2)
end)

test("an untaken part is no part: tensors are not parameters, buffers are buffers", function()
  local net = Net(2)
  net.extra = lt.zeros(3)
  net:register_buffer("running", lt.zeros(2))
  net:register_buffer("scratch", lt.zeros(2), {persistent = false})
  equal(names(net:named_buffers()), "running scratch")
  truthy(net:state_dict {prefix = "net."}["net.running"])
  raises("state_dict: unknown option 'prefx'", net.state_dict, net, {prefx = "a"})
  local state = net:state_dict()
  truthy(state.running and not state.scratch and not state.extra)
  equal(#net:parameters(), 5)
end)

test("shared parameters count once, and twice in the state", function()
  local a = nn.Linear(3, 3)
  local m = nn.Sequential(a, nn.ReLU(), a)
  equal(#m:parameters(), 2)
  local state, count = m:state_dict(), 0
  for _ in pairs(state) do count = count + 1 end
  equal(count, 4)
  truthy(state["0.weight"] and state["2.bias"])
end)

test("Sequential counts from 1, its state from 0", function()
  local m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
  equal(names(m:named_parameters()), "0.weight 0.bias 2.weight 2.bias")
  equal(m[1].out_features, 3)
  equal(m:len(), 3)
  deep(m(lt.zeros(7, 2)).shape, {7, 1})
  raises("Sequential: a module is needed", nn.Sequential, nn.ReLU(), 3)
end)

test("state_dict goes back in and out", function()
  local a, b = Net(3), Net(3)
  local x = lt.randn(4, 4)
  truthy(not a(x):equal(b(x)))
  b:load_state_dict(a:state_dict())
  truthy(a(x):equal(b(x)))
  local state = a:state_dict()
  state["fc1.bias"], state.other = nil, lt.zeros(1)
  raises("missing: fc1.bias; unexpected: other", b.load_state_dict, b, state)
  local result = b:load_state_dict(state, {strict = false})
  deep(result, {missing_keys = {"fc1.bias"}, unexpected_keys = {"other"}})
  state = a:state_dict()
  state.scale = lt.zeros(3)
  raises("scale has size {2}, the state's {3}", b.load_state_dict, b, state)
  truthy(b:parameters()[1].requires_grad)
end)

test("train, eval, apply, requires_grad_, zero_grad", function()
  local net = Net(3)
  truthy(net.training)
  truthy(net:eval() == net and not net.fc1.training)
  net:train()
  truthy(net.fc2.training)
  local seen = {}
  net:apply(function(m) seen[#seen + 1] = m._name end)
  equal(table.concat(seen, " "), "Linear Linear Net")
  net(lt.ones(1, 4)):sum():backward()
  truthy(net.fc1.weight.grad)
  net:zero_grad()
  equal(net.fc1.weight.grad, nil)
  net:requires_grad_(false)
  truthy(not net.scale.requires_grad and #net:parameters() == 5)
end)

test("to(dtype) keeps parameters parameters", function()
  local net = Net(3):to(lt.float64)
  equal(#net:parameters(), 5)
  equal(net.fc1.weight.dtype, "float64")
  truthy(net.fc1.weight.requires_grad and net.fc1.weight.is_leaf)
  equal(net(lt.ones(2, 4, {dtype = "float64"})).dtype, "float64")
end)

test("a layer without inputs", function()
  local y = nn.Linear(0, 2)(lt.ones(3, 0))
  truthy(y:equal(lt.zeros(3, 2)))
end)

test("printing is PyTorch's", function()
  local m = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU()), nn.Linear(3, 1, {bias = false}))
  equal(tostring(m), [[
Sequential(
  (0): Linear(in_features=2, out_features=3, bias=True)
  (1): Sequential(
    (0): ReLU()
  )
  (2): Linear(in_features=3, out_features=1, bias=False)
)]])
end)

test("classes inherit, init need not call its parent's", function()
  local Wide = Net:extend("Wide")
  function Wide:init()
    Net.init(self, 5)
    self.tail = nn.Identity()
  end
  local w = Wide()
  equal(names(w:named_children()), "fc2 fc1 tail")
  deep(w(lt.ones(1, 4)).shape, {1, 2})
  local Bare = Net:extend("Bare")
  function Bare:init() self.only = nn.Linear(1, 1) end
  equal(names(Bare():named_parameters()), "only.weight only.bias")
end)

test("Linear's initial weights are PyTorch's uniform", function()
  lt.manual_seed(1)
  local fc = nn.Linear(100, 200)
  local bound = 1 / math.sqrt(100)
  local w = fc.weight:detach()
  truthy(w:abs():amax():item() <= bound)
  truthy(w:abs():amax():item() > 0.99 * bound)
  h.near(w:mean():item(), 0, 0.003)
  h.near((w * w):mean():item(), bound * bound / 3, 2e-4)
  truthy(not fc.bias:detach():equal(lt.zeros(200)))
end)

test("nn.init fills in place", function()
  local t = lt.zeros(50, 40)
  truthy(nn.init.normal_(t, 2, 0.5) == t)
  h.near(t:mean():item(), 2, 0.05)
  nn.init.constant_(t, 4)
  truthy(t:equal(lt.full({50, 40}, 4)))
  nn.init.xavier_uniform_(t)
  truthy(t:abs():amax():item() <= math.sqrt(6 / 90))
  local p = nn.Parameter(lt.zeros(2, 2))
  nn.init.ones_(p)
  truthy(p.is_leaf and p:detach():equal(lt.ones(2, 2)))
  raises("at least 2 dimensions", nn.init.kaiming_uniform_, lt.zeros(3))
end)

test("losses equal their functions", function()
  local x, y = lt.randn(6, 4), lt.tensor({0, 1, 2, 3, 0, 1}, {dtype = "int64"})
  truthy(nn.CrossEntropyLoss()(x, y):equal(nn.functional.cross_entropy(x, y)))
  truthy(nn.CrossEntropyLoss {reduction = "sum"}(x, y):equal(nn.functional.cross_entropy(x, y, {reduction = "sum"})))
  truthy(nn.NLLLoss()(x:log_softmax(-1), y):allclose(nn.functional.cross_entropy(x, y)))
  raises("unknown option 'reduce' (known: ignore_index, label_smoothing, reduction, weight)", nn.CrossEntropyLoss,
    {reduce = 1})
end)

h.finish()
