-- Tests the advice that the executable prints with an error: the name that was probably meant, and the module whose
-- forward failed.
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

-- Every check that refuses a name says which one was meant.
test("the name that was meant, in all places that know some", function()
  local lt = require "lutra"
  local nn, x, m = lt.nn, lt.ones(4, 4), lt.ones(1, 1, 4, 4)
  local net = nn.ModuleDict{first = nn.Linear(2, 2)}
  local function scheduler(name, options)
    return function() lt.optim.lr_scheduler[name](lt.optim.SGD(net:parameters(), {lr = 1}), options) end
  end
  for meant, f in pairs {
    reflect = function() nn.functional.pad(x, {1, 1}, {mode = "relect"}) end,
    linear = function() lt.quantile(x, 0.5, {interpolation = "linera"}) end,
    channels_last = function() m:contiguous({memory_format = "chanels_last"}) end,
    preserve_format = function() lt.zeros_like(x, {memory_format = "preserve_fromat"}) end,
    contiguous_format = function() x:is_contiguous({memory_format = "contigous_format"}) end,
    ["nearest-exact"] = function() nn.functional.interpolate(m, {scale_factor = 2, mode = "nearest_exact"}) end,
    multiply = function() x:scatter(0, lt.zeros(1, 4, {dtype = "int64"}), x, {reduce = "multipy"}) end,
    amax = function() x:scatter_reduce(0, lt.zeros(1, 4, {dtype = "int64"}), x, "amaxx") end,
    mean = function() nn.functional.mse_loss(x, x, {reduction = "maen"}) end,
    cuda = function() lt.zeros(2, {device = "cudda"}) end,
    float32 = function() lt.zeros(2, {dtype = "flaot32"}) end,
    int64 = function() x:to("itn64") end,
    bfloat16 = function() return lt.bfloat1 end,
    dims = function() lt.tensordot(x, x, {dmis = 1}) end,
    medium = function() lt.set_float32_matmul_precision("medum") end,
    metadata = function() lt.save(os.tmpname() .. ".safetensors", {x = x}, {metdata = {}}) end,
    ["reduce-overhead"] = function() lt.compile(print, {mode = "reduce-overhed"}) end,
    native = function() lt.compile(function() end, {backend = "natve"}) end,
    fullgraph = function() lt.compile(function() end, {fulgraph = true}) end,
    threshold = function() lt.auto{treshold = 3} end,
    seconds = function() lt.limits({second = 3}, print) end,
    recompile_limit = function() lt.config.recompile_limt = 3 end,
    capture = function() lt.config.stress = "captur" end,
    same = function() nn.functional.conv2d(m, m, {padding = "smae"}) end,
    bilinear = function() nn.functional.grid_sample(m, lt.zeros(1, 2, 2, 2), {mode = "bilinera"}) end,
    border = function() nn.functional.grid_sample(m, lt.zeros(1, 2, 2, 2), {padding_mode = "bordr"}) end,
    tanh = function() nn.functional.gelu(x, {approximate = "tahn"}) end,
    trunc = function() x:div(2, {rounding_mode = "truc"}) end,
    right = function() lt.searchsorted(lt.ones(2), x, {side = "rigth"}) end,
    donot_use_mm_for_euclid_dist = function() lt.cdist(x, x, {compute_mode = "dont_use_mm_for_euclid_dist"}) end,
    dim1 = function() lt.linalg.diagonal(x, {dim11 = 1}) end,
    leaky_relu = function() nn.init.calculate_gain("leaky_rleu") end,
    nonlinearity = function() nn.init.kaiming_uniform_(x, {nonlinearty = "relu"}) end,
    fan_out = function() nn.init.kaiming_uniform_(x, {mode = "fanout"}) end,
    zeros = function() nn.Conv2d(1, 1, 1, {padding_mode = "zeross"}) end,
    relu = function() nn.TransformerEncoderLayer(4, 2, {activation = "reluu"}) end,
    cos = scheduler("OneCycleLR", {max_lr = 1, total_steps = 9, anneal_strategy = "coss"}),
    abs = scheduler("ReduceLROnPlateau", {threshold_mode = "abss"}),
    allow_tf32 = function() return lt.backends.cudnn.allow_tf23 end,
    cache_enabled = function() lt.autocast("cpu", {cache_enable = true}, print) end,
    bias = function() nn.Linear(2, 2, {bais = false}) end,
    keepdim = function() x:sum(0, {keepdmi = true}) end,
    first = function() net:get_submodule("frist") end,
    ["first.weight"] = function() net:get_parameter("first.wieght") end,
  } do
    local ok, message = pcall(f)
    local shown = meant == "first.weight" and "weight" or meant
    local found = not ok and tostring(message):find("did you mean '" .. shown .. "'?", 1, true)
    h.truthy(found, ("'%s' says that '%s' was meant; it"):format(tostring(message), shown))
  end
  local out = os.tmpname()
  os.execute(("LUTRA_LOGS=grpah %s -e '' 2>%s"):format(program, out))
  h.truthy(h.read(out):find("did you mean 'graph'?", 1, true), "LUTRA_LOGS=grpah")
  os.execute(("%s --vresion 2>%s"):format(program, out))
  h.truthy(h.read(out):find("did you mean '--version'?", 1, true), "--vresion")
  os.remove(out)
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
  equal(message_of(model
    .. "local step = lt.compile(function(x) local y = net(x) return y:sum() end)\nstep(lt.ones(2, 4))"), text
    .. "net.layers.1.out, a Linear")
  equal(message_of(model .. "lt.patch(net.forward)\nnet(lt.ones(2, 4))"), text .. "net.layers.1.out, a Linear")
  equal(message_of("local r = nn.Linear(2, 3)\nr(lt.ones(3))"):match("\n(.*)$"), "in r, a Linear")
  equal(message_of("nn.Linear(2.5, 3)"):find("\n", 1, true), nil)
end)

h.finish()
