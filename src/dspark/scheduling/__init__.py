"""How many drafted tokens of each request go to the target: policies, pure functions of numbers."""

from dspark.scheduling.confidence_threshold import ConfidenceThreshold
from dspark.scheduling.fixed_length import FixedLength
from dspark.scheduling.make_policy import POLICY_FORMS, make_policy
from dspark.scheduling.plan_view import PlanView
from dspark.scheduling.policy import VerifyPolicy, check_policy

__all__ = [
    "POLICY_FORMS",
    "ConfidenceThreshold",
    "FixedLength",
    "PlanView",
    "VerifyPolicy",
    "check_policy",
    "make_policy",
]
