-- What smoke.lua and must_see.lua share: lines about what was seen, and train steps.
--   local common = dofile(folder .. "common.lua")
local lt = require "lutra"
local F = lt.nn.functional
local M = {failed = 0}

function M.report(name, ok, text)
  if not ok then M.failed = M.failed + 1 end
  print((ok and "ok     " or "FAILED ") .. name .. (text and ": " .. text or ""))
end

-- The program's last line and its status.
function M.finish(name)
  print(name .. (M.failed == 0 and ": ok" or ": " .. M.failed .. " failed"))
  os.exit(M.failed == 0 and 0 or 1)
end

-- The cross entropy of net's rows.
function M.row_loss(net) return function(x, y) return F.cross_entropy(net(x), y) end end

-- The step that trains opt's parameters by loss_of(x, y), eager or (options: lt.compile's) compiled.
function M.train_step(opt, loss_of, options)
  local function step(x, y)
    local loss = loss_of(x, y)
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end
  return options and lt.compile(step, options) or step
end

return M
