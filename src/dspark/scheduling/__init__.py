"""How many tokens are drafted, and how many of them go to the target: costs, and policies that plan with them."""

from dspark.scheduling.acceptance import AcceptanceEstimates, AcceptancePrior
from dspark.scheduling.capacity import Capacity, PastSurvivals, search_capacity
from dspark.scheduling.confidence_threshold import ConfidenceThreshold
from dspark.scheduling.cost_checks import check_profile
from dspark.scheduling.cost_model import CostKind, CostModel, StepCosts
from dspark.scheduling.draft_choice import DraftChoice, choose_drafts
from dspark.scheduling.draft_chooser import ChooserOptions, DraftChooser, StepDrafts
from dspark.scheduling.early_stop import EarlyStop
from dspark.scheduling.exploration import ExplorationOptions
from dspark.scheduling.fixed_length import FixedLength
from dspark.scheduling.live_costs import LiveCosts, RefinementOptions
from dspark.scheduling.make_policy import PLANNED_POLICIES, POLICY_FORMS, make_step_policy, needs_costs, policy_name
from dspark.scheduling.oracle import oracle_lengths
from dspark.scheduling.past_capacity import PastCapacity
from dspark.scheduling.profile_cache import find_profile, keep_profile, profile_file, read_profile
from dspark.scheduling.profile_identity import ProfileIdentity
from dspark.scheduling.reveal import Reveal
from dspark.scheduling.row_shares import drafts_within, prefill_chunks
from dspark.scheduling.sglang_tables import from_sglang, to_sglang, to_sglang_plain
from dspark.scheduling.slots import SlotBook
from dspark.scheduling.step_policy import PolicyFacts, StepPolicy, check_policy
from dspark.scheduling.step_view import LAG, StepOutcome, StepView
from dspark.scheduling.time_table import Measurement, TimeTable

__all__ = [
    "LAG",
    "PLANNED_POLICIES",
    "POLICY_FORMS",
    "AcceptanceEstimates",
    "AcceptancePrior",
    "Capacity",
    "ChooserOptions",
    "ConfidenceThreshold",
    "CostKind",
    "CostModel",
    "DraftChoice",
    "DraftChooser",
    "EarlyStop",
    "ExplorationOptions",
    "FixedLength",
    "LiveCosts",
    "Measurement",
    "PastCapacity",
    "PastSurvivals",
    "PolicyFacts",
    "ProfileIdentity",
    "RefinementOptions",
    "Reveal",
    "SlotBook",
    "StepCosts",
    "StepDrafts",
    "StepOutcome",
    "StepPolicy",
    "StepView",
    "TimeTable",
    "check_policy",
    "check_profile",
    "choose_drafts",
    "drafts_within",
    "find_profile",
    "from_sglang",
    "keep_profile",
    "make_step_policy",
    "needs_costs",
    "oracle_lengths",
    "policy_name",
    "prefill_chunks",
    "profile_file",
    "read_profile",
    "search_capacity",
    "to_sglang",
    "to_sglang_plain",
]
