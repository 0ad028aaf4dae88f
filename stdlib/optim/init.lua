-- lt.optim: the optimisers, and lr_scheduler. Each is loaded at its first use.
local _, use = ...
return use("lazy").fill({Optimizer = use("optim.optimizer").Optimizer}, {
  SGD = "optim.sgd", RMSprop = "optim.rmsprop", Adagrad = "optim.adagrad", Adadelta = "optim.adadelta",
  Rprop = "optim.rprop", ASGD = "optim.asgd", LBFGS = "optim.lbfgs", lr_scheduler = "optim.lr_scheduler",
}, {["optim.adam"] = "Adam AdamW", ["optim.adam_variants"] = "NAdam RAdam Adamax"})
