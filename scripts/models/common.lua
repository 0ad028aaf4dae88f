-- Shared by the programs of this folder: options, files, batches of tokens, the train step, medians.
local lt = require "lutra"
local common = {}

-- Returns refuse(...), which prints the program's name and a message on standard error, and exits with status 2.
function common.refuser(program)
  return function(...)
    io.stderr:write(program, ": ", table.concat({...}), "\n")
    os.exit(2)
  end
end

-- Returns the usage and the description from the comment at the program's head. Lines that begin with three spaces are
-- the usage.
function common.usage()
  local usage, about = {}, {}
  for line in io.lines(arg[0]) do
    local text = line:match("^%-%-(.*)")
    if not text then break end
    local option = text:match("^   +(.*)")
    if option then usage[#usage + 1] = (#usage == 0 and "usage: " or "       ")
      .. option else about[#about + 1] = text:sub(2) end
  end
  return table.concat(usage, "\n"), table.concat(about, "\n")
end

-- Reads the program's arguments into `options`, which holds the defaults. kinds[name] converts the text of an option to
-- its value, or returns nil to refuse it; an option whose default is a number needs none. flags: options without a
-- value.
function common.read_options(options, kinds, flags, refuse)
  for name, default in pairs(options) do
    if type(default) == "number" then kinds[name] = kinds[name] or tonumber end
  end
  local i = 1
  while arg[i] do
    if arg[i] == "--help" or arg[i] == "-h" then
      local usage, about = common.usage()
      print(usage .. "\n" .. about)
      os.exit(0)
    end
    local name = arg[i]:match("^%-%-([%w-]+)$")
    local kind = name and kinds[name]
    if name and flags[name] then
      options[name] = true
    elseif not kind then
      refuse("unknown option ", arg[i], "\n", (common.usage()))
    else
      local value = arg[i + 1] and kind(arg[i + 1])
      if value == nil then
        refuse("cannot read ", arg[i], " ", tostring(arg[i + 1] or "without a value"), "\n", (common.usage()))
      end
      options[name], i = value, i + 1
    end
    i = i + 1
  end
  if options.device then
    local ok, problem = pcall(lt.set_default_device, options.device)
    if not ok then refuse("--device ", options.device, ": ", (problem:gsub("^.-:%d+: set_default_device: ", ""))) end
  end
  if options.threads then lt.config.num_threads = options.threads end
end

-- Checks before a long run that its result can be written to the path at its end.
function common.check_writable(path, refuse)
  if not path:match("%.safetensors$") then refuse(path, " must end in .safetensors") end
  local file, problem = io.open(path, "ab") -- a file that is there stays as it is
  if not file then refuse(problem) end
  local empty = file:seek("end") == 0
  file:close()
  if empty then os.remove(path) end
end

function common.read_file(path, refuse)
  local file, problem = io.open(path, "rb")
  if not file then refuse(problem) end
  local text = file:read("*a")
  file:close()
  return text or refuse(path, " is not a file")
end

-- Returns a function from a step to its inputs and targets: pieces of `tokens`, the targets one token later. A batch
-- depends on seed and step only, so a resumed run sees the same batches as an uninterrupted one.
function common.batches(tokens, seed, batch, length)
  local places = lt.arange(length + 1)
  return function(step)
    lt.manual_seed(seed * 1000003 + step)
    local first = lt.randint(0, tokens:size(0) - length, {batch, 1})
    local pieces = tokens:index_select(0, (first + places):view(-1)):view(batch, length + 1)
    return pieces:narrow(1, 0, length):contiguous(), pieces:narrow(1, 1, length):contiguous()
  end
end

function common.parameters_of(net)
  local count = 0
  for _, p in ipairs(net:parameters()) do count = count + p:numel() end
  return count
end

-- Returns a step: forward, backward and update. loss_of(net, x, y) returns the loss.
function common.train_step(loss_of, net, opt)
  return function(x, y)
    local loss = loss_of(net, x, y)
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end
end

function common.median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)] or 0
end

return common
