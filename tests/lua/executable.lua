-- Tests the executable: its options, exit codes and output streams.
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local program = h.program()

-- Standard output, standard error and exit code of `lutra <arguments>`, with a text as standard input.
local function run(arguments, input)
  local names = {os.tmpname(), os.tmpname(), os.tmpname()}
  h.write(names[1], input or "")
  local command = string.format("%s %s <%s >%s 2>%s", program, arguments, names[1], names[2], names[3])
  local status = os.execute(command)
  if type(status) == "number" and status > 255 then status = math.floor(status / 256) end
  local out, err = h.read(names[2]), h.read(names[3])
  for _, name in ipairs(names) do os.remove(name) end
  return out, err, status
end

local function script(text) return h.write(os.tmpname(), text) end

test("-e runs text, and lt is a global", function()
  local out, err, code = run("-e 'print(1 + 1, lt.tensor({1, 2}))'")
  equal(out, "2\ttensor([1., 2.])\n") equal(err, "") equal(code, 0)
end)

test("--version and --help", function()
  local out, _, code = run("--version")
  truthy(out:find("^Lutra %d+%.%d+%.%d+ %(LuaJIT 2%.1[^\n]*\n"
    .. "  CPU    %w+[ %a]*, %d+ threads?\n  GPU    .+\n  NVRTC  .+\n  cache  .+\n$"), out)
  equal(code, 0)
  out, _, code = run("-v")
  truthy(out:find("^Lutra %d+%.%d+%.%d+ %(LuaJIT 2%.1[^\n]*\n$"), out) equal(code, 0)
  out, _, code = run("--help")
  truthy(out:find("usage: lutra", 1, true)) equal(code, 0)
end)

test("--sandbox: a script reads what lies beneath it, and no more", function()
  local folder = os.tmpname()
  os.remove(folder)
  os.execute("mkdir -p " .. folder .. "/parts")
  h.write(folder .. "/parts/net.lua", "return {answer = 42}")
  lt.save(folder .. "/w.safetensors", {w = lt.ones(3)})
  local main = h.write(folder .. "/main.lua", "print(io, os, require 'parts.net'.answer, "
    .. "lt.load 'w.safetensors'.w:sum():item(), pcall(require, 'other'), (pcall(lt.load, '../x.safetensors')), ...)")
  local out, err, code = run("--sandbox " .. main .. " a b")
  equal(out, "nil\tnil\t42\t3\tfalse\tfalse\ta\tb\n") equal(err, "") equal(code, 0)
  os.execute(("ln -s /etc/passwd %s/link.lua"):format(folder))
  h.write(main, "print(pcall(require, 'link'))")
  out = run("--sandbox -e 'print((pcall(require, \"link\")))' " .. main)
  truthy(out:find("^false\nfalse"), out)
  out = run("--sandbox -e 'lt.check_is_size(3) print(select(2, pcall(lt.check, false, \"stated\")))' " .. main)
  truthy(out:find("stated", 1, true), out)
  _, err, code = run("--sandbox -i") equal(code, 2)
  truthy(err:find("--sandbox goes with a script and -e only", 1, true), err)
  _, _, code = run("explain --sandbox x.lua") equal(code, 2)
  os.execute("rm -r " .. folder)
end)

test("the manual page and the completion name every option", function()
  local help = run("--help")
  local page, completion = h.read("../../docs/lutra.1"):gsub("\\", ""), h.read("../../docs/lutra.bash")
  for option in help:gmatch "%-%-%l+" do
    truthy(page:find(option, 1, true), option)
    truthy(completion:find(option, 1, true) or option == "--json", option)
  end
  for command in help:gmatch "\n       lutra (%l+)" do
    truthy(page:find("\n.B " .. command, 1, true) and completion:find(command, 1, true), command)
  end
end)

test("standard input is run where it is no terminal", function()
  local out, _, code = run("", "print('from stdin')")
  equal(out, "from stdin\n") equal(code, 0)
  out = run("- a b", "print(arg[1], ...)")
  equal(out, "a\ta\tb\n")
end)

test("scripts and their arguments", function()
  local name = script("print(arg[0] == '" .. "' or arg[1], select('#', ...))")
  local out, _, code = run(name .. " x -y")
  os.remove(name)
  name = script("print(arg[-1], arg[-2] ~= nil, arg[1])")
  equal(run("-joff " .. name .. " z"), "-joff\ttrue\tz\n")
  os.remove(name)
  equal(out, "x\t2\n") equal(code, 0)
end)

test("a failing script", function()
  local name = script("local x = lt.ones(2, 3)\nlocal function f() local r = lt.matmul(x, lt.ones(4, 5)) return r end\nlocal y = f()\n")
  local out, err, code = run(name)
  os.remove(name)
  equal(code, 1) equal(out, "")
  local want = "lutra: " .. name
    .. ":2: matmul: shapes {2, 3} and {4, 5} cannot be multiplied (3 != 4)\nstack traceback:\n"
  equal(err:sub(1, #want), want)
  _, err, code = run("-e 'error(\"plain\", 0)'")
  equal(code, 1) truthy(err:find("^lutra: plain\n"))
  _, err, code = run("-e 'x = = 1'")
  equal(code, 1) truthy(err:find("^lutra: %(command line%):1:"))
  _, err, code = run("-e 'error()'")
  equal(code, 1) truthy(err:find("^lutra: %(error object is a nil value%)\n"))
end)

test("os.exit gives the code", function()
  local _, _, code = run("-e 'os.exit(7)'")
  equal(code, 7)
end)

test("options of luajit", function()
  equal(run("-joff -e 'print((jit.status()))'"), "false\n")
  equal(run("-Ohotloop=1 -e 'print(1)'"), "1\n")
  equal(run("-O0 -j on -e 'print((jit.status()))'"), "true\n")
  equal(run("-l string -e 'print(2)'"), "2\n")
  equal(run("-E -e 'print(3)'"), "3\n")
  equal(run("-e 'print(4)' -"), "4\n")
  equal(select(3, run("-j nosuch")), 2)
  equal(select(3, run("-Onosuch")), 2)
end)

-- Checks that a run prints one line on standard error, without a traceback.
local function refused(arguments, code, wanted)
  local out, err, got = run(arguments)
  equal(out, "")
  equal(got, code)
  truthy(err:find("^lutra: [^\n]+\n$"), err)
  truthy(err:find(wanted, 1, true), err)
end

test("wrong usage is told in one line, and exits with 2", function()
  refused("-x", 2, "unrecognized or incomplete option '-x'")
  refused("--foo", 2, "unrecognized or incomplete option '--foo'")
  refused("-e", 2, "'-e'")
  refused("--device", 2, "'--device'")
  refused("--device nowhere -e ''", 2, "device 'nowhere' is unknown")
  refused("explain", 2, "explain: a script is needed")
  refused("explain --foo", 2, "explain: unrecognized option '--foo'")
  refused("explain --json", 2, "explain: a script is needed")
  refused("tune --foo", 2, "usage: lutra tune [--limits | SCRIPT [ARGS]]")
  refused("tune --limits x", 2, "usage: lutra tune [--limits | SCRIPT [ARGS]]")
  refused("tune nosuch.lua", 1, "nosuch.lua")
  refused("nosuch.lua", 1, "nosuch.lua")
  refused("explain nosuch.lua", 1, "nosuch.lua")
end)

test("benchmarks say what they take", function()
  local cpu, gpu = "../../scripts/bench/cpu.lua ", "../../scripts/bench/gpu.lua "
  local out, err, code = run(cpu .. "--help")
  equal(code, 0) equal(err, "")
  truthy(out:find("lutra scripts/bench/cpu.lua [--threads N]", 1, true), out)
  out, err, code = run(cpu .. "--colour red")
  equal(code, 2) equal(out, "")
  truthy(err:find("^bench: unknown option %-%-colour\n"), err)
  out, err, code = run(cpu .. "--seconds")
  equal(code, 2)
  truthy(err:find("^bench: %-%-seconds takes a number\n"), err)
  local before = program
  program = "LUTRA_CUDA_DRIVER=/nonexistent/libcuda.so.1 " .. program
  out, err, code = run(gpu)
  program = before
  equal(code, 2)
  truthy(err:find("^bench: device 'cuda:0' is not available: no NVIDIA driver: [^\n]*\n$"), err)
end)

test("scripts run from any directory and refuse what they do not know", function()
  local here = io.popen("pwd"):read() .. "/../../scripts/"
  local function shell(command)
    local pipe = io.popen("cd / && { " .. here .. command .. "; } 2>&1; echo status $?")
    local text = pipe:read("*a")
    pipe:close()
    return text
  end
  for _, name in ipairs {"demo", "test", "build", "bundle", "packages", "bless", "format", "nvrtc"} do
    local text = shell(name .. " --help")
    truthy(#text > 60 and text:find("status 0\n$"), text)
  end
  truthy(shell("format --foo"):find("^format: unknown option %-%-foo .*status 2\n$"))
  truthy(shell("bundle --foo"):find("^bundle: unknown option %-%-foo .*status 2\n$"))
  if io.open("../../.git") and os.execute("command -v luajit >/dev/null") == 0 then
    equal(shell "arrows", "status 0\n")
    equal(shell "readmes", "status 0\n")
  end
end)

test("a wrong environment is wrong usage", function()
  local before = program
  for variable,
    wanted in pairs {["LUTRA_ISA=sse"] = "LUTRA_ISA: isa must be one of",
    ["LUTRA_LOGS=foo"] = "known: graph_breaks, guards",
                                 ["LUTRA_NUM_THREADS=many"] = "LUTRA_NUM_THREADS: num_threads must be a number"} do
    program = variable .. " " .. before
    refused("-e ''", 2, wanted)
  end
  program = before
end)

test("the REPL: expressions, continuation, errors keep the session", function()
  local out, err,
    code = run("-i",
    "x = 2\nx * 21\nfor i = 1, 2 do\nprint(i)\nend\nerror('bad')\n= x\nlt.ones(2)\nx = = 1\nnil\n1, 2\n")
  equal(code, 0)
  truthy(out:find("> 42\n", 1, true), out)
  truthy(out:find(">> >> 1\n2\n", 1, true), out)
  truthy(out:find("> 2\n", 1, true))
  truthy(out:find("tensor([1., 1.])", 1, true))
  truthy(out:find("> nil\n", 1, true))
  truthy(out:find("> 1\t2\n", 1, true))
  truthy(err:find("stdin:1: bad", 1, true), err)
  truthy(err:find("unexpected symbol", 1, true))
end)

test("explain runs the script and reports", function()
  local name =
    script("local f = lt.compile(function(x) return x * 2 + 1 end)\nprint(f(lt.ones(2)):sum():item(), ...)\n")
  local out, err, code = run("explain " .. name .. " a")
  os.remove(name)
  equal(out, "6\ta\n") equal(code, 0)
  truthy(err:find("function at " .. name .. ":1", 1, true), err)
  truthy(err:find("1 of 1 frame captured, 1 graph, 1 kernel", 1, true), err)
  name = script("local f = lt.patch(function(x) return x * 2 + 1 end)\nf(lt.ones(2))\nlt.unpatch(f)\nf(lt.ones(2))\n")
  err = select(2, run("explain " .. name)) -- what ran until unpatch
  os.remove(name)
  truthy(err:find("1 graph", 1, true) and not err:find("not called", 1, true), err)
  name = script("local function f() error({}) end\nf()")
  out, err, code = run("explain " .. name)
  os.remove(name)
  equal(code, 1)
  local _, tracebacks = err:gsub("stack traceback:", "")
  equal(tracebacks, 1)
  truthy(err:find("lutra: table: ", 1, true) and not err:find("explain.lua", 1, true), err)
end)

test("devices", function()
  equal(run("--device cpu -e 'print(lt.zeros(1).device)'"), "cpu\n")
end)

test("LUTRA_LOGS and configuration from the environment", function()
  local saved, _, err, code = program, nil, nil, nil
  program = "LUTRA_LOGS=dce,joint " .. saved
  _, err, code = run("-e 'local w = lt.ones(2, {requires_grad = true}) lt.compile(function(x) return (x * w):sum() end)(w):backward()'")
  equal(code, 0) truthy(err:find("[dce] graph {", 1, true)) truthy(select(2, err:gsub("%[joint%] graph {", "")) == 2)
  program = "LUTRA_LOGS=help " .. saved
  _, err, code = run("-e ''")
  equal(code, 0) truthy(err:find("recompiles", 1, true))
  program = "LUTRA_LOGS=fusion " .. saved
  _, err, code = run("-e 'lt.compile(function(x) return x:exp():sum(0, true) * x end)(lt.ones(3, 3))'")
  equal(code, 0) truthy(err:find("[fusion] fuse exp.0 + sum.1: saves a launch", 1, true))
  truthy(err:find(": taken\n", 1, true))
  program = "LUTRA_RECOMPILE_LIMIT=3 " .. saved
  equal(run("-e 'print(lt.config.recompile_limit)'"), "3\n")
  program = saved
end)

test("Control-C raises an error in a script", function()
  -- The script itself asks for the signal, so that it is ready for it however long it took to start.
  local function stopped(before, code)
    local path = os.tmpname()
    h.write(path, before .. [[
      local pid = io.open("/proc/self/stat"):read("*n") os.execute("(sleep 0.3; kill -INT " .. pid .. ") &")
      ]] .. code)
    local out = h.shell(("timeout 120 %s %s 2>&1; echo \"exit $?\""):format(h.program(), path))
    os.remove(path)
    return out
  end
  local out = stopped("", "local x = lt.ones(4)\nlocal function f() while true do x = x * 1 end end\nf()")
  truthy(out:find(":3: interrupted!", 1, true) and out:find("stack traceback:", 1, true), out)
  out = stopped("", [[local x = lt.ones(4)
    local ok, m = pcall(function() while true do x = x * 1 end end)
    print(ok, m, (x + 1):sum():item())]])
  truthy(out:find("false\t[^\n]*interrupted!\t8"), out)
  -- A kernel of many seconds ends between two pieces of its loop.
  out = stopped([[
    lt.config.num_threads = 1
    local f = lt.compile(function(x)
      local y = x
      for _ = 1, 60 do y = (y:sin() + y:cos()):exp():log1p() end
      return y:sum()
    end)
    f(lt.ones(2, 2)) f(lt.ones(3, 3))
    local x = lt.ones(10000, 10000)]], [[
    local start = lt.perf_counter()
    local ok, message = pcall(f, x)
    print(ok, message, lt.perf_counter() - start < 5)]])
  truthy(out:find("false\t[^\n]*interrupted!\ttrue"), out)
end)

h.finish()
