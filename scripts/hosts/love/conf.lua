function love.conf(t)
  t.window.title = "Lutra learns while LÖVE draws"
  t.window.width, t.window.height = 512, 512
  t.modules.audio, t.modules.joystick, t.modules.physics, t.modules.sound = false, false, false, false
end
