-- Helpers for tests of control flow: compare the bits of tensors, and a function's loss and gradients in all its forms.
local lt = require "lutra"
local h = require "harness"

local M = {}

function M.same_bits(a, b)
  if a == nil or b == nil then return a == b end
  if a.dtype ~= b.dtype then return false end
  local as = ({[2] = lt.int16, [4] = lt.int32, [8] = lt.int64})[a:element_size()]
  return a:contiguous():view(as):equal(b:contiguous():view(as))
end

-- The loss of f(x) and gradients of the leaves: eager, in one graph with its backward, and with the backward outside.
-- graphs: how many that is in the first case, where it matters.
function M.check(graphs, f, leaves, x)
  local function step(x)
    local loss = f(x)
    loss:backward()
    return loss
  end
  local function gradients(run, is_step)
    for _, leaf in ipairs(leaves) do leaf.grad = nil end
    local loss = run(x)
    if not is_step then loss:backward() end
    local out = {loss}
    for i, leaf in ipairs(leaves) do out[i + 1] = leaf.grad or false end
    return out
  end
  local want = gradients(f, false)
  for _, leaf in ipairs(leaves) do leaf.grad = nil end
  if graphs then h.equal(lt.explain(step)(x).graph_count, graphs) end
  local whole, outside = lt.compile(step), lt.compile(f)
  for call = 1, 3 do
    for way, got in ipairs {gradients(whole, true), gradients(outside, false)} do
      for i = 1, #want do
        h.truthy(M.same_bits(got[i] or nil, want[i] or nil), ("call %d, way %d, tensor %d"):format(call, way, i))
      end
    end
  end
  return want
end

-- The op that a backward names because what it reads was written; nil where a message says something else.
function M.reader_in(message)
  return tostring(message):match("modified by an inplace operation: .*, an input or result of ([%w_]+), is at version")
end

return M
