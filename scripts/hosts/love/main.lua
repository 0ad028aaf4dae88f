-- A game whose world is a network: left and right clicks set points of two kinds, and the net learns, frame by frame,
-- which kind is where. Its answer for each place is written straight into the pixels of the picture behind.
-- With --check FILE the game ends when the points are learnt, with a screenshot FILE in LÖVE's save folder.
local lt = require "lutra"
local nn, F = lt.nn, lt.nn.functional

local side, scale = 128, 4              -- the field of side x side places is drawn scale times as large
local seconds_a_frame = 0.008           -- what learning may take of a frame of 16 ms
local points, kinds = {}, {}            -- {x, y} in -1 .. 1, and 0 or 1
local net, optimizer, step, paint, picture, image
local frames, steps, loss = 0, 0, 0
local check

local function add(x, y, kind)
  points[#points + 1], kinds[#kinds + 1] = {x, y}, kind
end

-- Two arms of a spiral to begin with.
local function spiral()
  for i = 0, 59 do
    local angle, radius = i / 60 * 3 * math.pi, 0.1 + 0.8 * i / 60
    add(radius * math.cos(angle), radius * math.sin(angle), 0)
    add(-radius * math.cos(angle), -radius * math.sin(angle), 1)
  end
end

function love.load(arguments)
  check = arguments[1] == "--check" and arguments[2]
  lt.manual_seed(1)
  net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
  optimizer = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
  step = lt.compile(function(x, y)
    optimizer:zero_grad()
    local l = F.binary_cross_entropy_with_logits(net(x), y)
    l:backward()
    optimizer:step()
    return l
  end)

  picture = love.image.newImageData(side, side, "rgba8")
  local pixels = lt.from_blob(picture:getFFIPointer(), {side, side, 4}, {dtype = "uint8"})
  pixels:fill_(255)
  local axis = lt.linspace(-1, 1, side)
  local places = lt.stack({axis:repeat_interleave(side), axis:tile({side})}, 1):flip(1)  -- (side * side, 2) as x, y
  paint = lt.compile(function()
    local share = lt.sigmoid(net(places)):view(side, side)
    pixels[{":", ":", 0}] = 60 + 160 * share
    pixels[{":", ":", 1}] = 100 + 60 * (1 - (2 * share - 1):abs())
    pixels[{":", ":", 2}] = 220 - 160 * share
  end)
  image = love.graphics.newImage(picture)
  spiral()
end

function love.mousepressed(x, y, button)
  add(x / (side * scale) * 2 - 1, y / (side * scale) * 2 - 1, button == 1 and 0 or 1)
end

function love.update()
  local x, y = lt.tensor(points), lt.tensor(kinds, {dtype = "float32"})
  local stop = love.timer.getTime() + seconds_a_frame
  repeat
    loss = step(x, y)
    steps = steps + 1
  until love.timer.getTime() > stop
  loss = loss:item()
  lt.no_grad(paint)
  image:replacePixels(picture)
end

function love.draw()
  love.graphics.setColor(1, 1, 1)
  love.graphics.draw(image, 0, 0, 0, scale, scale)
  for i, p in ipairs(points) do
    local x, y = (p[1] + 1) / 2 * side * scale, (p[2] + 1) / 2 * side * scale
    love.graphics.setColor(0, 0, 0)
    love.graphics.circle("fill", x, y, 6)
    love.graphics.setColor(kinds[i] == 0 and {0.3, 0.5, 1} or {1, 0.6, 0.3})
    love.graphics.circle("fill", x, y, 4)
  end
  love.graphics.setColor(1, 1, 1)
  love.graphics.print(("step %d   loss %.4f   click to add points"):format(steps, loss), 8, 8)

  frames = frames + 1
  if check and frames % 100 == 0 then
    local answers = net(lt.tensor(points)):gt(0):to("int64")
    local learnt = answers:eq(lt.tensor(kinds)):to("float32"):mean():item()
    if learnt < 0.95 and frames < 3000 then return end
    print(("%d steps in %d frames, %.0f %% of the points learnt"):format(steps, frames, 100 * learnt))
    love.graphics.captureScreenshot(function(shot)
      shot:encode("png", check)
      love.event.quit(learnt < 0.95 and 1 or 0)
    end)
  end
end
