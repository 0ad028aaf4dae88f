---@meta lutra
-- Annotations for editors (LuaLS) of what has no schema: classes, modules, functions; never run; the REPL's help reads
-- it. `lutra docs` makes the rest.

---@alias lutra.DType "float64"|"float32"|"float16"|"bfloat16"|"int64"|"int32"|"int16"|"int8"|"uint8"|"bool"|"uint16"|"uint32"|"uint64"|"float8_e4m3fn"|"float8_e5m2"|"int4"|"complex64"|"complex128"
---@alias lutra.Operand lutra.Tensor|number|boolean
---@alias lutra.Dims integer|integer[]

---@class lutra.TensorOptions
---@field dtype? lutra.DType
---@field device? string
---@field requires_grad? boolean

---@class lutra.Tensor
---@field shape integer[] a fresh table; shape[1] is the size of dimension 0
---@field dtype lutra.DType
---@field device string
---@field grad lutra.Tensor?
---@field grad_fn any
---@field requires_grad boolean
---@field is_leaf boolean
---@field data lutra.Tensor the same memory without history; x.data = y lets x take y's memory and dtype
---@operator add(lutra.Operand): lutra.Tensor
---@operator sub(lutra.Operand): lutra.Tensor
---@operator mul(lutra.Operand): lutra.Tensor
---@operator div(lutra.Operand): lutra.Tensor
---@operator mod(lutra.Operand): lutra.Tensor
---@operator pow(lutra.Operand): lutra.Tensor
---@operator unm: lutra.Tensor
---@operator len: integer
local Tensor = {}

---@return table|number|boolean
function Tensor:totable() end
---@return table|number|boolean
function Tensor:tolist() end
---@param data any nested tables, a number or a boolean
---@param options? lutra.TensorOptions
---@return lutra.Tensor
function Tensor:new_tensor(data, options) end
---@param f fun(grad: lutra.Tensor): lutra.Tensor?
function Tensor:register_hook(f) end
---@param f fun(leaf: lutra.Tensor)
function Tensor:register_post_accumulate_grad_hook(f) end

---@class lutra.Module
---@field training boolean
---@overload fun(...): any
local Module = {}
---@param name string
---@return any class
function Module:extend(name) end
---@return lutra.Tensor[]
function Module:parameters() end
---@return lutra.Tensor[]
function Module:buffers() end
---@return fun(): string, lutra.Tensor
function Module:named_parameters(prefix) end
---@return fun(): string, lutra.Tensor
function Module:named_buffers(prefix) end
---@return fun(): lutra.Module
function Module:modules() end
---@return fun(): string, lutra.Module
function Module:named_modules(prefix) end
---@return fun(): lutra.Module
function Module:children() end
---@return fun(): string, lutra.Module
function Module:named_children() end
---@param name string
---@param tensor lutra.Tensor?
---@param options? {persistent?: boolean}
function Module:register_buffer(name, tensor, options) end
---@param prefix? string|{prefix?: string}
---@return table<string, lutra.Tensor>
function Module:state_dict(prefix) end
---@param state table<string, lutra.Tensor>
---@param options? {strict?: boolean}
---@return {missing_keys: string[], unexpected_keys: string[]}
function Module:load_state_dict(state, options) end
---Converts parameters and buffers to a device, a floating point dtype, both, or those of a tensor. Parameters stay the
---objects they are, so an
---optimiser may be made before or after.
---@return self
function Module:to(...) end
---@param mode? boolean
---@return self
function Module:train(mode) end
---@return self
function Module:eval() end
---@param options? {set_to_none?: boolean}
function Module:zero_grad(options) end
---@param f fun(module: lutra.Module)
---@return self
function Module:apply(f) end

---The part of a module at a path: "encoder.0".
---@param target string
---@return lutra.Module
function Module:get_submodule(target) end
---@param target string "encoder.0.weight"
---@return lutra.Tensor
function Module:get_parameter(target) end
---@param target string
---@return lutra.Tensor
function Module:get_buffer(target) end
---Calls hook(module, args) before forward; a list that it returns stands for the arguments, another value for the only
---one.
---@param hook fun(module: lutra.Module, args: table): any
---@param options? {prepend?: boolean}
---@return {remove: fun()}
function Module:register_forward_pre_hook(hook, options) end
---Calls hook(module, args, output) after forward; what it returns stands for the output. Several results are a list.
---@param hook fun(module: lutra.Module, args: table, output: any): any
---@param options? {prepend?: boolean}
---@return {remove: fun()}
function Module:register_forward_hook(hook, options) end
---Calls hook(module, grad_output) before the gradients go into the module; a list that it returns stands for them.
---@param hook fun(module: lutra.Module, grad_output: table): table?
---@param options? {prepend?: boolean}
---@return {remove: fun()}
function Module:register_full_backward_pre_hook(hook, options) end
---Calls hook(module, grad_input, grad_output) when the gradients of all inputs are there; a list that it returns
---stands for grad_input.
---@param hook fun(module: lutra.Module, grad_input: table, grad_output: table): table?
---@param options? {prepend?: boolean}
---@return {remove: fun()}
function Module:register_full_backward_hook(hook, options) end

---The base of optimisers. Mine = optim.Optimizer:extend "Mine"; Mine:init(params, ...) calls
---optim.Optimizer.init(self, params, defaults); it has a
---step of its own, or an update_group(self, group), which is called with grad mode off.
---@class lutra.Optimizer
---@field param_groups table[]
---@field state table<lutra.Tensor, table>
---@overload fun(params: table, defaults?: table): lutra.Optimizer
local Optimizer = {}
---@param name string
---@return any class
function Optimizer:extend(name) end
---@param params table tensors, or groups {params = {...}, lr = ...}
---@param defaults? table every option with its default
function Optimizer:init(params, defaults) end
---@param closure? fun(): lutra.Tensor
---@return lutra.Tensor?
function Optimizer:step(closure) end
---@param options? {set_to_none?: boolean}
function Optimizer:zero_grad(options) end
---@param group table
function Optimizer:add_param_group(group) end
---@return {state: table, param_groups: table[]}
function Optimizer:state_dict() end
function Optimizer:load_state_dict(state) end

---@class lutra.nn
---@field Module lutra.Module
---@field Parameter fun(data: lutra.Tensor, requires_grad?: boolean): lutra.Tensor
---@field Linear fun(in_features: integer, out_features: integer, options?: {bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field Sequential fun(...: lutra.Module): lutra.Module modules in order, a list of them, or a list of pairs {name, module}
---@field ModuleList fun(modules: lutra.Module[]): lutra.Module list[i] from 1, list[-1], list[{start, stop, step}]
---@field ParameterList fun(values?: lutra.Tensor[]): lutra.Module
---@field ParameterDict fun(parameters?: table): lutra.Module {name = tensor, ...} or {{name, tensor}, ...}
---@field CELU fun(alpha?: number, inplace?: boolean): lutra.Module
---@field ELU fun(alpha?: number, inplace?: boolean): lutra.Module
---@field GELU fun(approximate?: string): lutra.Module
---@field GLU fun(dim?: integer): lutra.Module
---@field Hardshrink fun(lambd?: number): lutra.Module
---@field Hardsigmoid fun(inplace?: boolean): lutra.Module
---@field Hardswish fun(inplace?: boolean): lutra.Module
---@field Hardtanh fun(min_val?: number, max_val?: number, inplace?: boolean): lutra.Module
---@field LeakyReLU fun(negative_slope?: number, inplace?: boolean): lutra.Module
---@field LogSigmoid fun(): lutra.Module
---@field Mish fun(inplace?: boolean): lutra.Module
---@field ReLU fun(inplace?: boolean): lutra.Module
---@field ReLU6 fun(inplace?: boolean): lutra.Module
---@field SELU fun(inplace?: boolean): lutra.Module
---@field Sigmoid fun(): lutra.Module
---@field SiLU fun(inplace?: boolean): lutra.Module
---@field Softplus fun(beta?: number, threshold?: number): lutra.Module
---@field Softshrink fun(lambd?: number): lutra.Module
---@field Softsign fun(): lutra.Module
---@field Tanh fun(): lutra.Module
---@field Tanhshrink fun(): lutra.Module
---@field Threshold fun(threshold?: number, value?: number, inplace?: boolean): lutra.Module
---@field BCELoss fun(weight?: lutra.Tensor, reduction?: string): lutra.Module
---@field BCEWithLogitsLoss fun(weight?: lutra.Tensor, reduction?: string, pos_weight?: lutra.Tensor): lutra.Module
---@field CosineSimilarity fun(dim?: integer, eps?: number): lutra.Module
---@field CrossEntropyLoss fun(weight?: lutra.Tensor, ignore_index?: integer, reduction?: string, label_smoothing?: number): lutra.Module
---@field HingeEmbeddingLoss fun(margin?: number, reduction?: string): lutra.Module
---@field HuberLoss fun(reduction?: string, delta?: number): lutra.Module
---@field KLDivLoss fun(reduction?: string, log_target?: boolean): lutra.Module
---@field L1Loss fun(reduction?: string): lutra.Module
---@field MSELoss fun(reduction?: string): lutra.Module
---@field MultiMarginLoss fun(p?: number, margin?: number, weight?: lutra.Tensor, reduction?: string): lutra.Module
---@field NLLLoss fun(weight?: lutra.Tensor, ignore_index?: integer, reduction?: string): lutra.Module
---@field PairwiseDistance fun(p?: number, eps?: number, keepdim?: boolean): lutra.Module
---@field PoissonNLLLoss fun(log_input?: boolean, full?: boolean, eps?: number, reduction?: string): lutra.Module
---@field SmoothL1Loss fun(reduction?: string, beta?: number): lutra.Module
---@field SoftMarginLoss fun(reduction?: string): lutra.Module
---@field CosineEmbeddingLoss fun(margin?: number, reduction?: string): lutra.Module
---@field GaussianNLLLoss fun(full?: boolean, eps?: number, reduction?: string): lutra.Module
---@field MarginRankingLoss fun(margin?: number, reduction?: string): lutra.Module
---@field TripletMarginLoss fun(margin?: number, p?: number, eps?: number, swap?: boolean, reduction?: string): lutra.Module
---@field TripletMarginWithDistanceLoss fun(distance_function?: fun(a: lutra.Tensor, b: lutra.Tensor): lutra.Tensor, margin?: number, swap?: boolean, reduction?: string): lutra.Module
---@field CTCLoss fun(blank?: integer, reduction?: string, zero_infinity?: boolean): lutra.Module m(log_probs, targets, input_lengths, target_lengths); lengths are tensors or lists
---@field PReLU fun(num_parameters?: integer, init?: number): lutra.Module
---@field Softmin fun(dim: integer): lutra.Module
---@field Identity fun(): lutra.Module
---@field Flatten fun(start_dim?: integer, end_dim?: integer): lutra.Module
---@field Softmax fun(dim: integer): lutra.Module
---@field LogSoftmax fun(dim: integer): lutra.Module
---@field LayerNorm fun(normalized_shape: integer|integer[], options?: {eps?: number, elementwise_affine?: boolean, bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field RMSNorm fun(normalized_shape: integer|integer[], options?: {eps?: number, elementwise_affine?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field Embedding fun(num_embeddings: integer, embedding_dim: integer, options?: {padding_idx?: integer, max_norm?: number, norm_type?: number, scale_grad_by_freq?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field EmbeddingBag fun(num_embeddings: integer, embedding_dim: integer, options?: {max_norm?: number, norm_type?: number, scale_grad_by_freq?: boolean, mode?: "sum"|"mean"|"max", include_last_offset?: boolean, padding_idx?: integer, dtype?: lutra.DType, device?: string}): lutra.Module
---@field RNN fun(input_size: integer, hidden_size: integer, options?: {num_layers?: integer, nonlinearity?: "tanh"|"relu", bias?: boolean, batch_first?: boolean, dropout?: number, bidirectional?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module m(input, h_0) gives output, h_n
---@field GRU fun(input_size: integer, hidden_size: integer, options?: {num_layers?: integer, bias?: boolean, batch_first?: boolean, dropout?: number, bidirectional?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module m(input, h_0) gives output, h_n
---@field LSTM fun(input_size: integer, hidden_size: integer, options?: {num_layers?: integer, bias?: boolean, batch_first?: boolean, dropout?: number, bidirectional?: boolean, proj_size?: integer, dtype?: lutra.DType, device?: string}): lutra.Module m(input, {h_0, c_0}) gives output, {h_n, c_n}
---@field RNNCell fun(input_size: integer, hidden_size: integer, options?: {bias?: boolean, nonlinearity?: "tanh"|"relu", dtype?: lutra.DType, device?: string}): lutra.Module
---@field GRUCell fun(input_size: integer, hidden_size: integer, options?: {bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field LSTMCell fun(input_size: integer, hidden_size: integer, options?: {bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module m(input, {h, c}) gives h, c
---@field MultiheadAttention fun(embed_dim: integer, num_heads: integer, options?: {dropout?: number, bias?: boolean, kdim?: integer, vdim?: integer, batch_first?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field TransformerEncoderLayer fun(d_model: integer, nhead: integer, options?: {dim_feedforward?: integer, dropout?: number, activation?: "relu"|"gelu"|function, layer_norm_eps?: number, batch_first?: boolean, norm_first?: boolean, bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module m(src, {src_mask =, src_key_padding_mask =, is_causal =})
---@field TransformerDecoderLayer fun(d_model: integer, nhead: integer, options?: {dim_feedforward?: integer, dropout?: number, activation?: "relu"|"gelu"|function, layer_norm_eps?: number, batch_first?: boolean, norm_first?: boolean, bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module m(tgt, memory, {tgt_mask =, memory_mask =, tgt_key_padding_mask =, memory_key_padding_mask =, tgt_is_causal =, memory_is_causal =})
---@field TransformerEncoder fun(encoder_layer: lutra.Module, num_layers: integer, norm?: lutra.Module): lutra.Module
---@field TransformerDecoder fun(decoder_layer: lutra.Module, num_layers: integer, norm?: lutra.Module): lutra.Module
---@field Transformer fun(d_model?: integer, nhead?: integer, num_encoder_layers?: integer, num_decoder_layers?: integer, dim_feedforward?: integer, dropout?: number, options?: table): lutra.Module m(src, tgt, {src_mask =, tgt_mask =, ...}); Transformer.generate_square_subsequent_mask(size)
---@field Upsample fun(size?: integer|integer[], scale_factor?: number|number[], mode?: string, align_corners?: boolean): lutra.Module
---@field UpsamplingNearest2d fun(size?: integer|integer[], scale_factor?: number): lutra.Module
---@field UpsamplingBilinear2d fun(size?: integer|integer[], scale_factor?: number): lutra.Module
---@field Unfold fun(kernel_size: integer|integer[], dilation?: integer, padding?: integer, stride?: integer): lutra.Module
---@field Fold fun(output_size: integer|integer[], kernel_size: integer|integer[], dilation?: integer, padding?: integer, stride?: integer): lutra.Module
---@field LocalResponseNorm fun(size: integer, alpha?: number, beta?: number, k?: number): lutra.Module
---@field Softmax2d fun(): lutra.Module
---@field Conv1d fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module stride, padding (also "same", "valid"), dilation, groups, bias, padding_mode ("zeros", "reflect", "replicate", "circular")
---@field Conv2d fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module stride, padding (also "same", "valid"), dilation, groups, bias, padding_mode ("zeros", "reflect", "replicate", "circular")
---@field ConvTranspose1d fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module stride, padding, output_padding, groups, bias, dilation
---@field ConvTranspose2d fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module stride, padding, output_padding, groups, bias, dilation
---@field MaxPool1d fun(kernel_size: integer|integer[], ...): lutra.Module stride, padding, dilation, return_indices, ceil_mode
---@field MaxPool2d fun(kernel_size: integer|integer[], ...): lutra.Module stride, padding, dilation, return_indices, ceil_mode
---@field AvgPool1d fun(kernel_size: integer|integer[], ...): lutra.Module stride, padding, ceil_mode, count_include_pad
---@field AvgPool2d fun(kernel_size: integer|integer[], ...): lutra.Module stride, padding, ceil_mode, count_include_pad, divisor_override
---@field AdaptiveAvgPool1d fun(output_size: integer|integer[]): lutra.Module
---@field AdaptiveAvgPool2d fun(output_size: integer|integer[]): lutra.Module
---@field AdaptiveMaxPool1d fun(output_size: integer|integer[]): lutra.Module
---@field AdaptiveMaxPool2d fun(output_size: integer|integer[]): lutra.Module
---@field BatchNorm1d fun(num_features: integer, ...): lutra.Module eps, momentum (false: a cumulative average), affine, track_running_stats
---@field BatchNorm2d fun(num_features: integer, ...): lutra.Module eps, momentum (false: a cumulative average), affine, track_running_stats
---@field BatchNorm3d fun(num_features: integer, ...): lutra.Module eps, momentum (false: a cumulative average), affine, track_running_stats
---@field InstanceNorm1d fun(num_features: integer, ...): lutra.Module eps, momentum, affine, track_running_stats
---@field InstanceNorm2d fun(num_features: integer, ...): lutra.Module eps, momentum, affine, track_running_stats
---@field GroupNorm fun(num_groups: integer, num_channels: integer, ...): lutra.Module eps, affine
---@field LazyLinear fun(out_features: integer, options?: {bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module a Linear from its first forward on
---@field LazyConv1d fun(out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module a Conv1d from its first forward on
---@field LazyConv2d fun(out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module a Conv2d from its first forward on
---@field LazyConvTranspose1d fun(out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module a ConvTranspose1d from its first forward on
---@field LazyConvTranspose2d fun(out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module a ConvTranspose2d from its first forward on
---@field LazyBatchNorm1d fun(...): lutra.Module a BatchNorm1d from its first forward on
---@field LazyBatchNorm2d fun(...): lutra.Module a BatchNorm2d from its first forward on
---@field LazyBatchNorm3d fun(...): lutra.Module a BatchNorm3d from its first forward on
---@field LazyInstanceNorm1d fun(...): lutra.Module an InstanceNorm1d from its first forward on
---@field LazyInstanceNorm2d fun(...): lutra.Module an InstanceNorm2d from its first forward on
---@field ModuleDict fun(modules?: table): lutra.Module
---@field utils lutra.utils
---@field functional lutra.functional
---@field init table<string, fun(t: lutra.Tensor, ...): lutra.Tensor>

---@class lutra.utils
---@field clip_grad_norm_ fun(parameters: lutra.Tensor|lutra.Tensor[], max_norm: number, norm_type?: number): lutra.Tensor
---@field clip_grad_value_ fun(parameters: lutra.Tensor|lutra.Tensor[], clip_value: number)
---@field parameters_to_vector fun(parameters: lutra.Tensor[]): lutra.Tensor
---@field vector_to_parameters fun(vector: lutra.Tensor, parameters: lutra.Tensor[])
---@field weight_norm fun(module: lutra.Module, name?: string, dim?: integer): lutra.Module a hook computes name from name_g and name_v before each forward; dim -1: one norm of the whole
---@field remove_weight_norm fun(module: lutra.Module, name?: string): lutra.Module
---@field spectral_norm fun(module: lutra.Module, name?: string, n_power_iterations?: integer, eps?: number, dim?: integer): lutra.Module a hook computes name from name_orig, name_u and name_v before each forward
---@field remove_spectral_norm fun(module: lutra.Module, name?: string): lutra.Module
---@field parametrizations {weight_norm: (fun(module: lutra.Module, name?: string, dim?: integer): lutra.Module), spectral_norm: (fun(module: lutra.Module, name?: string, n_power_iterations?: integer, eps?: number, dim?: integer): lutra.Module)} as those of utils, computed where the parameter is read
---@field parametrize lutra.parametrize

---@class lutra.functional
local functional = {}
---Rows of weight, reduced by bag: a bag is a row of input, or what lies between two offsets.
---@param input lutra.Tensor ids
---@param weight lutra.Tensor
---@param offsets? lutra.Tensor where the bags of an input of one dimension begin
---@param options? {max_norm?: number, norm_type?: number, scale_grad_by_freq?: boolean, mode?: "sum"|"mean"|"max", per_sample_weights?: lutra.Tensor, include_last_offset?: boolean, padding_idx?: integer}
---@return lutra.Tensor
function functional.embedding_bag(input, weight, offsets, options) end

---@class lutra.parametrize
---@field register_parametrization fun(module: lutra.Module, tensor_name: string, parametrization: lutra.Module, options?: {unsafe?: boolean}): lutra.Module
---@field remove_parametrizations fun(module: lutra.Module, tensor_name: string, leave_parametrized?: boolean): lutra.Module
---@field is_parametrized fun(module: lutra.Module, tensor_name?: string): boolean
---@field type_before_parametrizations fun(module: lutra.Module): any
---@field cached fun(f: function, ...): ... runs f(...), in which each parameter is computed once

---Options stand by position, too. foreach, fused and capturable ask for what a compiled step does anyway.
---@class lutra.optim
---@field Optimizer lutra.Optimizer
---@field SGD fun(params: table, options?: {lr?: number, momentum?: number, dampening?: number, weight_decay?: number, nesterov?: boolean, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field Adam fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, amsgrad?: boolean, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field AdamW fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, amsgrad?: boolean, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field RMSprop fun(params: table, options?: {lr?: number, alpha?: number, eps?: number, weight_decay?: number, momentum?: number, centered?: boolean, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field Adagrad fun(params: table, options?: {lr?: number, lr_decay?: number, weight_decay?: number, initial_accumulator_value?: number, eps?: number, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field NAdam fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, momentum_decay?: number, decoupled_weight_decay?: boolean, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field RAdam fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, decoupled_weight_decay?: boolean, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field Adamax fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field Adadelta fun(params: table, options?: {lr?: number, rho?: number, eps?: number, weight_decay?: number, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field Rprop fun(params: table, options?: {lr?: number, etas?: number[], step_sizes?: number[], maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field ASGD fun(params: table, options?: {lr?: number, lambd?: number, alpha?: number, t0?: number, weight_decay?: number, maximize?: boolean, foreach?: boolean, fused?: boolean, capturable?: boolean}): lutra.Optimizer
---@field LBFGS fun(params: table, options?: {lr?: number, max_iter?: integer, max_eval?: integer, tolerance_grad?: number, tolerance_change?: number, history_size?: integer, line_search_fn?: "strong_wolfe"}): lutra.Optimizer step(closure) calls closure, which gives the loss, several times
---@field lr_scheduler lutra.lr_scheduler

---@class lutra.Scheduler
---@field last_epoch number
---@field step fun(self, epoch_or_metric?: number)
---@field get_last_lr fun(self): number[]
---@field state_dict fun(self): table
---@field load_state_dict fun(self, state: table)

---@class lutra.lr_scheduler
---@field StepLR fun(optimizer: lutra.Optimizer, step_size: integer, gamma?: number, options?: table): lutra.Scheduler
---@field MultiStepLR fun(optimizer: lutra.Optimizer, milestones: integer[], gamma?: number, options?: table): lutra.Scheduler
---@field ConstantLR fun(optimizer: lutra.Optimizer, factor?: number, total_iters?: integer, options?: table): lutra.Scheduler
---@field ExponentialLR fun(optimizer: lutra.Optimizer, gamma: number, options?: table): lutra.Scheduler
---@field LinearLR fun(optimizer: lutra.Optimizer, start_factor?: number, end_factor?: number, total_iters?: integer, options?: table): lutra.Scheduler
---@field PolynomialLR fun(optimizer: lutra.Optimizer, total_iters?: integer, power?: number, options?: table): lutra.Scheduler
---@field CosineAnnealingLR fun(optimizer: lutra.Optimizer, T_max: integer, eta_min?: number, options?: table): lutra.Scheduler
---@field CosineAnnealingWarmRestarts fun(optimizer: lutra.Optimizer, T_0: integer, T_mult?: integer, eta_min?: number, options?: table): lutra.Scheduler
---@field OneCycleLR fun(optimizer: lutra.Optimizer, max_lr: number|number[], total_steps?: integer, options?: table): lutra.Scheduler
---@field LambdaLR fun(optimizer: lutra.Optimizer, lr_lambda: function|function[], options?: table): lutra.Scheduler
---@field MultiplicativeLR fun(optimizer: lutra.Optimizer, lr_lambda: function|function[], options?: table): lutra.Scheduler
---@field ReduceLROnPlateau fun(optimizer: lutra.Optimizer, mode?: "min"|"max", options?: {factor?: number, patience?: integer, threshold?: number, threshold_mode?: "rel"|"abs", cooldown?: integer, min_lr?: number|number[], eps?: number}): lutra.Scheduler
---@field SequentialLR fun(optimizer: lutra.Optimizer, schedulers: lutra.Scheduler[], milestones: integer[], options?: table): lutra.Scheduler
---@field ChainedScheduler fun(schedulers: lutra.Scheduler[]): lutra.Scheduler

---@class lutra.DataLoader
---@overload fun(state: any, last: any): lutra.Tensor?, ...
local DataLoader = {}
---@return integer batches
function DataLoader:len() end
---@return fun(): lutra.Tensor?, ...
function DataLoader:iter() end

---@class lutra.data
---@field TensorDataset fun(...: lutra.Tensor): table rows of tensors of one length: get(i), batch(indices), len()
---@field DataLoader fun(dataset: table, options?: {batch_size?: integer, shuffle?: boolean, drop_last?: boolean, generator?: any}): lutra.DataLoader batches of a dataset: for x, y in loader do; a dataset has len() and batch(indices)
---@field Subset fun(dataset: table, indices: lutra.Tensor|integer[]): table the rows of a dataset that indices name
---@field random_split fun(dataset: table, lengths: number[], options?: {generator?: any}): table[] all rows at random
---@field FashionMNIST fun(options?: {root?: string, train?: boolean}): table
---@field read_idx fun(path: string): lutra.Tensor

---@class lutra.Explanation
---@field graph_count integer
---@field graph_break_count integer
---@field op_count integer
---@field graphs any[]
---@field ops_per_graph any[]
---@field break_reasons {id: string, reason: string, kind: string, file: string, line: integer, source: string, hint: string, chain: string, eager: string, anchor: string}[]
---@field out_guards any[]
---@field plain_checkpoints integer calls of lt.checkpoint that are plain ones in the graphs
---@field saved_bytes number what compiled forwards keep for a backward outside, in all graphs
---@field compiling integer how many graphs are still compiled in the background
---@field recomputed_bytes number what it reads beside that, computed again
---@field compile_times table
---@field result table

---@class lutra.CompileOptions
---@field dynamic? boolean|table<string, integer[]> symbols: true, {x = {0}}: at once; nil: after a miss; false: none
---@field fullgraph? boolean a graph break is an error
---@field wait? boolean false: calls run eagerly until the code, made in the background, is there; nil: as lt.config.async says
---@field backend? "native"|"eager"|"aot_eager"|function native compiles; eager runs the graph op by op, aot_eager with its passes; f(graph) gives what runs
---@field mode? "default"|"reduce-overhead" both the same: on a GPU segments are replayed as CUDA graphs
---@field options? table no key exists yet

---@class lutra
---@field nn lutra.nn
---@field optim lutra.optim
---@field data lutra.data
---@field linalg lutra.linalg
---@field special lutra.special
---@field autograd lutra.autograd
---@field amp lutra.amp
---@field config table
local lt = {}

---@param data any
---@param options? lutra.TensorOptions
---@return lutra.Tensor
function lt.tensor(data, options) end
---@return lutra.Tensor
function lt.randperm(n, options) end
---@param data any a tensor, nested tables, a number or a boolean
---@param options? lutra.TensorOptions
---@return lutra.Tensor
function lt.as_tensor(data, options) end
---@param value any
---@return boolean
function lt.is_tensor(value) end
---@param ... integer|integer[] shapes
---@return integer[]
function lt.broadcast_shapes(...) end
---@param a lutra.Tensor
---@param b lutra.Tensor
---@param dims? integer|integer[][] how many of the last and first dimensions, or a list of each side's
---@return lutra.Tensor
function lt.tensordot(a, b, dims) end
---@param input lutra.Tensor
---@param bins? integer|lutra.Tensor how many bins of equal width, or their edges
---@param options? {range: number[], weight: lutra.Tensor, density: boolean}
---@return lutra.Tensor hist, lutra.Tensor bin_edges
function lt.histogram(input, bins, options) end
---@param input lutra.Tensor points: the last dimension holds their coordinates
---@param bins? integer|integer[]|lutra.Tensor[] how many bins of equal width along each dimension, or their edges
---@param options? {range: number[], weight: lutra.Tensor, density: boolean}
---@return lutra.Tensor hist, lutra.Tensor[] bin_edges
function lt.histogramdd(input, bins, options) end
---@param bins? integer|lutra.Tensor
---@return lutra.Tensor hist, lutra.Tensor bin_edges
function Tensor:histogram(bins, options) end
---@param seed integer
function lt.manual_seed(seed) end
---@return lutra.Tensor state bytes, for lt.set_rng_state
function lt.get_rng_state() end
---@param state lutra.Tensor what lt.get_rng_state gave
function lt.set_rng_state(state) end
---@return integer
function lt.initial_seed() end
---@return integer
function lt.get_num_threads() end
---@param count integer
function lt.set_num_threads(count) end
---@return table<string, integer> bytes
function lt.memory() end
---@param options {seconds: number}
---@return fun(f: function, ...): ... calls f(...)
function lt.limits(options) end
---@param pointer integer|ffi.cdata* an address or a pointer; a cdata is kept as long as the tensor
---@param sizes integer|integer[]
---@param options? {dtype: string, strides: integer[], device: string, deleter: fun(address: integer)}
---@return lutra.Tensor
function lt.from_blob(pointer, sizes, options) end
---@param array ffi.cdata* an array of numbers, which is kept as long as the tensor
---@return lutra.Tensor
function lt.from_ffi(array) end
---@param ext_tensor ffi.cdata* struct DLManagedTensorVersioned * or struct DLManagedTensor *, NULL afterwards
---@return lutra.Tensor
function lt.from_dlpack(ext_tensor) end
---@param options? {versioned: boolean}
---@return ffi.cdata* pointer released when it is collected; ffi.gc(pointer, nil) before another library takes it
function Tensor:to_dlpack(options) end
---@param device string "cpu", "cuda:0"
function lt.set_default_device(device) end
--- A device's name: lt.device("cuda", 1) is "cuda:1".
---@param type string|integer
---@param index? integer
---@return string
function lt.device(type, index) end
---How float32 products on a GPU may round: "highest" (not at all), "high" or "medium" (operands to TF32).
---@param precision "highest"|"high"|"medium"
function lt.set_float32_matmul_precision(precision) end
---@return "highest"|"high"|"medium"
function lt.get_float32_matmul_precision() end

---@class lutra.Tf32
---@field allow_tf32 boolean whether float32 operands may be rounded to TF32
---@class lutra.CudaBackend
---@field matmul lutra.Tf32
---@class lutra.Backends
---@field cudnn lutra.Tf32 convolutions; true unless set
---@field cuda lutra.CudaBackend products; as set_float32_matmul_precision has it
lt.backends = {}
---The device of creation functions that are given none.
---@return string
function lt.get_default_device() end

---@alias lutra.Gpu integer|string an index or "cuda:1"

---@class lutra.Event
local Event = {}
function Event:record() end
function Event:synchronize() end
---@return boolean whether the GPU has come to it
function Event:query() end
---@param stop lutra.Event
---@return number milliseconds
function Event:elapsed_time(stop) end

---@class lutra.cuda the GPUs of this machine
lt.cuda = {}
---@return boolean
function lt.cuda.is_available() end
---@return {driver: string?, nvrtc: string?} what cannot be used, with the reason; empty where both can
function lt.cuda.missing() end
---@return integer
function lt.cuda.device_count() end
---@return integer
function lt.cuda.current_device() end
---@param device lutra.Gpu
function lt.cuda.set_device(device) end
---@param device lutra.Gpu
---@param f function
---@return any ... what f returns, run with device as the current one
function lt.cuda.device(device, f, ...) end
---@param device? lutra.Gpu
---@return string
function lt.cuda.get_device_name(device) end
---@param device? lutra.Gpu
---@return integer major
---@return integer minor
function lt.cuda.get_device_capability(device) end
---@param device? lutra.Gpu
---@return {name: string, major: integer, minor: integer, total_memory: integer, multi_processor_count: integer}
function lt.cuda.get_device_properties(device) end
---@return boolean
function lt.cuda.is_bf16_supported() end
---@param device? lutra.Gpu waits for the work given to it
function lt.cuda.synchronize(device) end
function lt.cuda.empty_cache() end
---@param device? lutra.Gpu
---@return integer free
---@return integer total
function lt.cuda.mem_get_info(device) end
---@param device? lutra.Gpu
---@return integer bytes
function lt.cuda.memory_allocated(device) end
lt.cuda.max_memory_allocated, lt.cuda.memory_reserved = lt.cuda.memory_allocated, lt.cuda.memory_allocated
lt.cuda.max_memory_reserved = lt.cuda.memory_allocated
---@param device? lutra.Gpu
function lt.cuda.reset_peak_memory_stats(device) end
---@param device? lutra.Gpu
---@return table<string, integer>
function lt.cuda.memory_stats(device) end
---@param device? lutra.Gpu
---@return string
function lt.cuda.memory_summary(device) end
---@param seed integer
function lt.cuda.manual_seed(seed) end
---@param options? {enable_timing?: boolean, device?: lutra.Gpu, blocking?: boolean}
---@return lutra.Event
function lt.cuda.Event(options) end

---Gives a function that captures f at its first call, compiles its tensor ops and from then on checks guards and runs
---the code. f stays as it is.
---@generic F: function
---@param f F a function or a module
---@param options? lutra.CompileOptions
---@return F
function lt.compile(f, options) end
---Compiles f in place: every reference to it runs compiled code from its next call.
---@generic F: function
---@param f F
---@param options? lutra.CompileOptions
---@return F
function lt.patch(f, options) end
---Undoes lt.patch: f has the bytecode that it had. lt.auto leaves f alone from then on.
---@generic F: function
---@param f F
---@return F
function lt.unpatch(f) end
---Gives a function that runs f once and returns a report: graphs, breaks, guards, times. It prints as text.
---@param f function
---@param options? lutra.CompileOptions
---@return fun(...): lutra.Explanation
function lt.explain(f, options) end
---The guards of each entry of a compiled function. It prints folded; lt.guards(f):text{all = true} has each guard with
---its line.
---@param f function
---@return table[][] entries
function lt.guards(f) end
---Why each entry after the first was made, and what to do about it.
---@param f function
---@return {kind: string, source: string, old: any, new: any, file: string, line: integer, hint: string}[]
function lt.recompiles(f) end
---What was captured since lt.reset(): frames, graphs, breaks and recompiles by reason, kernels;
---stats.internal_errors, how many were told on stderr; cache.checkpointed, how often compiled code was left since an
---eager lt.checkpoint watched, and cache.lost_sizes, how often for a size 0
---or 1 that elements decided; async {started, ready, failed, eager_calls}:
---what was compiled in the background, and calls that ran eagerly meanwhile; compiled_autograd {graphs, ops, calls,
---eager}, backwards outside of compiled functions, and why parts ran eagerly. Of the whole process: disk_cache, and
---verify {calls, mismatches, repros}, what lt.config.verify has compared.
---@return table
function lt.counters() end
---Waits until the background has compiled all of f, or of everything. The next call takes it over, or raises what went
---wrong.
---@param f? function
function lt.wait_compiled(f) end
---An error at the caller's line where the condition is false. The message may be a function that gives the text.
---@param condition boolean
---@param message? string|fun(): string
function lt.check(condition, message) end
---An error unless n is a whole number that can be a size.
---@param n integer
---@param options? {min?: number, max?: number}
function lt.check_is_size(n, options) end
---Drops all compiled code and counters; compiled functions capture again.
function lt.reset() end
---Ends the graph here, in compiled code; reports of the break give the message.
---@param message? string
function lt.graph_break(message) end
---True in the whole call of a compiled function, but in what lt.disable keeps out of it.
---@return boolean
function lt.is_compiling() end
---Keeps f out of graphs: where compiled code calls it, the graph ends.
---Reports of the break give the reason.
---@param f function
---@param options? { reason?: string }
---@return function
function lt.disable(f, options) end
---The size of dim is a symbol from the first capture on; without dim, all sizes.
---@param x lutra.Tensor
---@param dim? integer
---@param options? {min?: integer, max?: integer} the code is for these sizes alone, as if the program had checked them
---@return lutra.Tensor
function lt.mark_dynamic(x, dim, options) end
---What compiled functions do from now on, or while f(...) runs, which then gives the results. "force_eager": the
---original code; "eager_on_recompile": compiled code that is there, otherwise the original; "fail_on_recompile": a call
---without compiled code is an error.
---@param stance "default"|"force_eager"|"eager_on_recompile"|"fail_on_recompile"
---@param f? function
---@return ...
function lt.set_stance(stance, f, ...) end
---The size of dim stays a constant: each size has an entry. Without dim, all sizes.
---@param x lutra.Tensor
---@param dim? integer
---@return lutra.Tensor
function lt.mark_static(x, dim) end
---Patches every function that runs tensor ops and gets hot: true, false or {threshold = n} calls. It captures only what
---a fiftieth of the CPU time passed, or what its code has saved, pays for, so a short program runs eagerly.
---lt.config.profit = "always" captures at once and keeps everything.
---@param on boolean|{threshold?: integer}
function lt.auto(on) end
---@param f function
---@return any ...
function lt.no_grad(f, ...) end
---@param f function
---@return any ...
function lt.enable_grad(f, ...) end
---@param f function
---@return any ...
function lt.inference_mode(f, ...) end
---Gives f(...) and saves nothing for its backward, which runs f(...) again, under the random state and autocast of
---then. A write to a tensor that f read is refused until then. f may not yield. In a compiled function it is a plain
---call; compiled functions that f calls run eagerly.
---@param f function|table
---@return any ...
function lt.checkpoint(f, ...) end
---Runs f(...) with ops on that device in the types of PyTorch's autocast lists: products and convolutions in dtype
---(the CPU's default is
---bfloat16, CUDA's float16), what needs range in float32. The mode is put back when f returns or throws. Without
---options, f comes second.
---@param device_type "cpu"|"cuda"
---@param options? {dtype?: string, enabled?: boolean, cache_enabled?: boolean}
---@param f function|table
---@return any ...
function lt.autocast(device_type, options, f, ...) end
---A copy that shares no memory: of a module, an optimiser, a tensor or a table of them. What is reached twice is
---copied once.
---@generic T
---@param value T
---@return T
function lt.deepcopy(value) end
---Whether a module, optimiser or scheduler is of a class, or of one that extends it.
---@param value any
---@param class any a class or a list of classes
---@return boolean
function lt.isinstance(value, class) end

---f(...) where pred holds, else g(...).
---@param pred boolean|lutra.Tensor a tensor of one element
---@param f function
---@param g function
---@return any ...
function lt.cond(pred, f, g, ...) end
---While cond(...) holds, the carried values become body(...); gives the last ones. They keep shapes, dtypes, devices.
---@param cond function cond(...) gives a boolean or a tensor of one element
---@param body function
---@param ... lutra.Tensor|table carried values: a tensor or a (nested) table of tensors each
---@return any ...
function lt.while_loop(cond, body, ...) end
---carry, y = f(carry, x) for each slice x of xs along dim. Gives the last carry and the ys, stacked along dimension 0:
---ys[i] belongs to slice i. y may be nil; then there are no ys.
---@param f function f(carry, x) gives the next carry and a y
---@param init lutra.Tensor|table
---@param xs lutra.Tensor|table
---@param options? {dim?: integer, reverse?: boolean} dim is 0, reverse false: from the first slice to the last
---@return any carry
---@return any ys
function lt.scan(f, init, xs, options) end
---f(x, ...) for each slice x of xs along dimension 0; its results, stacked along dimension 0.
---@param f function
---@param xs lutra.Tensor|table
---@return any ...
function lt.map(f, xs, ...) end
---The prefixes of xs along dim under f(a, b), which is associative and combines slices element by element. About
---2 log2(n) rounds (Blelloch, "Prefix sums and their applications", 1990).
---@param f function f(a, b) gives a value like a and b
---@param xs lutra.Tensor|table
---@param dim integer
---@param options? {reverse?: boolean} reverse: prefixes begin at the last element; false unless set
---@return any
function lt.associative_scan(f, xs, dim, options) end

---What a Function's forward and backward get first.
---@class lutra.Context
---@field saved_tensors lutra.Tensor[] in backward, what save_for_backward was given
---@field needs_input_grad boolean[]
local Context = {}
---@param ... lutra.Tensor?
function Context:save_for_backward(...) end
---@param ... lutra.Tensor results that have no gradient
function Context:mark_non_differentiable(...) end
---@param ... lutra.Tensor arguments that forward writes and returns
function Context:mark_dirty(...) end
---@param value boolean false: results that were not used have nil as their gradient, not zeros
function Context:set_materialize_grads(value) end

---The base of ops whose gradients are written in Lua: Mine = lt.autograd.Function:extend "Mine" with forward(ctx, ...)
---and backward(ctx, ...);
---Mine.apply(...) or Mine(...) calls it.
---@class lutra.Function
---@overload fun(...): any
local Function = {}
---@param name string
---@return any class
function Function:extend(name) end
---@return any ... what forward gives
function Function.apply(...) end

---@class lutra.autograd
---@field grad function lt.grad
---@field Function lutra.Function

---Scales losses so that small gradients in float16 do not vanish, and leaves out steps whose gradients overflowed.
---@class lutra.GradScaler
local GradScaler = {}
---@generic T
---@param outputs T a tensor or a list
---@return T
function GradScaler:scale(outputs) end
---@param optimizer lutra.Optimizer
function GradScaler:unscale_(optimizer) end
---@param optimizer lutra.Optimizer
---@return any
function GradScaler:step(optimizer) end
---@param new_scale? number
function GradScaler:update(new_scale) end
---@return number
function GradScaler:get_scale() end
---@return boolean
function GradScaler:is_enabled() end
---@return table
function GradScaler:state_dict() end
---@param state table
function GradScaler:load_state_dict(state) end

---@class lutra.amp
---@field autocast function lt.autocast
---@field GradScaler fun(device?: string, options?: {init_scale?: number, growth_factor?: number, backoff_factor?: number, growth_interval?: integer, enabled?: boolean}): lutra.GradScaler without a GPU, one for "cuda" does nothing

---@param iterator function|lutra.DataLoader
---@param options? {desc?: string, total?: integer}
---@return fun(): any, ...
function lt.progress(iterator, options) end
---@return number seconds
function lt.perf_counter() end
---Prints what x is and how to call it; a text is searched for. The interactive session's help.
---@param x? any
function lt.help(x) end
---@param dtype? string a floating point dtype, "float32" where none is given
---@return {dtype: string, bits: integer, eps: number, max: number, min: number, tiny: number, smallest_normal: number, resolution: number}
function lt.finfo(dtype) end
---@param dtype string an integer dtype
---@return {dtype: string, bits: integer, min: number, max: number}
function lt.iinfo(dtype) end
---Runs f once and tells what each kernel and library call cost; tostring prints a table. What capture and compilation
---took is
---told apart, in compile_ms.
---@param f function|table
---@param options? {warmup?: integer} calls of f before, which do not count
---@return fun(...): {kernels: table[], total_ms: number, kernel_ms: number, compile_ms: number, compiled_kernels: integer, result: table}
function lt.profile(f, options) end
---Writes a file that appears whole or not at all.
---@param path string ends in .safetensors, .npy or .npz
---@param value lutra.Tensor|table tensors, and in .safetensors also tables, numbers, strings, booleans
---@param options? {metadata?: table<string, string>}
function lt.save(path, value, options) end
---@param path string ends in .safetensors, .npy or .npz
---@param options? {metadata?: boolean}
---@return any value what was saved; a table from names to tensors for other programs' .safetensors and .npz files
---@return table<string, string>? metadata of a .safetensors file, where options ask for it
function lt.load(path, options) end

return lt
