"""Measuring and proving, through the public engine only: decoding speed, losslessness, the demo."""

from dspark.evaluation.arms import (
    Arm,
    check_drafters,
    check_names,
    dflash_drafter,
    drafter_arms,
    make_arm,
    named_arm,
    plain_arm,
    without_sequential_head,
)
from dspark.evaluation.builtin_prompts import builtin_prompt_sets
from dspark.evaluation.decode import DecodePlan, Measurement, count_turns, measure_decoding
from dspark.evaluation.decode_report import DecodeReport, make_report
from dspark.evaluation.demo import Pair, SideBySide
from dspark.evaluation.files import check_folder
from dspark.evaluation.lossless import (
    NEAR_TIE,
    Audit,
    AuditPart,
    AuditPlan,
    Difference,
    audit_arm,
    audit_drafters,
    audit_greedy,
    audit_parts,
    count_texts,
)
from dspark.evaluation.machine import Machine, this_machine
from dspark.evaluation.margins import first_difference, logit_margin
from dspark.evaluation.plot import can_plot, plot_report
from dspark.evaluation.prompts import PromptSet, load_prompt_sets, load_prompts
from dspark.evaluation.runs import Run, greedy, run_prompts
from dspark.evaluation.transformers_arm import TransformersArm

__all__ = [
    "NEAR_TIE",
    "Arm",
    "Audit",
    "AuditPart",
    "AuditPlan",
    "DecodePlan",
    "DecodeReport",
    "Difference",
    "Machine",
    "Measurement",
    "Pair",
    "PromptSet",
    "Run",
    "SideBySide",
    "TransformersArm",
    "audit_arm",
    "audit_drafters",
    "audit_greedy",
    "audit_parts",
    "builtin_prompt_sets",
    "can_plot",
    "check_drafters",
    "check_folder",
    "check_names",
    "count_texts",
    "count_turns",
    "dflash_drafter",
    "drafter_arms",
    "first_difference",
    "greedy",
    "load_prompt_sets",
    "load_prompts",
    "logit_margin",
    "make_arm",
    "make_report",
    "measure_decoding",
    "named_arm",
    "plain_arm",
    "plot_report",
    "run_prompts",
    "this_machine",
    "without_sequential_head",
]
