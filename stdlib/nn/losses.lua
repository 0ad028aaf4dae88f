-- Losses that are more than an op with options: for sequences without an alignment, and for triplets under a custom
-- distance. Both are functions and modules.
local lt, use = ...
local errors, keywords = use "errors", use "keywords"
local Module = use("nn.module").Module
local none = keywords.none

local M = {}

-- Connectionist temporal classification. Lengths may be lists of numbers.
local ctc_loss = lt.ctc_loss
local ctc_options = {{"blank", 0}, {"reduction", "mean"}, {"zero_infinity", false}}
local ctc_arguments = {{"log_probs"}, {"targets"}, {"input_lengths"}, {"target_lengths"}, unpack(ctc_options)}

local function lengths_of(lengths, like)
  if type(lengths) ~= "table" then return lengths end
  return lt.tensor(lengths, {dtype = "int64", device = like.device})
end

local function ctc(log_probs, targets, input_lengths, target_lengths, o)
  errors.tensor("ctc_loss", "log_probs", log_probs)
  return ctc_loss(log_probs, targets, lengths_of(input_lengths, log_probs), lengths_of(target_lengths, log_probs),
    o.blank, o.reduction, o.zero_infinity)
end

function M.ctc_loss(...)
  local o = keywords.read("ctc_loss", ctc_arguments, ...)
  return ctc(o.log_probs, o.targets, o.input_lengths, o.target_lengths, o)
end

local CTCLoss = Module:extend("CTCLoss")
M.CTCLoss = CTCLoss

function CTCLoss:init(...)
  local o = keywords.read("CTCLoss", ctc_options, ...)
  self.blank, self.reduction, self.zero_infinity = o.blank, o.reduction, o.zero_infinity
end

function CTCLoss:forward(log_probs, targets, input_lengths, target_lengths)
  return ctc(log_probs, targets, input_lengths, target_lengths, self)
end

-- How much closer, by at least the margin, the positive should be to the anchor than the negative.
local pairwise_distance, minimum = lt.pairwise_distance, lt.minimum
local triplet_options = {{"distance_function", none}, {"margin", 1}, {"swap", false}, {"reduction", "mean"}}
local reductions = {none = function(x) return x end, mean = lt.mean, sum = lt.sum}

local function triplet(a, p, n, o)
  local where = "triplet_margin_with_distance_loss"
  errors.tensor(where, "anchor", a)
  errors.tensor(where, "positive", p)
  errors.tensor(where, "negative", n)
  local reduce = reductions[o.reduction]
  if reduce == nil then
    errors.fail("%s: reduction '%s' is unknown%s", where, tostring(o.reduction), errors.known(o.reduction, reductions))
  end
  errors.number(where, "margin", o.margin)
  if o.margin <= 0 then errors.fail("%s: margin must be positive, got %s", where, o.margin) end
  if p:dim() ~= a:dim() or n:dim() ~= a:dim() then
    errors.fail("%s: expected anchor, positive and negative of one number of dimensions, got %d, %d and %d", where,
      a:dim(), p:dim(), n:dim())
  end
  local distance = o.distance_function
  if distance == nil then distance = pairwise_distance else errors.callable(where, "distance_function", distance) end
  local near, far = distance(a, p), distance(a, n)
  if o.swap then far = minimum(far, distance(p, n)) end
  return reduce((near + o.margin - far):clamp_min(0))
end

local triplet_arguments = {{"anchor"}, {"positive"}, {"negative"}, unpack(triplet_options)}
function M.triplet_margin_with_distance_loss(...)
  local o = keywords.read("triplet_margin_with_distance_loss", triplet_arguments, ...)
  return triplet(o.anchor, o.positive, o.negative, o)
end

local Triplet = Module:extend("TripletMarginWithDistanceLoss")
M.TripletMarginWithDistanceLoss = Triplet

function Triplet:init(...)
  local o = keywords.read("TripletMarginWithDistanceLoss", triplet_options, ...)
  self.distance_function = o.distance_function
  self.margin, self.swap, self.reduction = o.margin, o.swap, o.reduction
end

function Triplet:forward(anchor, positive, negative) return triplet(anchor, positive, negative, self) end

return M
