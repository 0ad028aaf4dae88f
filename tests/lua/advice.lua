-- What the executable tells of an error beside its message: the name that was meant, and the module whose forward failed.
local h = require "harness"
local test, equal = h.test, h.equal
local program = h.program()

-- The lines that a failing script prints before its traceback.
local function message_of(source)
  local path, out = h.write(os.tmpname(), "local lt = require 'lutra' local nn = lt.nn\n" .. source), os.tmpname()
  os.execute(("%s %s 2>%s"):format(program, path, out))
  local text = h.read(out)
  os.remove(path)
  os.remove(out)
  return (text:match("^lutra: [^\n]-:%d+: (.-)\nstack traceback:") or text)
end

test("the name that was meant", function()
  for source, meant in pairs {
    ["lt.softmx(lt.ones(2))"] = "; did you mean lt.softmax?",
    ["local l = lt.nn.Lienar(2, 3)"] = "; did you mean lt.nn.Linear?",
    ["local l = nn.Lienar(2, 3)"] = "; did you mean nn.Linear?",
    ["nn.functional.sofmax(lt.ones(2))"] = "; did you mean nn.functional.softmax?",
    ["lt.optm.SGD({})"] = "; did you mean lt.optim?",
    ["lt.optim.AdmW({})"] = "; did you mean lt.optim.AdamW?",
    ["lt.data.DataLoder({})"] = "; did you mean lt.data.DataLoader?",
    ["local function f() return nn.Lienar(2, 3) end f()"] = "; did you mean nn.Linear?",
    ["local net = nn.Linear(2, 3)\nnet:paramters()"] = "; did you mean net:parameters?",
    ["local f = lt.compile(function(x) return lt.softmx(x + 1) end)\nf(lt.ones(2))"] = "; did you mean lt.softmax?",
    ["prnt(3)"] = "; did you mean print?",
    ["local t = {alpha = 1} t.beta()"] = "",
    ["local t t()"] = "",
  } do
    local text = message_of(source)
    equal(text:match("%(a nil value%)(.*)$"), meant, source .. " -> " .. text)
  end
  equal(message_of("lt.ones(2):sofmax()"), "Tensor has no attribute or method 'sofmax' (did you mean 'softmax'?)")
end)

test("a field that is absent stays nil", function()
  equal(require("lutra").softmx, nil)
  equal(select(2, pcall(function() require("lutra").softmx() end)):match("nil value%)(.*)"), "")
end)

local model = [[
local Block = nn.Module:extend("Block")
function Block:init() self.fc = nn.Linear(4, 4) self.out = nn.Linear(5, 4) end
function Block:forward(x) x = self.fc(x) return self.out(x) end
local Net = nn.Module:extend("Net")
function Net:init() self.layers = nn.ModuleList{nn.Linear(4, 4), Block()} end
function Net:forward(x) for _, l in ipairs(self.layers) do x = l(x) end return x end
local net = Net()
]]
test("the module whose forward failed", function()
  local text = "linear: an input of shape {2, 4} cannot be multiplied with a weight of shape {4, 5} (4 != 5)\nin "
  equal(message_of(model .. "net(lt.ones(2, 4))"), text .. "net.layers.1.out, a Linear")
  equal(message_of(model .. "local f = lt.compile(net)\nf(lt.ones(2, 4))"), text .. "f.layers.1.out, a Linear")
  equal(message_of(model .. "local step = lt.compile(function(x) local y = net(x) return y:sum() end)\nstep(lt.ones(2, 4))"), text .. "net.layers.1.out, a Linear")
  equal(message_of(model .. "lt.patch(net.forward)\nnet(lt.ones(2, 4))"), text .. "net.layers.1.out, a Linear")
  equal(message_of("local r = nn.Linear(2, 3)\nr(lt.ones(3))"):match("\n(.*)$"), "in r, a Linear")
  equal(message_of("nn.Linear(2.5, 3)"):find("\n", 1, true), nil)
end)

h.finish()
