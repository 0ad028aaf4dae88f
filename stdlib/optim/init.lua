-- lt.optim: the optimisers, and lr_scheduler.
local _, use = ...
local optim = {Optimizer = use("optim.optimizer").Optimizer, SGD = use "optim.sgd", RMSprop = use "optim.rmsprop",
  Adagrad = use "optim.adagrad",
               Adadelta = use "optim.adadelta", Rprop = use "optim.rprop", ASGD = use "optim.asgd",
                 LBFGS = use "optim.lbfgs",
               lr_scheduler = use "optim.lr_scheduler"}
for _, family in ipairs {"optim.adam", "optim.adam_variants"} do
  for name, class in pairs(use(family)) do optim[name] = class end
end
return optim
