-- Names that ports of real models met: layers that resample, parts of modules by their path, initialisers, finfo and iinfo.
local lt = require "lutra"
local h = require "harness"
local test, equal, deep, truthy = h.test, h.equal, h.deep, h.truthy
local nn = lt.nn
local F = nn.functional

local function raises(message, f, ...)
  local ok, got = pcall(f, ...)
  truthy(not ok and tostring(got):find(message, 1, true), "'" .. tostring(got) .. "' says '" .. message .. "'; it")
end

local function same(layer, x, wanted)
  truthy(layer(x):equal(wanted), "eager")
  truthy(lt.compile(layer)(x):equal(wanted), "compiled")
end

test("layers that resample", function()
  local x = lt.randn(1, 2, 4, 6)
  same(nn.Upsample {scale_factor = 2}, x, F.interpolate(x, nil, 2))
  same(nn.Upsample({3, 5}, nil, "bicubic", true), x, F.interpolate(x, {3, 5}, nil, "bicubic", true))
  same(nn.UpsamplingNearest2d(5), x, F.upsample_nearest(x, 5))
  same(nn.UpsamplingBilinear2d {scale_factor = 2}, x, F.upsample_bilinear(x, nil, 2))
  same(nn.Unfold(2, {stride = 2}), x, F.unfold(x, 2, 1, 0, 2))
  local columns = F.unfold(x, 2, 1, 0, 2)
  same(nn.Fold({4, 6}, 2, {stride = 2}), columns, x)
  same(nn.LocalResponseNorm(2), x, F.local_response_norm(x, 2))
  same(nn.Softmax2d(), x, lt.softmax(x, 1))
  equal(tostring(nn.UpsamplingNearest2d {size = {2, 3}}), "UpsamplingNearest2d(size=(2, 3))")
  raises("missing", nn.Unfold)
  raises("Softmax2d", nn.Softmax2d(), lt.randn(2, 2))
  local values, indices = nn.AdaptiveMaxPool2d(2, {return_indices = true})(x)
  truthy(values:equal(x:flatten(2):gather(2, indices:flatten(2)):view(1, 2, 2, 2)), "the places of the largest")
end)

test("area of volumes", function()
  local x = lt.arange(64):view(1, 1, 4, 4, 4):float()
  local means = x:view(1, 1, 2, 2, 2, 2, 2, 2):mean({3, 5, 7})
  truthy(F.interpolate(x, 2, nil, "area"):equal(means), "means of windows")
end)

test("fake quantisation by tensors is that by numbers", function()
  local x = lt.randn(50) * 3
  local scale, zero = lt.tensor(0.25), lt.tensor(3):int()
  truthy(lt.fake_quantize_per_tensor_affine(x, scale, zero, 0, 15):equal(lt.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)))
end)

test("parts of a module by their path", function()
  local net = nn.Sequential {{"up", nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))}, {"act", nn.ReLU()}}
  truthy(rawequal(net:get_submodule "up", net.up), "a child")
  truthy(rawequal(net:get_submodule "up.0", net.up[1]), "a child's item")
  truthy(rawequal(net:get_submodule "", net), "itself")
  truthy(rawequal(net:get_parameter "up.0.weight", net.up[1].weight), "a parameter")
  truthy(rawequal(net:get_buffer "up.1.running_mean", net.up[2].running_mean), "a buffer")
  raises("has no module 'down'", net.get_submodule, net, "down")
  raises("has no parameter 'up.0.scale'", net.get_parameter, net, "up.0.scale")
end)

test("initialisers", function()
  lt.manual_seed(1)
  local t = nn.init.trunc_normal_(lt.empty(4000), {mean = 1, std = 2, a = -1, b = 2})
  truthy(t:min():item() >= -1 and t:max():item() <= 2, "within the bounds")
  truthy(math.abs(t:mean():item() - 0.60) < 0.05, "the mean of the truncated distribution")
  deep(nn.init.eye_(lt.empty(2, 3)):tolist(), {{1, 0, 0}, {0, 1, 0}})
  local x = lt.randn(1, 4, 5)
  truthy(F.conv1d(x, nn.init.dirac_(lt.empty(4, 4, 3)), nil, 1, 1):equal(x), "dirac_ gives the input")
  truthy(F.conv1d(x, nn.init.dirac_(lt.empty(4, 2, 3), {groups = 2}), nil, 1, 1, 1, 2):equal(x), "dirac_ in groups")
  raises("2 dimensions", nn.init.eye_, lt.empty(2))
  raises("groups", nn.init.dirac_, lt.empty(3, 2, 3), 2)
end)

test("finfo, iinfo, autograd.grad", function()
  equal(lt.finfo("float32").max, 3.4028234663852886e38)
  equal(lt.finfo("float16").max, 65504)
  equal(lt.finfo().eps, 2 ^ -23)
  equal(lt.finfo("bfloat16").min, -3.3895313892515355e38)
  equal(lt.finfo("float64").tiny, 2.2250738585072014e-308)
  equal(lt.iinfo("int8").min, -128)
  truthy(lt.iinfo("int64").max == 9223372036854775807LL, "int64")
  raises("finfo", lt.finfo, "int32")
  raises("iinfo", lt.iinfo, "float32")
  local mask = lt.tensor {true, false}
  local f = function(x) return x:masked_fill(mask, lt.finfo(x.dtype).min) end
  truthy(lt.compile(f)(lt.ones(2)):equal(f(lt.ones(2))), "compiled")
  local x = lt.tensor({2}):float():requires_grad_()
  equal(lt.autograd.grad((x * x):sum(), x):item(), 4)
end)

test("the largest element of a window of -inf is in that window", function()
  local inf = math.huge
  local x = lt.tensor {{{5, 1, -inf, -inf, -inf}}}
  local values, places = F.adaptive_max_pool1d(x, 2, {return_indices = true})
  equal(values:equal(lt.tensor {{{5, -inf}}}), true)
  h.deep(places:totable(), {{{0, 2}}})
end)

h.finish()
