"""Measuring and proving, through the public engine only: decoding speed, losslessness, the demo."""

from dspark.evaluation.acceptance import AcceptanceCounts, count_rounds
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
from dspark.evaluation.benchmarks import BENCHMARKS, load_benchmarks
from dspark.evaluation.bootstrap import Estimate
from dspark.evaluation.builtin_prompts import builtin_prompt_sets
from dspark.evaluation.confidence_quality import Confidence, Quality, confidence_quality
from dspark.evaluation.cost_report import cost_markdown, plot_costs
from dspark.evaluation.decode import DecodePlan, Measurement, count_turns, measure_decoding
from dspark.evaluation.decode_report import DecodeReport, make_report
from dspark.evaluation.demo import Pair, SideBySide
from dspark.evaluation.engine_tau import EngineTau, Walk, engine_tau
from dspark.evaluation.eval_arms import DrafterSpec, EvalArm, make_arms, read_drafters
from dspark.evaluation.eval_figures import EvalRow, Summary
from dspark.evaluation.eval_live import LiveArm, LiveSweep, live_arms, live_sweeps
from dspark.evaluation.eval_markdown import eval_markdown
from dspark.evaluation.eval_plots import plot_evaluation
from dspark.evaluation.eval_report import SCHEMA, EvalReport, check_baseline, make_eval_report
from dspark.evaluation.eval_run import EvalPlan, Turn, count_answers, measure
from dspark.evaluation.files import check_folder
from dspark.evaluation.lossless import (
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
from dspark.evaluation.margins import NEAR_TIE, first_difference, logit_margin
from dspark.evaluation.panels import can_plot
from dspark.evaluation.plan_cost import PlanCost, plan_cost_markdown, plan_costs
from dspark.evaluation.plot import plot_report
from dspark.evaluation.prompts import PromptSet, check_sets, load_prompt_sets, load_prompts
from dspark.evaluation.runs import Run, greedy, run_prompts
from dspark.evaluation.threshold_sweep import THRESHOLDS, SweepPoint, sweep
from dspark.evaluation.transformers_arm import TransformersArm

__all__ = [
    "BENCHMARKS",
    "NEAR_TIE",
    "SCHEMA",
    "THRESHOLDS",
    "AcceptanceCounts",
    "Arm",
    "Audit",
    "AuditPart",
    "AuditPlan",
    "Confidence",
    "DecodePlan",
    "DecodeReport",
    "Difference",
    "DrafterSpec",
    "EngineTau",
    "Estimate",
    "EvalArm",
    "EvalPlan",
    "EvalReport",
    "EvalRow",
    "LiveArm",
    "LiveSweep",
    "Machine",
    "Measurement",
    "Pair",
    "PlanCost",
    "PromptSet",
    "Quality",
    "Run",
    "SideBySide",
    "Summary",
    "SweepPoint",
    "TransformersArm",
    "Turn",
    "Walk",
    "audit_arm",
    "audit_drafters",
    "audit_greedy",
    "audit_parts",
    "builtin_prompt_sets",
    "can_plot",
    "check_baseline",
    "check_drafters",
    "check_folder",
    "check_names",
    "check_sets",
    "confidence_quality",
    "cost_markdown",
    "count_answers",
    "count_rounds",
    "count_texts",
    "count_turns",
    "dflash_drafter",
    "drafter_arms",
    "engine_tau",
    "eval_markdown",
    "first_difference",
    "greedy",
    "live_arms",
    "live_sweeps",
    "load_benchmarks",
    "load_prompt_sets",
    "load_prompts",
    "logit_margin",
    "make_arm",
    "make_arms",
    "make_eval_report",
    "make_report",
    "measure",
    "measure_decoding",
    "named_arm",
    "plain_arm",
    "plan_cost_markdown",
    "plan_costs",
    "plot_costs",
    "plot_evaluation",
    "plot_report",
    "read_drafters",
    "run_prompts",
    "sweep",
    "this_machine",
    "without_sequential_head",
]
