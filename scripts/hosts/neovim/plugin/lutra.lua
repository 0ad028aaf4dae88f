-- :LutraOdd [N] learns the buffer's text, character by character, and puts the N lines (10) that surprise the network
-- most into the location list: misspelt names, stray characters. It learns in a thread; the editor goes on.

-- Runs in a Lua state of the thread: it gets and gives text and numbers, and sees no variable of this file.
local function odd_lines(text, cpath)
  package.cpath = cpath
  local lt = require "lutra"
  local nn, F = lt.nn, lt.nn.functional
  local context, batch = 8, 128
  lt.manual_seed(0)

  local codes = {}
  for i = 1, #text do codes[i] = text:byte(i) end
  for _ = 1, context do table.insert(codes, 1, 10) end  -- a text begins after empty lines
  local windows = lt.tensor(codes, {dtype = "int64"}):unfold(0, context + 1, 1)  -- (#text, context + 1)

  local net = nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), nn.Linear(context * 16, 128), nn.ReLU(),
                            nn.Linear(128, 256))
  local optimizer = lt.optim.AdamW(net:parameters(), {lr = 3e-3})
  local function surprise(rows)
    return F.cross_entropy(net(rows[{":", {0, context}}]), rows[{":", context}], {reduction = "none"})
  end
  local step = lt.compile(function(rows)
    optimizer:zero_grad()
    surprise(rows):mean():backward()
    optimizer:step()
  end)
  for _ = 1, 400 do step(windows[lt.randint(0, #text, {batch})]) end

  local lines, line, sum, count = {}, 1, 0, 0
  local losses = lt.no_grad(surprise, windows):tolist()
  for i = 1, #text do
    sum, count = sum + losses[i], count + 1
    if codes[i + context] == 10 then
      if count > 1 then lines[#lines + 1] = ("%d %.3f"):format(line, sum / count) end
      line, sum, count = line + 1, 0, 0
    end
  end
  return table.concat(lines, "\n")
end

local function show(window, buffer, most, lines)
  local found = {}
  for line, score in lines:gmatch("(%d+) (%S+)") do
    found[#found + 1] = {bufnr = buffer, lnum = tonumber(line), score = tonumber(score)}
  end
  table.sort(found, function(a, b) return a.score > b.score end)
  local items = {}
  for i = 1, math.min(most, #found) do
    local text = vim.api.nvim_buf_get_lines(buffer, found[i].lnum - 1, found[i].lnum, false)[1] or ""
    items[i] = {bufnr = buffer, lnum = found[i].lnum, text = ("%.2f %s"):format(found[i].score, text)}
  end
  vim.fn.setloclist(window, {}, " ", {title = "Lines that surprise", items = items})
  vim.api.nvim_exec_autocmds("User", {pattern = "LutraOdd"})
end

vim.api.nvim_create_user_command("LutraOdd", function(call)
  local window, buffer = vim.api.nvim_get_current_win(), vim.api.nvim_get_current_buf()
  local text = table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n") .. "\n"
  local done = vim.schedule_wrap(function(lines) show(window, buffer, tonumber(call.args) or 10, lines) end)
  vim.loop.new_work(odd_lines, done):queue(text, package.cpath)
end, {nargs = "?"})
