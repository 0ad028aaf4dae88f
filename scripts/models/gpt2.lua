-- Trains GPT-2 (by default 124M) with AdamW and a learning rate with warm-up and cosine decay. The train step (forward,
-- backward, clipping, update) is one compiled graph.
--   lutra scripts/models/gpt2.lua [--device cuda] [--bf16] [--tf32] [--batch 8] [--length 512] [--steps 100]
--     [--data FILE] [--seed 0] [--layers 12] [--d 768] [--heads 12] [--vocabulary 50257] [--untied] [--lr 6e-4]
--     [--warmup N] [--decay 0.1] [--clip 1] [--log-every 10] [--save FILE.safetensors] [--save-every N] [--stop-at N]
--     [--resume] [--compile | --eager] [--threads N] [--json FILE]
-- --data FILE: token ids in an .npy file, or as 16-bit numbers in a .bin file; of any other file each byte is a token.
-- Without it tokens are drawn, the same at each run. --bf16 runs forward under autocast. --save writes FILE at the end
-- and every --save-every steps; --resume goes on from it. --stop-at ends the run before --steps, for which the learning
-- rate is planned.
local lt = require "lutra"
local nn, optim = lt.nn, lt.optim
local here = arg[0]:match("^(.*/)[^/]*$") or "./"
local common, GPT = dofile(here .. "common.lua"), dofile(here .. "gpt.lua")
local refuse = common.refuser("gpt2")

local options = {steps = 100, batch = 8, length = 512, d = 768, heads = 12, layers = 12, vocabulary = 50257, lr = 6e-4,
  decay = 0.1, clip = 1,
                 seed = 0, ["log-every"] = 10}
local kinds = {data = tostring, save = tostring, json = tostring, device = tostring, threads = tonumber,
  warmup = tonumber, ["save-every"] = tonumber, ["stop-at"] = tonumber}
common.read_options(options, kinds,
  {bf16 = true, tf32 = true, untied = true, resume = true, eager = true, compile = true}, refuse)
if options.resume and not options.save then refuse("--resume needs --save FILE") end
if options.save then common.check_writable(options.save, refuse) end
if options.eager and options.compile then refuse("--eager or --compile, not both") end
if options.d % options.heads ~= 0 then refuse("--d must be a multiple of --heads") end
if options.tf32 then lt.set_float32_matmul_precision("high") end
if options.steps < 1 then refuse("--steps must be at least 1") end
local device = lt.get_default_device()
local on_gpu = device:match("^cuda") ~= nil
local last_step = math.min(options.steps, options["stop-at"] or options.steps)
local warmup = options.warmup or math.min(100, math.ceil(options.steps / 10))

-- Tokens --------------------------------------------------------------------------------------------------------------

-- The bytes of a file as a tensor of small integers.
local function raw(path, dtype, bytes)
  local ffi = require "ffi"
  local text = common.read_file(path, refuse)
  local t = lt.empty({math.floor(#text / bytes)}, {dtype = dtype, device = "cpu"})
  ffi.copy(ffi.cast("void *", t:data_ptr()), text, t:numel() * bytes)
  return t:to("int64")
end

local function read_tokens(path)
  if path:match("%.npy$") then return lt.load(path):view(-1):to("int64") end
  if path:match("%.bin$") then return raw(path, "int16", 2):remainder(65536) end
  return raw(path, "uint8", 1)
end

local tokens
if options.data then
  tokens = read_tokens(options.data)
else
  lt.manual_seed(1234)
  tokens = (lt.rand(2 ^ 20, {device = "cpu"}) ^ 3 * options.vocabulary):to("int64") -- a few are frequent
end
if tokens:numel() < options.length + 2 then
  refuse("there are ", tokens:numel(), " tokens: more than ", options.length + 1, " are needed")
end
local largest = tokens:max():item()
if largest >= options.vocabulary or tokens:min():item() < 0 then
  refuse("the tokens go up to ", largest, ": --vocabulary is ", options.vocabulary)
end
local batch = common.batches(tokens:to(device), options.seed, options.batch, options.length)

-- The network and one step of training --------------------------------------------------------------------------------

lt.manual_seed(options.seed)
local net = GPT {d = options.d, heads = options.heads, layers = options.layers, vocabulary = options.vocabulary,
                 length = math.max(options.length, 1024), tied = not options.untied, init = "gpt2"}
local matrices, vectors = {}, {}
for _, p in ipairs(net:parameters()) do
  local list = p:dim() > 1 and matrices or vectors
  list[#list + 1] = p
end
local opt = optim.AdamW({{params = matrices, weight_decay = options.decay}, {params = vectors, weight_decay = 0}},
  {lr = options.lr, betas = {0.9, 0.95}})
local first_step = 1
if options.resume then
  local saved = lt.load(options.save)
  net:load_state_dict(saved.model)
  opt:load_state_dict(saved.optimizer)
  first_step = saved.step + 1
end

local function loss_of(x, y)
  local logits = net(x)
  return nn.functional.cross_entropy(logits:view(-1, logits:size(2)), y:view(-1))
end

local parameters, autocast = net:parameters(), {dtype = lt.bfloat16, enabled = options.bf16 or false}
local device_type = on_gpu and "cuda" or "cpu"
local function train_step(x, y)
  local loss = lt.autocast(device_type, autocast, loss_of, x, y)
  opt:zero_grad()
  loss:backward()
  if options.clip > 0 then nn.utils.clip_grad_norm_(parameters, options.clip) end
  opt:step()
  return loss
end
local step = options.eager and train_step or lt.compile(train_step)

-- Returns the learning rate of a step: linear warm-up, then a cosine down to a tenth.
local function rate(at)
  if at <= warmup then return options.lr * at / warmup end
  local part = math.min(1, (at - warmup) / math.max(1, options.steps - warmup))
  return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * part)))
end

local function save(at)
  lt.save(options.save, {model = net:state_dict(), optimizer = opt:state_dict(), step = at})
end

local function peak_mb()
  if on_gpu then return lt.cuda.max_memory_allocated() / 2 ^ 20 end
  local file = io.open("/proc/self/status")
  local kb = file and file:read("*a"):match("VmHWM:%s*(%d+)")
  if file then file:close() end
  return kb and tonumber(kb) / 2 ^ 10 or 0
end

-- Training ------------------------------------------------------------------------------------------------------------

print(string.format("%d parameters, %d tokens, steps %d to %d of %d x %d on %s%s, %s", common.parameters_of(net),
  tokens:numel(), first_step,
  last_step, options.batch, options.length, device, options.bf16 and " in bfloat16" or "", options.eager and "eager"
    or "compiled"))

local first, last, first_ms, rates = nil, 0, 0, {}
local since, since_step = lt.perf_counter(), first_step - 1
for i = first_step, last_step do
  for _, group in ipairs(opt.param_groups) do group.lr = rate(i) end -- a number that changes, and compiles nothing anew
  local loss = step(batch(i))
  if not first or i % options["log-every"] == 0 or i == last_step then
    last = loss:item() -- waits for the GPU
    local now = lt.perf_counter()
    local ms = (now - since) * 1e3 / (i - since_step)
    if first then rates[#rates + 1] = ms else first, first_ms = last, ms end
    print(string.format("step %5d  loss %8.4f  lr %.2e  %9.2f ms  %8.0f tokens/s  %6.0f MB", i, last, rate(i), ms,
      options.batch * options.length / ms * 1e3, peak_mb()))
    io.stdout:flush()
    if last ~= last then refuse("the loss is not a number at step ", i) end
    since, since_step = lt.perf_counter(), i
  end
  if options.save and (i == last_step or (options["save-every"] and i % options["save-every"] == 0)) then
    save(i)
    since = lt.perf_counter()
    since_step = i
  end
end

local median = common.median(rates)
print(string.format([[

  loss                  %7.4f     (%.4f at the first step)
  step                  %7.2f ms  %.0f tokens/s
  first step            %7.1f ms
  peak memory           %7.0f MB
  recompiles            %4d]], last, first or 0, median, median > 0 and options.batch * options.length / median * 1e3 or 0, first_ms, peak_mb(),
  options.eager and 0 or #lt.recompiles(step)))

if options.json then
  local file = assert(io.open(options.json, "w"))
  file:write(string.format('{"loss": %.6f, "first_loss": %.6f, "step_ms": %.4f, "first_call_ms": %.3f, "peak_mb": %.1f, "steps": %d, "parameters": %d}\n',
    last, first or 0, median, first_ms, peak_mb(), options.steps, common.parameters_of(net)))
  file:close()
end
