-- Tests lt.save and lt.load: round trips, files of other programs, refused files, full disks and killed processes.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, deep, raises = h.test, h.equal, h.truthy, h.deep, h.raises
local nn, optim = lt.nn, lt.optim

local folder = h.folder()
local function at(name) return folder .. "/" .. name end

local function write(name, bytes) return h.write(at(name), bytes) end
local read = h.read
local function u(n, bytes)
  local out = {}
  for i = 1, bytes do
    out[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(out)
end
local function safetensors(header, data) return u(#header, 8) .. header .. data end
local function same(a, b)
  equal(a.dtype, b.dtype)
  deep(a.shape, b.shape)
  truthy(a:equal(b))
end

local dtypes = {"float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool"}

-- The half types as bits, which no arithmetic is needed for.
test("half types keep their bits", function()
  for _, name in ipairs {"F16", "BF16"} do
    local bytes = safetensors('{"x":{"dtype":"' .. name .. '","shape":[2,2],"data_offsets":[0,8]}}      ',
      "\0\60\255\255\1\0\0\252")
    local t = lt.load(write("h.safetensors", bytes))
    lt.save(at "h2.safetensors", t)
    equal(read(at "h2.safetensors"):sub(-8), bytes:sub(-8))
    if name == "F16" then
      lt.save(at "h.npy", t.x)
      truthy(read(at "h.npy"):find("'<f2'", 1, true))
      equal(read(at "h.npy"):sub(-8), bytes:sub(-8))
      equal(lt.load(at "h.npy").dtype, "float16")
    end
  end
  local t = lt.load(at "h2.safetensors").x
  equal(t.dtype, "bfloat16")
  raises("NumPy has no bfloat16", lt.save, at "a.npy", t)
  raises("NumPy has no bfloat16", lt.save, at "a.npz", {x = t})
end)

test("every dtype, every shape", function()
  for _, dtype in ipairs(dtypes) do
    for _, shape in ipairs {{}, {0}, {1}, {5}, {2, 3}, {2, 0, 3}, {2, 3, 4}} do
      local x = (lt.rand(shape) * 5):to(dtype)
      local t = {x = x}
      lt.save(at "a.safetensors", t)
      same(lt.load(at "a.safetensors").x, x)
      lt.save(at "a.npy", x)
      same(lt.load(at "a.npy"), x)
      lt.save(at "a.npz", t)
      same(lt.load(at "a.npz").x, x)
    end
  end
end)

test("views and leaves", function()
  local x = lt.arange(24):view(4, 6)
  for _, v in ipairs {x:t(), x[{":", 2}], x["1:3, ::2"], lt.zeros(1):expand(5), lt.rand(3, {requires_grad = true})} do
    for _, name in ipairs {"v.npy", "v.npz", "v.safetensors"} do
      local stored = name == "v.npy" and v or {v = v}
      lt.save(at(name), stored)
      local got = lt.load(at(name))
      got = name == "v.npy" and got or got.v
      same(got, v:detach())
      truthy(not got.requires_grad)
    end
  end
end)

test("one tensor, tables within tables, numbers, strings", function()
  lt.save(at "one.safetensors", lt.arange(3))
  same(lt.load(at "one.safetensors"), lt.arange(3))
  local value = {step = 3, lr = 0.1, big = 2 ^ 60, name = "a\n\"b\" \195\169", flag = false, nothing = {},
    inf = math.huge, ninf = -math.huge,
                 list = {1, lt.ones(2), {"x", true}}, [0] = {m = lt.zeros(1), [1.5] = "half"},
                   deep = {a = {b = {c = lt.arange(2)}}}}
  lt.save(at "n.safetensors", value)
  local got = lt.load(at "n.safetensors")
  equal(got.step, 3) equal(got.lr, 0.1) equal(got.big, 2 ^ 60) equal(got.name, value.name) equal(got.flag, false)
  equal(got.inf, math.huge) equal(got.ninf, -math.huge)
  deep(got.nothing, {})
  same(got.list[2], lt.ones(2))
  deep(got.list[3], {"x", true})
  equal(got.list[1], 1)
  equal(got[0][1.5], "half")
  same(got.deep.a.b.c, lt.arange(2))
  lt.save(at "n.safetensors", {x = 0 / 0})
  truthy(lt.load(at "n.safetensors").x ~= lt.load(at "n.safetensors").x)
  -- Names for other programs.
  lt.save(at "n.safetensors", {deep = {a = lt.zeros(1)}, list = {lt.zeros(1)}})
  truthy(read(at "n.safetensors"):find('"deep.a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}', 1, true))
  truthy(read(at "n.safetensors"):find('"list.1"', 1, true))
end)

test("files do not depend on the order in which a table was filled", function()
  local a, b = {}, {}
  for i = 1, 50 do a["k" .. i] = i end
  for i = 50, 1, -1 do b["k" .. i] = i end
  lt.save(at "1.safetensors", a)
  lt.save(at "2.safetensors", b)
  equal(read(at "1.safetensors"), read(at "2.safetensors"))
end)

test("metadata", function()
  lt.save(at "m.safetensors", {x = lt.zeros(1)}, {metadata = {format = "pt", note = "hello"}})
  local t, metadata = lt.load(at "m.safetensors", {metadata = true})
  deep(metadata, {format = "pt", note = "hello"})
  same(t.x, lt.zeros(1))
  lt.save(at "m.safetensors", {x = 1}, {metadata = {note = "hello"}})
  t, metadata = lt.load(at "m.safetensors", {metadata = true})
  equal(t.x, 1)
  deep(metadata, {note = "hello"})
  raises("a table from names to strings", lt.save, at "m.safetensors", {}, {metadata = {n = {}}})
  equal(select("#", lt.load(at "m.safetensors")), 1)
  raises("unknown option", lt.save, at "m.safetensors", {}, {meta = {}})
  raises(".safetensors files only", lt.save, at "m.npz", {}, {metadata = {a = "b"}})
  raises("load: unknown option 'devic' (known: device, map_location, metadata); did you mean 'device'?", lt.load,
    at "m.safetensors", {devic = "cpu"})
  raises("load: options have names (known: device, map_location, metadata)", lt.load, at "m.safetensors", {"cpu"})
end)

local function small_net()
  return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
end
local function train(net, opt, steps)
  lt.manual_seed(7)
  for _ = 1, steps do
    opt:zero_grad()
    net(lt.randn(5, 3)):pow(2):sum():backward()
    opt:step()
  end
end

test("a module's and an optimiser's state go on where they stopped", function()
  for _, make in ipairs {function(p) return optim.AdamW(p, {lr = 0.01, amsgrad = true}) end,
                         function(p) return optim.SGD(p, {lr = 0.01, momentum = 0.9}) end} do
    lt.manual_seed(1)
    local net = small_net()
    local opt = make(net:parameters())
    train(net, opt, 3)
    lt.save(at "c.safetensors", {model = net:state_dict(), opt = opt:state_dict(), epoch = 3})
    lt.save(at "model.safetensors", net:state_dict())
    train(net, opt, 3)
    local net2 = small_net()
    local opt2 = make(net2:parameters())
    local c = lt.load(at "c.safetensors")
    equal(c.epoch, 3)
    net2:load_state_dict(c.model)
    opt2:load_state_dict(c.opt)
    train(net2, opt2, 3)
    for i, p in ipairs(net:parameters()) do truthy(p:equal(net2:parameters()[i]), "parameter " .. i) end
    same(lt.load(at "model.safetensors")["0.weight"], c.model["0.weight"])
  end
end)

test("what cannot be stored is said", function()
  local cyclic = {}
  cyclic.a = cyclic
  raises("field 'x.f' is a function, which cannot be stored", lt.save, at "e.safetensors", {x = {f = print}})
  raises("a module or optimiser: save its :state_dict()", lt.save, at "e.safetensors", {net = nn.Linear(1, 1)})
  raises("the value is a module", lt.save, at "e.safetensors", nn.Linear(1, 1))
  raises("a table within itself", lt.save, at "e.safetensors", cyclic)
  raises("a table with a boolean as a key", lt.save, at "e.safetensors", {[true] = 1})
  raises("name is taken", lt.save, at "e.safetensors", {["a.b"] = lt.zeros(1), a = {b = lt.zeros(1)}})
  raises("UTF-8", lt.save, at "e.safetensors", {name = "\255"})
  raises("UTF-8", lt.save, at "e.safetensors", {["\255"] = lt.zeros(1)})
  raises("must be a Tensor or a table, got number", lt.save, at "e.safetensors", 3)
  raises("argument 'path' must be a string", lt.save, 3, lt.zeros(1))
  raises("got a Tensor (the path comes first)", lt.save, lt.zeros(1), "a.npy")
  raises("must end in .safetensors, .npy or .npz", lt.save, at "e.pt", lt.zeros(1))
  raises("must end in .safetensors, .npy or .npz", lt.load, at "e.pt")
  raises("a .npy file holds one tensor", lt.save, at "e.npy", {})
  raises("a .npz file holds a table", lt.save, at "e.npz", lt.zeros(1))
  raises("other fields have a place in .safetensors", lt.save, at "e.npz", {a = {b = lt.zeros(1)}})
  raises("No such file", lt.load, at "nothing.npy")
  raises("No such file", lt.save, at "nowhere/x.npy", lt.zeros(1))
  os.execute("mkdir -p " .. at "dir.npy")
  raises("is no regular file", lt.load, at "dir.npy")
  raises("is no regular file", lt.save, at "dir.npy", lt.zeros(1))
  os.execute("ln -sf /dev/full " .. at "full.npy")
  raises("is no regular file", lt.save, at "full.npy", lt.zeros(1))
end)

-- Bytes as numpy.save of NumPy 2 writes them.
local function npy(header, data, version)
  return "\147NUMPY" .. string.char(version or 1) .. "\0" .. u(#header, (version or 1) == 1 and 2 or 4) .. header
    .. data
end

test(".npy files of NumPy", function()
  local function get(header, data, version) return lt.load(write("in.npy", npy(header, data, version))) end
  deep(get("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }         \n", u(1, 4) .. u(2, 4) .. u(3, 4)
    .. u(4, 4)):totable(),
    {{1, 2}, {3, 4}})
  local f = get("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", u(1, 2) .. u(4, 2) .. u(2, 2) .. u(5, 2)
    .. u(3, 2) .. u(6, 2))
  deep(f:totable(), {{1, 2, 3}, {4, 5, 6}})
  deep(get("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", "\1\2\3\4"):totable(), {0x102, 0x304})
  deep(get("{'descr': '>f8', 'fortran_order': False, 'shape': (), }\n", "\63\248\0\0\0\0\0\0"):totable(), 1.5)
  deep(get("{'shape': (1L,), 'descr': \"|b1\", 'fortran_order': False}\n", "\5", 2):totable(), {true})
  deep(get("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n", "abc", 3):totable(), {97, 98, 99})
  raises("structured array", get, "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }\n", "1234")
  equal(tostring(get("{'descr': '>c8', 'fortran_order': False, 'shape': (), }\n", "\63\192\0\0\64\0\0\0"):item()),
    "1.5+2i")
  raises("NumPy type '<c32'", get, "{'descr': '<c32', 'fortran_order': False, 'shape': (1,), }\n", "12345678")
  raises("never read", get, "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", "12345678")
  raises("sizes overflow", get, "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 2), }\n",
    "12345678")
  raises("cannot be read", get, "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }\n",
    "12345678")
  raises("take 80 bytes, 8 are there", get, "{'descr': '<f8', 'fortran_order': False, 'shape': (10,), }\n", "12345678")
  raises("take 0 bytes, 8 are there", get, "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }\n", "12345678")
  raises("version 9", get, "{}", "", 9)
  raises("is no .npy file", lt.load, write("in.npy", "hello, here is some text"))
  raises("promises more", lt.load, write("in.npy", "\147NUMPY\2\0\255\255\255\255{'descr'"))
  lt.save(at "out.npy", lt.tensor({{1, 2, 3}}))
  local bytes = read(at "out.npy")
  truthy(bytes:find("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }", 1, true))
  equal(#bytes, 128 + 12)
end)

test(".safetensors files of others", function()
  local function get(header, data) return lt.load(write("in.safetensors", safetensors(header, data or "")),
    {metadata = true}) end
  local t, metadata = get('{"__metadata__":{"format":"pt"},"a.b":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},' ..
    '"c":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}}   ', u(1, 2) .. u(2, 2) .. "\7")
  deep(t["a.b"]:totable(), {1, 2})
  equal(t.c:item(), true)
  deep(metadata, {format = "pt"})
  deep(get "{}", {})
  local function one(fields, data) return get('{"x":{' .. fields .. "}}", data or "12345678") end
  raises("\"F8_E8M0\"", one, '"dtype":"F8_E8M0","shape":[8],"data_offsets":[0,8]')
  raises("overlaps another", get,
    '{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}',
    "123456")
  raises("follows a gap", get,
    '{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}}',
    "123456")
  raises("end at byte 4 of 8", one, '"dtype":"U8","shape":[4],"data_offsets":[0,4]')
  raises("outside of the file", one, '"dtype":"U8","shape":[9],"data_offsets":[0,9]')
  raises("outside of the file", one, '"dtype":"U8","shape":[0],"data_offsets":[8,0]')
  raises("its sizes take 32", one, '"dtype":"F32","shape":[8],"data_offsets":[0,8]')
  raises("overflow", one, '"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]')
  raises("no sound shape", one, '"dtype":"F32","shape":[-2],"data_offsets":[0,8]')
  raises("no sound shape", one, '"dtype":"F32","shape":[2.0],"data_offsets":[0,8]')
  raises("no sound data_offsets", one, '"dtype":"F32","shape":[2],"data_offsets":[0,8,9]')
  raises("fields other than", one, '"dtype":"F32","shape":[2]')
  raises("name twice", get,
    '{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
  raises("more than strings", get, '{"__metadata__":{"a":1}}')
  raises("no JSON object", get, '{"a"')
  raises("does not begin with {", get, '[]')
  raises("promises more", lt.load, write("in.safetensors", "\255\255\255\255\255\255\255\127{}"))
  raises("too short", lt.load, write("in.safetensors", "abc"))
  for _, form in ipairs {"[", "{}", '{\\"tensor\\":\\"no\\"}', "[[true,1]]", "[1]", ("["):rep(5000) .. ("]"):rep(5000),
    "null"} do
    raises("'lutra.form' cannot be read", get, '{"__metadata__":{"lutra.form":"' .. form .. '"}}')
  end
  raises("no JSON object", get, '{"x":' .. ("["):rep(100000))
  raises("fields other than", get, '{"x":' .. ("["):rep(100000) .. ("]"):rep(100000) .. "}")
end)

local function run(command) return h.shell(command .. " 2>&1") end
local lutra = h.program()

test("a full disk leaves the old file", function()
  for _, name in ipairs {"d.safetensors", "d.npz", "d.npy"} do
    local value = name == "d.npy" and "x" or "{x = x}"
    local code = string.format([[
      local lt, ffi = require "lutra", require "ffi"
      ffi.cdef "typedef struct { unsigned long soft, hard; } limit; int setrlimit(int, const limit*); void* signal(int, intptr_t);"
      local x = lt.zeros(1000000)
      ffi.C.setrlimit(4, ffi.new("limit", 0, 0)) -- no core files
      ffi.C.setrlimit(1, ffi.new("limit", 65536, 65536))
      if arg[1] == "ignore" then ffi.C.signal(25, 1) end
      print(pcall(lt.save, "%s", %s))]], at(name), value)
    lt.save(at(name), name == "d.npy" and lt.ones(3) or {x = lt.ones(3)})
    local script = write("full.lua", code)
    local said = run(lutra .. " " .. script .. " ignore")
    truthy(said:find("false", 1, true) and said:find("save: cannot write", 1, true), said)
    truthy(not run("ls -A " .. folder):find(".tmp", 1, true), "a temporary file was left")
    said = run(lutra .. " " .. script) -- SIGXFSZ kills it
    truthy(not said:find("false", 1, true) and not said:find("true", 1, true), said)
    local old = lt.load(at(name))
    same(name == "d.npy" and old or old.x, lt.ones(3))
    truthy(run("ls -A " .. folder):find(".tmp", 1, true), "nothing was left: the test tests nothing")
    lt.save(at(name), name == "d.npy" and lt.ones(3) or {x = lt.ones(3)})
    truthy(not run("ls -A " .. folder):find(".tmp", 1, true), "what a killed process left stays")
  end
end)

test("a kill leaves the old or the new file", function()
  local path, ready = at "k.safetensors", at "ready"
  local script = write("kill.lua", string.format([[
    local lt = require "lutra"
    io.open("%s", "w"):close()
    for i = 1, 1e9 do lt.save("%s", {i = i, x = lt.full({200000}, i)}) end]], ready, path))
  lt.save(path, {i = 0, x = lt.full({200000}, 0)})
  local last = 0
  for i = 1, 5 * h.scale do
    run(string.format("rm -f %s; %s %s & p=$!; until [ -e %s ]; do sleep 0.01; done; sleep 0.%d; kill -9 $p; wait $p",
      ready, lutra, script, ready, 10 + i * 3 % 20))
    local t = lt.load(path)
    truthy(t.x:equal(lt.full({200000}, t.i)))
    last = math.max(last, t.i)
  end
  truthy(last > 0, "the child saved nothing")
end)

test("links stay links, modes stay", function()
  lt.save(at "real.npy", lt.zeros(1))
  os.execute("chmod 600 " .. at "real.npy" .. "; ln -sf real.npy " .. at "link.npy")
  lt.save(at "link.npy", lt.ones(2))
  same(lt.load(at "real.npy"), lt.ones(2))
  truthy(run("ls -l " .. at "link.npy"):find("->", 1, true))
  truthy(run("ls -l " .. at "real.npy"):find("-rw-------", 1, true))
end)

test("within a compiled function", function()
  local f = lt.compile(function(x)
    local y = x * 2
    lt.save(at "f.npy", y)
    return lt.load(at "f.npy") + 1
  end)
  for i = 1, 3 do same(f(lt.full({2}, i)), lt.full({2}, 2 * i + 1)) end
end)

os.execute("rm -rf " .. folder)
h.finish()
