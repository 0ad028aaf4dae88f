-- The functions that control/reads.lua traces. Each load makes new ones. A function that makes no tensor would not be
-- compiled, hence lt.zeros(0). If they run uncompiled (beyond lt.config.recompile_limit), they return false.
local lt, use = ...
local record = use "control.record"
local native = lt._native
local captured, possible = native.is_captured, native.control_possible
local branch_reads, loop_reads = native.control_branch_reads, native.control_loop_reads

local M = {}

function M.branches(f, g, ...)
  if not captured() then return false end
  if not possible() then return nil end
  local first, results, n = record.call("cond", "f", f, ...)
  local second, others, m = record.call("cond", "g", g, ...)
  record.same(record.side("f", f), results, n, record.side("g", g), others, m)
  return branch_reads(first, second), branch_reads(second, first), lt.zeros(0)
end

function M.loop(cond, body, carried, n)
  if not captured() then return false end
  if not possible() then return nil end
  local _, condition = record.body("while_loop", "cond", 0, cond, carried, n)
  if not lt.is_tensor(condition[1]) then native.control_refuse("cond gives no tensor") end
  local tensors = record.flatten("while_loop", carried, n)
  local step, results, m = record.body("while_loop", "body", #tensors, body, carried, n)
  record.same(record.side("body", body), results, m, "it takes", carried, n)
  local takes, read = loop_reads(step)
  return takes, read, lt.zeros(0)
end

return M
