---@meta lutra
-- Annotations for editors (LuaLS); never run; the REPL's help reads it. Ops that are only elementwise are listed once, as methods: each is lt.op(x, ...) too.

---@alias lutra.DType "float64"|"float32"|"float16"|"bfloat16"|"int64"|"int32"|"int16"|"int8"|"uint8"|"bool"
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
---@operator add(lutra.Operand): lutra.Tensor
---@operator sub(lutra.Operand): lutra.Tensor
---@operator mul(lutra.Operand): lutra.Tensor
---@operator div(lutra.Operand): lutra.Tensor
---@operator mod(lutra.Operand): lutra.Tensor
---@operator pow(lutra.Operand): lutra.Tensor
---@operator unm: lutra.Tensor
---@operator len: integer
local Tensor = {}

---@param dim? integer
---@return integer ... every size, or that of dim
function Tensor:size(dim) end
---@return integer ...
function Tensor:stride(dim) end
---@return integer
function Tensor:dim() end
---@return integer
function Tensor:numel() end
---@return boolean
function Tensor:is_contiguous() end
---@return number|boolean
function Tensor:item() end
---@return table
function Tensor:totable() end
---@return lutra.Tensor
function Tensor:clone() end
---@return lutra.Tensor
function Tensor:detach() end
---@return lutra.Tensor
function Tensor:contiguous() end
---@param target lutra.DType|string|lutra.Tensor a dtype, a device, or a tensor that has both
---@param ... any then a dtype, non_blocking, copy; or {dtype=, non_blocking=, copy=}
---@return lutra.Tensor
function Tensor:to(target, ...) end
---@return lutra.Tensor
function Tensor:cpu() end
---@return integer the GPU's index, -1 on the CPU
function Tensor:get_device() end
---@return lutra.Tensor in memory that GPUs read directly
function Tensor:pin_memory() end
---@return boolean
function Tensor:is_pinned() end
---@param device? integer|string
---@return lutra.Tensor
function Tensor:cuda(device) end
function Tensor:free() end
---@param gradient? lutra.Tensor
---@param options? {retain_graph?: boolean, create_graph?: boolean}
function Tensor:backward(gradient, options) end
---@param on? boolean
---@return lutra.Tensor
function Tensor:requires_grad_(on) end
---@param f fun(grad: lutra.Tensor): lutra.Tensor?
function Tensor:register_hook(f) end
---@param src lutra.Tensor
---@return lutra.Tensor
function Tensor:copy_(src) end

---@param other lutra.Operand
---@return lutra.Tensor
function Tensor:add(other) end
Tensor.sub, Tensor.mul, Tensor.div, Tensor.pow, Tensor.remainder = Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add
Tensor.floor_divide, Tensor.maximum, Tensor.minimum = Tensor.add, Tensor.add, Tensor.add
Tensor.eq, Tensor.ne, Tensor.lt, Tensor.le, Tensor.gt, Tensor.ge = Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add
---@return lutra.Tensor
function Tensor:exp() end
Tensor.log, Tensor.tanh, Tensor.sigmoid, Tensor.sqrt, Tensor.rsqrt, Tensor.relu = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.neg, Tensor.abs, Tensor.sign, Tensor.floor, Tensor.ceil, Tensor.square = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.sin, Tensor.cos, Tensor.tan, Tensor.asin, Tensor.acos, Tensor.atan, Tensor.sinh, Tensor.cosh = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.asinh, Tensor.acosh, Tensor.atanh, Tensor.exp2, Tensor.expm1, Tensor.log2, Tensor.log10, Tensor.log1p = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.erf, Tensor.erfc, Tensor.erfinv, Tensor.lgamma, Tensor.digamma, Tensor.trunc, Tensor.fix, Tensor.frac = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.sgn, Tensor.sinc, Tensor.deg2rad, Tensor.rad2deg, Tensor.positive, Tensor.signbit, Tensor.isinf, Tensor.isfinite = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.isnan, Tensor.isposinf, Tensor.isneginf, Tensor.bitwise_not, Tensor.logical_not, Tensor.nan_to_num, Tensor.logit, Tensor.round = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.silu, Tensor.mish, Tensor.selu, Tensor.relu6, Tensor.hardswish, Tensor.hardsigmoid, Tensor.tanhshrink, Tensor.softsign = Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp, Tensor.exp
Tensor.logsigmoid, Tensor.gelu = Tensor.exp, Tensor.exp
Tensor.atan2, Tensor.hypot, Tensor.copysign, Tensor.fmod, Tensor.fmax, Tensor.fmin, Tensor.bitwise_and, Tensor.bitwise_or = Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add
Tensor.bitwise_xor, Tensor.bitwise_left_shift, Tensor.bitwise_right_shift, Tensor.logical_and, Tensor.logical_or, Tensor.logical_xor, Tensor.clamp_min, Tensor.clamp_max = Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add
Tensor.rsub, Tensor.float_power, Tensor.ldexp, Tensor.logaddexp, Tensor.logaddexp2, Tensor.xlogy, Tensor.heaviside, Tensor.isclose = Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add, Tensor.add
Tensor.isin, Tensor.true_divide = Tensor.add, Tensor.add
Tensor.gcd, Tensor.lcm = Tensor.add, Tensor.add
---@return lutra.Tensor mantissa
---@return lutra.Tensor exponent
function Tensor:frexp() end
---@param min? lutra.Operand
---@param max? lutra.Operand
---@return lutra.Tensor
function Tensor:clamp(min, max) end
Tensor.clip = Tensor.clamp
---@param other lutra.Tensor
---@return boolean
function Tensor:equal(other) end
---@param other lutra.Tensor
---@param options? {rtol?: number, atol?: number}
---@return boolean
function Tensor:allclose(other, options) end

---@param dim? lutra.Dims
---@param keepdim? boolean
---@return lutra.Tensor
function Tensor:sum(dim, keepdim) end
Tensor.mean, Tensor.amax, Tensor.amin, Tensor.any, Tensor.all = Tensor.sum, Tensor.sum, Tensor.sum, Tensor.sum, Tensor.sum
---@param dim? integer
---@param keepdim? boolean
---@return lutra.Tensor
function Tensor:argmax(dim, keepdim) end
---@param dim? integer
---@return lutra.Tensor values
---@return lutra.Tensor indices
function Tensor:max(dim) end

---@param ... integer|integer[]
---@return lutra.Tensor
function Tensor:view(...) end
Tensor.reshape, Tensor.permute, Tensor.expand = Tensor.view, Tensor.view, Tensor.view
---@param dim0 integer
---@param dim1 integer
---@return lutra.Tensor
function Tensor:transpose(dim0, dim1) end
---@param dim integer
---@return lutra.Tensor
function Tensor:unsqueeze(dim) end
---@param dim? lutra.Dims
---@return lutra.Tensor
function Tensor:squeeze(dim) end
---@param start_dim? integer
---@param end_dim? integer
---@return lutra.Tensor
function Tensor:flatten(start_dim, end_dim) end
---@param dim integer
---@param index integer
---@return lutra.Tensor
function Tensor:select(dim, index) end
---@param other lutra.Tensor
---@return lutra.Tensor
function Tensor:matmul(other) end
Tensor.mm, Tensor.bmm = Tensor.matmul, Tensor.matmul
---@param dim integer
---@return lutra.Tensor
function Tensor:softmax(dim) end
Tensor.log_softmax = Tensor.softmax
---@param dim integer
---@param index lutra.Tensor
---@return lutra.Tensor
function Tensor:gather(dim, index) end
Tensor.index_select = Tensor.gather
---@param dim integer
---@param index lutra.Tensor
---@param src lutra.Tensor|number
---@param options? {reduce?: string}
---@return lutra.Tensor
function Tensor:scatter(dim, index, src, options) end
---@param dim integer
---@param index lutra.Tensor
---@param src lutra.Tensor
---@return lutra.Tensor
function Tensor:scatter_add(dim, index, src) end
Tensor.scatter_, Tensor.scatter_add_ = Tensor.scatter, Tensor.scatter_add
Tensor.index_copy, Tensor.index_copy_ = Tensor.scatter_add, Tensor.scatter_add
---@param dim integer
---@param index lutra.Tensor
---@param src lutra.Tensor
---@param reduce string
---@param options? {include_self?: boolean}
---@return lutra.Tensor
function Tensor:scatter_reduce(dim, index, src, reduce, options) end
Tensor.index_reduce = Tensor.scatter_reduce
---@param dim integer
---@param index lutra.Tensor
---@param source lutra.Tensor
---@param options? {alpha?: number}
---@return lutra.Tensor
function Tensor:index_add(dim, index, source, options) end
Tensor.index_add_ = Tensor.index_add
---@param dim integer
---@param index lutra.Tensor
---@param value lutra.Tensor|number
---@return lutra.Tensor
function Tensor:index_fill(dim, index, value) end
Tensor.index_fill_ = Tensor.index_fill
---@param indices lutra.Tensor[]
---@param values lutra.Tensor
---@param accumulate? boolean
---@return lutra.Tensor
function Tensor:index_put(indices, values, accumulate) end
Tensor.index_put_ = Tensor.index_put
---@param index lutra.Tensor
---@return lutra.Tensor
function Tensor:take(index) end
---@param indices lutra.Tensor
---@param dim? integer
---@return lutra.Tensor
function Tensor:take_along_dim(indices, dim) end
---@param index lutra.Tensor
---@param source lutra.Tensor
---@param accumulate? boolean
---@return lutra.Tensor
function Tensor:put(index, source, accumulate) end
---@param mask lutra.Tensor
---@param source lutra.Tensor
---@return lutra.Tensor
function Tensor:masked_scatter(mask, source) end
---@param mask lutra.Tensor
---@return lutra.Tensor
function Tensor:masked_select(mask) end
---@param options? {as_tuple?: boolean}
---@return lutra.Tensor|lutra.Tensor[]
function Tensor:nonzero(options) end
---@param dim? integer
---@param descending? boolean
---@return lutra.Tensor values
---@return lutra.Tensor indices
function Tensor:sort(dim, descending) end
---@param dim? integer
---@param descending? boolean
---@return lutra.Tensor
function Tensor:argsort(dim, descending) end
---@param k integer
---@param dim? integer
---@param largest? boolean
---@return lutra.Tensor values
---@return lutra.Tensor indices
function Tensor:topk(k, dim, largest) end
---@param sorted? boolean
---@param return_inverse? boolean
---@param return_counts? boolean
---@param dim? integer
---@return lutra.Tensor ...
function Tensor:unique(sorted, return_inverse, return_counts, dim) end
---@param bins? integer
---@param min? number
---@param max? number
---@return lutra.Tensor
function Tensor:histc(bins, min, max) end
---@param weights? lutra.Tensor
---@param minlength? integer
---@return lutra.Tensor
function Tensor:bincount(weights, minlength) end

---@param normalized_shape integer|integer[]
---@param weight? lutra.Tensor
---@param bias? lutra.Tensor
---@param eps? number
---@return lutra.Tensor
function Tensor:layer_norm(normalized_shape, weight, bias, eps) end
---@param normalized_shape integer|integer[]
---@param weight? lutra.Tensor
---@param eps? number
---@return lutra.Tensor
function Tensor:rms_norm(normalized_shape, weight, eps) end
---@param key lutra.Tensor
---@param value lutra.Tensor
---@param options? {attn_mask?: lutra.Tensor, dropout_p?: number, is_causal?: boolean, scale?: number, enable_gqa?: boolean}
---@return lutra.Tensor
function Tensor:scaled_dot_product_attention(key, value, options) end

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
---@return table<string, lutra.Tensor>
function Module:state_dict(prefix) end
---@param state table<string, lutra.Tensor>
---@param options? {strict?: boolean}
---@return {missing_keys: string[], unexpected_keys: string[]}
function Module:load_state_dict(state, options) end
---Converts parameters and buffers to a device, a floating point dtype, both, or those of a tensor. Parameters stay the objects they are, so an
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

---@class lutra.Optimizer
---@field param_groups table[]
---@field state table<lutra.Tensor, table>
local Optimizer = {}
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
---@field ModuleList fun(modules: lutra.Module[]): lutra.Module
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
---@field PReLU fun(num_parameters?: integer, init?: number): lutra.Module
---@field Softmin fun(dim: integer): lutra.Module
---@field Identity fun(): lutra.Module
---@field Flatten fun(start_dim?: integer, end_dim?: integer): lutra.Module
---@field Softmax fun(dim: integer): lutra.Module
---@field LogSoftmax fun(dim: integer): lutra.Module
---@field LayerNorm fun(normalized_shape: integer|integer[], options?: {eps?: number, elementwise_affine?: boolean, bias?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field RMSNorm fun(normalized_shape: integer|integer[], options?: {eps?: number, elementwise_affine?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field Embedding fun(num_embeddings: integer, embedding_dim: integer, options?: {padding_idx?: integer, max_norm?: number, norm_type?: number, scale_grad_by_freq?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field MultiheadAttention fun(embed_dim: integer, num_heads: integer, options?: {dropout?: number, bias?: boolean, kdim?: integer, vdim?: integer, batch_first?: boolean, dtype?: lutra.DType, device?: string}): lutra.Module
---@field TransformerEncoderLayer fun(d_model: integer, nhead: integer, options?: {dim_feedforward?: integer, dropout?: number, activation?: string|function, layer_norm_eps?: number, batch_first?: boolean, norm_first?: boolean, bias?: boolean}): lutra.Module
---@field Conv1d fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module stride, padding (also "same", "valid"), dilation, groups, bias
---@field Conv2d fun(in_channels: integer, out_channels: integer, kernel_size: integer|integer[], ...): lutra.Module stride, padding (also "same", "valid"), dilation, groups, bias
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
---@field ModuleDict fun(modules?: table): lutra.Module
---@field utils {clip_grad_norm_: (fun(parameters: lutra.Tensor|lutra.Tensor[], max_norm: number, norm_type?: number): lutra.Tensor), clip_grad_value_: fun(parameters: lutra.Tensor|lutra.Tensor[], clip_value: number), parameters_to_vector: (fun(parameters: lutra.Tensor[]): lutra.Tensor), vector_to_parameters: fun(vector: lutra.Tensor, parameters: lutra.Tensor[])}
---@field functional table<string, fun(...): lutra.Tensor>
---@field init table<string, fun(t: lutra.Tensor, ...): lutra.Tensor>

---@class lutra.optim
---@field SGD fun(params: table, options?: {lr?: number, momentum?: number, dampening?: number, weight_decay?: number, nesterov?: boolean, maximize?: boolean}): lutra.Optimizer
---@field Adam fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, amsgrad?: boolean, maximize?: boolean}): lutra.Optimizer
---@field AdamW fun(params: table, options?: {lr?: number, betas?: number[], eps?: number, weight_decay?: number, amsgrad?: boolean, maximize?: boolean}): lutra.Optimizer
---@field RMSprop fun(params: table, options?: {lr?: number, alpha?: number, eps?: number, weight_decay?: number, momentum?: number, centered?: boolean, maximize?: boolean}): lutra.Optimizer
---@field Adagrad fun(params: table, options?: {lr?: number, lr_decay?: number, weight_decay?: number, initial_accumulator_value?: number, eps?: number, maximize?: boolean}): lutra.Optimizer
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
---@field FashionMNIST fun(options?: {root?: string, train?: boolean}): table
---@field read_idx fun(path: string): lutra.Tensor

---@class lutra.Explanation
---@field graph_count integer
---@field graph_break_count integer
---@field op_count integer
---@field graphs any[]
---@field ops_per_graph any[]
---@field break_reasons {reason: string, kind: string, file: string, line: integer, hint: string}[]
---@field out_guards any[]
---@field compile_times table
---@field result table

---@class lutra.CompileOptions
---@field dynamic? boolean nil: sizes that change become symbols at the second size; true: from the start; false: an entry a size
---@field fullgraph? boolean a graph break is an error
---@field backend? "native"|"eager"|"aot_eager"|function native compiles; eager runs the graph op by op, aot_eager with its passes; f(graph) gives what runs
---@field mode? "default"|"reduce-overhead" both the same: on a GPU segments are replayed as CUDA graphs
---@field options? table no key exists yet

---@class lutra
---@field nn lutra.nn
---@field optim lutra.optim
---@field data lutra.data
---@field config table
local lt = {}

---@param data any
---@param options? lutra.TensorOptions
---@return lutra.Tensor
function lt.tensor(data, options) end
---@param ... any sizes, or a table of sizes and a table of options
---@return lutra.Tensor
function lt.zeros(...) end
lt.ones, lt.empty, lt.rand, lt.randn = lt.zeros, lt.zeros, lt.zeros, lt.zeros
---@param size integer[]
---@param value number
---@param options? lutra.TensorOptions
---@return lutra.Tensor
function lt.full(size, value, options) end
---@return lutra.Tensor
function lt.arange(...) end
---@return lutra.Tensor
function lt.randint(low, high, size, options) end
---@return lutra.Tensor
function lt.randperm(n, options) end
---@param x lutra.Tensor
---@return lutra.Tensor
function lt.zeros_like(x, options) end
lt.ones_like = lt.zeros_like
---@param condition lutra.Tensor
---@param input lutra.Operand
---@param other lutra.Operand
---@return lutra.Tensor
function lt.where(condition, input, other) end
---@param seed integer
function lt.manual_seed(seed) end
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

---Gives a function that captures f at its first call, compiles its tensor ops and from then on checks guards and runs the code. f stays as it is.
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
---Undoes lt.patch: f has the bytecode that it had.
---@generic F: function
---@param f F
---@return F
function lt.unpatch(f) end
---Gives a function that runs f once and returns a report: graphs, breaks, guards, times. It prints as text.
---@param f function
---@param options? lutra.CompileOptions
---@return fun(...): lutra.Explanation
function lt.explain(f, options) end
---The guards of each entry of a compiled function. It prints folded; lt.guards(f):text{all = true} has each guard with its line.
---@param f function
---@return table[][] entries
function lt.guards(f) end
---Why each entry after the first was made, and what to do about it.
---@param f function
---@return {kind: string, source: string, old: any, new: any, file: string, line: integer, hint: string}[]
function lt.recompiles(f) end
---What was captured since lt.reset(): frames, graphs, breaks and recompiles by reason, kernels.
---@return table
function lt.counters() end
---Drops all compiled code and counters; compiled functions capture again.
function lt.reset() end
---Ends the graph here, in compiled code.
function lt.graph_break() end
---True while a function is captured.
---@return boolean
function lt.is_compiling() end
---Keeps f out of graphs: where compiled code calls it, the graph ends.
---@param f function
---@return function
function lt.disable(f) end
---The size of dim is a symbol from the first capture on; without dim, all sizes.
---@param x lutra.Tensor
---@param dim? integer
---@return lutra.Tensor
function lt.mark_dynamic(x, dim) end
---The size of dim stays a constant: each size has an entry. Without dim, all sizes.
---@param x lutra.Tensor
---@param dim? integer
---@return lutra.Tensor
function lt.mark_static(x, dim) end
---Patches every function that runs tensor ops and gets hot: true, false or {threshold = n} calls.
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
---Runs f(...) with ops on that device in the types of PyTorch's autocast lists: products and convolutions in dtype (the CPU's default is
---bfloat16, CUDA's float16), what needs range in float32. The mode is put back when f returns or throws. Without options, f comes second.
---@param device_type "cpu"|"cuda"
---@param options? {dtype?: string, enabled?: boolean, cache_enabled?: boolean}
---@param f function|table
---@return any ...
function lt.autocast(device_type, options, f, ...) end
---@param device_type? "cpu"|"cuda" the default is "cuda"
---@return boolean
function lt.is_autocast_enabled(device_type) end
---@param device_type "cpu"|"cuda"
---@return string dtype
function lt.get_autocast_dtype(device_type) end
---@param device_type "cpu"|"cuda"
---@param enabled boolean
function lt.set_autocast_enabled(device_type, enabled) end
---@param device_type "cpu"|"cuda"
---@param dtype string
function lt.set_autocast_dtype(device_type, dtype) end
---@return boolean
function lt.is_autocast_cache_enabled() end
---@param enabled boolean
function lt.set_autocast_cache_enabled(enabled) end
function lt.clear_autocast_cache() end
---@param on boolean
function lt.set_grad_enabled(on) end
---@param outputs lutra.Tensor|lutra.Tensor[]
---@param inputs lutra.Tensor|lutra.Tensor[]
---@param options? {grad_outputs?: any, create_graph?: boolean, allow_unused?: boolean}
---@return lutra.Tensor ...
function lt.grad(outputs, inputs, options) end
---@param iterator function|lutra.DataLoader
---@param options? {desc?: string, total?: integer}
---@return fun(): any, ...
function lt.progress(iterator, options) end
---@return number seconds
function lt.perf_counter() end
---Runs f once and tells what each kernel and library call cost; tostring prints a table. What capture and compilation took is
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
