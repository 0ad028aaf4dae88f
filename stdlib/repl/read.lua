-- read(text): takes an input of the prompt. Returns its chunk; or nil, the message of its syntax error, and whether
-- more lines may complete it. The chunk is called with `show` and `keep`. An expression is passed to show and not
-- returned, because a tail call would lose its line in errors. A chunk that may have locals ends with keep(), which
-- turns them into globals, so that a program can be entered line by line.

local MOST_LINES = 1000 -- of a paste that is tried line by line

-- Adds a line end, so that a string that is open there stays open.
local function load(text) return loadstring(text .. "\n", "=stdin") end

local function ends_early(message) return message:sub(-7) == "'<eof>'" end

local PREFIX = "local _show, _keep = ...; "

-- Returns a chunk of statements that keeps their locals; the plain chunk if nothing may follow them (return, break).
local function statements(text)
  local chunk, problem = load(text)
  return chunk and text:find("%f[%w_]local%f[^%w_]") and load(PREFIX .. text .. "\n_keep()") or chunk, problem
end

-- Returns the chunk that shows an expression; nil and the message if the text is none.
local function expression_chunk(text)
  local values, problem = load("return " .. text)
  local chunk = load(PREFIX .. "_show(" .. text .. "\n)")
  return values and chunk, problem or ""
end

-- Returns whether a line continues the previous one, as in chains of methods.
local function continues(line)
  return line
    and (line:find("^%s*[%.:,%+%-%*/%%%^<>=~%)%]}]") or line:find("^%s*and%f[^%w_]") or line:find("^%s*or%f[^%w_]"))
end

-- Finds the first lines from `first` on that are an expression or a statement by themselves. Returns their text, the
-- last line, and whether they are an expression. If there are none, returns nil and whether they only end too early.
local function stretch(lines, first)
  for last = first, #lines do
    local text = table.concat(lines, "\n", first, last)
    if not (continues(lines[last + 1]) and not lines[last + 1]:find("^%s*%-%-")) then
      if expression_chunk(text) then return text, last, true end
      if load(text) then return text, last, false end
    end
  end
  local _, message = load(table.concat(lines, "\n", first))
  return nil, ends_early(message)
end

-- Returns the chunk of lines that are not a chunk as a whole because some are expressions, as in a pasted session. Each
-- expression is shown. Lines keep their numbers, for errors.
local function session(text)
  local lines, parts, first, closing = {}, {}, 1, ""
  for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  if #lines == 1 or #lines > MOST_LINES then return nil, false end
  while first <= #lines do
    local part, last, expression = stretch(lines, first)
    if not part then return nil, last end
    parts[#parts + 1] = closing .. (expression and "_show(" .. part or part)
    closing, first = expression and "); " or "", last + 1 -- on the next line, after a comment's end
  end
  local all = PREFIX .. table.concat(parts, "\n") .. "\n" .. closing
  return load(all .. "; _keep()") or load(all), false
end

-- Returns the chunk of several lines that end with a call, whose value is shown like that of a single line.
local function shown_call(text)
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  if #lines == 1 or #lines > MOST_LINES then return nil end
  local first = #lines
  while first > 1 and not lines[first]:find "%S" do first = first - 1 end
  for at = first, 2, -1 do
    local head, last = table.concat(lines, "\n", 1, at - 1), table.concat(lines, "\n", at, first)
    if not continues(lines[at]) and load(head) and load(last) and expression_chunk(last) then
      return load(PREFIX .. head .. "\n_show(" .. last .. "\n); _keep()")
    end
  end
end

-- Handles ?name and ?, which ask for help.
local function question(text)
  local name = text:match "^%?%s*(.-)%s*$"
  if not name then return nil end
  if name == "" then return load "help()" end
  return load(name:find "^[%w_.:]+$" and string.format("help(%q)", name) or "help(" .. name .. ")")
end

return function(text)
  local asked = question(text)
  if asked then return asked end
  local expression = text:match("^=(.*)$") or text
  local chunk, problem = expression_chunk(expression)
  if chunk then return chunk end
  if expression ~= text then return nil, problem, ends_early(problem) end
  local message
  chunk, message = statements(text)
  if chunk then return shown_call(text) or chunk end
  local silent = text:match("^(.*);%s*$")
  if silent and expression_chunk(silent) then return load("local _ = " .. silent) end
  if ends_early(message) or ends_early(problem) then return nil, message, true end
  local early
  chunk, early = session(text)
  return chunk, message, early
end
