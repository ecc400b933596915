"""Names of the rules as they appear in conditions, Events and metrics. `docs/reference/reasons.md` explains each."""

from __future__ import annotations

from typing import Final

# What was done
FLIPPED: Final = "Flipped"
GROWN: Final = "Grown"
SHRUNK: Final = "Shrunk"
HANDED_OVER: Final = "HandedOver"
MINIMUM_FIRST: Final = "MinimumFirst"
PENDING_CANCELLED: Final = "PendingCancelled"
CAP_ENFORCED: Final = "CapEnforced"
LEFTOVER_RELEASED: Final = "LeftoverReleased"
MIGRATING: Final = "Migrating"

# Why nothing was done
WITHIN_TARGETS: Final = "WithinTargets"
SIGNAL_UNKNOWN: Final = "SignalUnknown"
BEST_SPLIT: Final = "BestSplit"
CONFIRMING: Final = "Confirming"
COOLING_DOWN: Final = "CoolingDown"
NOT_WORTH_IT: Final = "NotWorthIt"
DONOR_UNSAFE: Final = "DonorUnsafe"
SHRINK_DELAYED: Final = "ShrinkDelayed"
MOVE_IN_FLIGHT: Final = "MoveInFlight"
WAITING_FOR_GPUS: Final = "WaitingForGPUs"
RECOMMEND_ONLY: Final = "RecommendOnly"
CAPACITY_OFF: Final = "CapacityOff"
DELETING: Final = "Deleting"
EXTERNAL_COUNT: Final = "ExternalCount"
FIXED_COUNT: Final = "FixedCount"
FLIP_UNSUPPORTED: Final = "FlipUnsupported"
LAGGING_KEPT: Final = "LaggingKept"

# What was seen
DEMAND: Final = "Demand"
DEMAND_SHIFTED: Final = "DemandShifted"
DEMAND_IDLE: Final = "DemandIdle"
LENGTHS_ASSUMED: Final = "LengthsAssumed"
DECODE_STARVES_PREFILL: Final = "DecodeStarvesPrefill"
LAGGING: Final = "Lagging"
TRIM_RAISED: Final = "TrimRaised"
TRIM_EASED: Final = "TrimEased"
BELOW_TWO: Final = "SingleReplica"
OUT_OF_REACH: Final = "TargetOutOfReach"

# What stands in the way
CAPACITY_LIMITED: Final = "CapacityLimited"
INFEASIBLE: Final = "NothingFits"

# Why an allocation falls short (Shortfall.reason)
POOLS_FULL: Final = "PoolsFull"
MAX_REPLICAS: Final = "MaxReplicas"
MAX_GPUS: Final = "MaxGPUs"
MAX_COST: Final = "MaxCost"
FRAGMENTED: Final = "Fragmented"
NOTHING_FITS: Final = "NothingFits"
