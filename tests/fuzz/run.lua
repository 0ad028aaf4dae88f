-- Fuzzing: runs programs of a class eagerly and in the other modes, and compares what they do.
--   lutra run.lua CLASS [FROM[-TO]] [OPTION...]  programs of these seeds (default: LUTRA_TEST_SEED, or 1 to the
--                                                class's count)
--   lutra run.lua --program FILE [OPTION...]     a program that was kept
-- If LUTRA_TORCH names a Python with PyTorch, programs with an equivalent in Python are compared with it, too.
-- Options: --modes A,B  --device D  --lines (errors name the same lines)  --strict (gradients after breaks agree to the
-- last bit)  --print (print programs)  --keep FOLDER (write failing programs there)  --no-shrink
-- --seconds N (time limit of one program)  --jit off|N (LuaJIT's JIT is off, or starts traces after N rounds; default:
-- LuaJIT's own)
local lt = require "lutra"

local folder = arg[0]:match("^(.*/)") or "./"
package.path = folder .. "?.lua;" .. package.path
local Program = require "program"
local modes = require "modes"
local python = require "python"

local options = {modes = table.concat(modes.all, ","), seconds = 120}
local words = {}
local torch = os.getenv("LUTRA_TORCH")
do
  local flags = {print = true, lines = true, strict = true, ["no-shrink"] = true}
  -- brief, crashed and at are for this program's own calls and for ./spread.
  local takes_value = {program = true, modes = true, device = true, keep = true, seconds = true, jit = true,
    brief = true, crashed = true, at = true}
  local i = 1
  while i <= #arg do
    local name = arg[i]:match("^%-%-(.+)$")
    if name and flags[name] then
      options[name] = true
    elseif name then
      assert(takes_value[name], "run.lua: unknown option --" .. name)
      i = i + 1
      options[name] = assert(arg[i], "--" .. name .. " needs a value")
    else
      words[#words + 1] = arg[i]
    end
    i = i + 1
  end
end
if options.device then lt.set_default_device(options.device) end
if options.jit == "off" then
  jit.off()
elseif options.jit then
  jit.opt.start("hotloop=" .. options.jit, "hotexit=" .. options.jit)
end

-- Returns the first mode that differs from eager: its name, the kind of difference and its text; then the number of
-- gradients that differed only in their last bits, and what eager showed.
local function check(text)
  local want = modes.run(text, "eager")
  local roundings = 0
  for mode in options.modes:gmatch("[^,]+") do
    if mode ~= "eager" then
      local kind, difference, name = modes.compare(want, modes.run(text, mode))
      if kind == "rounding" and not options.strict then
        roundings = roundings + 1
      elseif kind then
        return mode, kind, difference, roundings, want, name
      end
    end
  end
  return nil, nil, nil, roundings, want
end

local function read_all(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

if options.program then
  modes.lines = options.lines
  local mode, kind, difference, _, want, name = check(read_all(options.program))
  if options.brief then  -- for the runner that shrinks
    for _, entry in ipairs(want) do
      if entry.error then print("eager", entry.text) end
    end
    print("failed", mode and ("%s %s: %s"):format(mode, kind, name) or "")
    os.exit(mode and 1 or 0)
  end
  if mode then print(("FAILED %s (%s): %s"):format(mode, kind, difference)) else print("the modes agree") end
  os.exit(mode and 1 or 0)
end

local function executable()
  local pipe = assert(io.popen("readlink /proc/$PPID/exe"))
  local path = pipe:read("*l")
  pipe:close()
  return path
end

-- Runs one program in its own process. Returns its mode and kind of difference ("": none; "died STATUS": it did not
-- end), and the texts of its errors under eager, as a set.
local function run_alone(text, lines, names)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  local command =
    ("timeout %s '%s' '%srun.lua' --program %s --brief 1 --modes %s%s%s%s%s 2>/dev/null; echo status $?"):format(
    options.seconds, executable(), folder, path, names, lines and " --lines" or "", options.strict and " --strict"
      or "",
    options.device and " --device " .. options.device or "", options.jit and " --jit " .. options.jit or "")
  local pipe = assert(io.popen(command))
  local out = pipe:read("*a")
  pipe:close()
  os.remove(path)
  local errors = {}
  for line in out:gmatch("eager\t([^\n]*)") do errors[line] = true end
  local failed = out:match("\nfailed\t([^\n]*)") or out:match("^failed\t([^\n]*)") or "died "
    .. (out:match("status (%d+)") or "")
  return failed, errors
end

-- Returns the text of the smallest program found that fails in the same way, and a note for the report. A smaller
-- program counts only if eager raises no error that the whole program did not raise.
local function shrink(program, lines, mode)
  local names = "eager," .. mode
  local failed, errors = run_alone(program:text(), lines, names)
  if failed == "" then return program:text(), " (not alone: what ran before it matters)" end
  local removed = program:shrink(function(attempt)
    local again, now = run_alone(program:text(attempt), lines, names)
    if again ~= failed then return false end
    for text in pairs(now) do
      if not errors[text] then return false end
    end
    return true
  end, 300)
  return program:text(removed), ""
end

local class = assert(words[1], "run.lua: which class?")
local class_file = assert(loadfile(folder .. "classes/" .. class .. ".lua"))
local description = class_file()
modes.lines = options.lines or description.lines
options.modes = options.modes == table.concat(modes.all, ",") and description.modes or options.modes

local function generate(seed)
  local program = Program.new(class, seed)
  description.generate(program)
  return program
end

local scale = tonumber(os.getenv("LUTRA_TEST_SCALE")) or 1
local range = words[2] or os.getenv("LUTRA_TEST_SEED") or "1-" .. math.max(1, math.floor(description.count * scale))
local first, last = range:match("^(%d+)%-?(%d*)$")
first = assert(tonumber(first), "run.lua: seeds are N or A-B")
last = tonumber(last) or first

if options.crashed then  -- the runner's script saw a process die at this seed
  local program = generate(first)
  local text, note = shrink(program, modes.lines, options.modes)
  print(("FAILED %s seed %d: the process died%s\n%s"):format(class, first, note, text))
  os.exit(1)
end

-- Compares PyTorch's results for a program with eager's. Returns nil, or the kind of difference and its text.
local peer
local function check_torch(program, removed)
  peer = peer or python.start(torch, folder)
  return python.compare(modes.run(program:text(removed), "eager"), peer:run(program:python_text(removed)))
end

local function eager_errors(text)
  local errors = {}
  for _, entry in ipairs(modes.run(text, "eager")) do
    if entry.error then errors[entry.text] = true end
  end
  return errors
end

local function shrink_torch(program, kind, name)
  local errors = eager_errors(program:text())
  local removed = program:shrink(function(attempt)
    local again, _, at = check_torch(program, attempt)
    if again ~= kind or at ~= name then return false end
    for text in pairs(eager_errors(program:text(attempt))) do
      if not errors[text] then return false end
    end
    return true
  end, 400)
  return program:text(removed) .. "--[[ in Python:\n" .. program:python_text(removed) .. "]]\n", ""
end

local failures, roundings, compared, started = 0, 0, 0, os.clock()
for seed = first, last do
  if options.at then  -- for the script: the seed that runs
    local file = assert(io.open(options.at, "w"))
    file:write(seed, "\n")
    file:close()
  end
  local program = generate(seed)
  local text = program:text()
  if options.print then print(text) end
  local mode, kind, difference, rounded, _, name = check(text)
  roundings = roundings + (rounded > 0 and 1 or 0)
  if not mode and torch and program.python then
    compared = compared + 1
    kind, difference, name = check_torch(program)
    mode = kind and "torch"
  end
  if mode then
    failures = failures + 1
    local small, note = text, ""
    if mode == "torch" and not options["no-shrink"] then
      small, note = shrink_torch(program, kind, name)
    elseif not options["no-shrink"] then
      small, note = shrink(program, modes.lines, mode)
    end
    print(("FAILED %s seed %d, %s (%s)%s: %s\n%s"):format(class, seed, mode, kind, note, difference, small))
    io.stdout:flush()
    if options.keep then
      local file = assert(io.open(("%s/%s-%d.lua"):format(options.keep, class, seed), "wb"))
      file:write(small)
      file:close()
    end
  end
end
print(("%s: seeds %d-%d, %d failed, %d with gradients that differ in their last bits, %d compared with PyTorch, %.1f s"):format(class,
  first, last, failures, roundings, compared, os.clock() - started))
os.exit(failures == 0 and 0 or 1)
