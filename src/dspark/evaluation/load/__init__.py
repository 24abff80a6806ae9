"""Load tests: closed and open loops over the engine, every arm in turn, and what they say about the scheduler."""

from dspark.evaluation.load.arms import (
    POLICIES,
    EngineContestant,
    Known,
    LoadArm,
    check_policies,
    contestants,
    load_arms,
    num_recorded,
    record,
)
from dspark.evaluation.load.arrivals import SHAPES, Stretch, arrival_times, shape
from dspark.evaluation.load.bars import Bar, Captured, bars_of, captured
from dspark.evaluation.load.clock import Clock, SkippingClock
from dspark.evaluation.load.drive import Server, Window, drive_closed, drive_open
from dspark.evaluation.load.figures import ORACLE, ArmFacts, LoadFigures, Row
from dspark.evaluation.load.latency import LatencyTarget, Percentiles
from dspark.evaluation.load.markdown import load_markdown
from dspark.evaluation.load.ongoing import OngoingPolicy
from dspark.evaluation.load.oracle import OraclePolicy, OracleServer
from dspark.evaluation.load.outcomes import accepted_after, record_outcomes, record_texts
from dspark.evaluation.load.plan import CLOSED, LoadPlan, Point
from dspark.evaluation.load.plots import plot_load
from dspark.evaluation.load.report import SCHEMA, Difference, LoadReport, make_load_report
from dspark.evaluation.load.run import Budgets, Contestant, LoadTest, Segment
from dspark.evaluation.load.sample import Sample, sample_of
from dspark.evaluation.load.texts import Parting, TextCheck, check_texts
from dspark.evaluation.load.trace import Output, RequestTrace, StepTrace, Trace
from dspark.evaluation.load.traffic import MIXED, Job, Traffic, staggered, traffics
from dspark.evaluation.load.trends import Trend, trends_of

__all__ = [
    "CLOSED",
    "MIXED",
    "ORACLE",
    "POLICIES",
    "SCHEMA",
    "SHAPES",
    "ArmFacts",
    "Bar",
    "Budgets",
    "Captured",
    "Clock",
    "Contestant",
    "Difference",
    "EngineContestant",
    "Job",
    "Known",
    "LatencyTarget",
    "LoadArm",
    "LoadFigures",
    "LoadPlan",
    "LoadReport",
    "LoadTest",
    "OngoingPolicy",
    "OraclePolicy",
    "OracleServer",
    "Output",
    "Parting",
    "Percentiles",
    "Point",
    "RequestTrace",
    "Row",
    "Sample",
    "Segment",
    "Server",
    "SkippingClock",
    "StepTrace",
    "Stretch",
    "TextCheck",
    "Trace",
    "Traffic",
    "Trend",
    "Window",
    "accepted_after",
    "arrival_times",
    "bars_of",
    "captured",
    "check_policies",
    "check_texts",
    "contestants",
    "drive_closed",
    "drive_open",
    "load_arms",
    "load_markdown",
    "make_load_report",
    "num_recorded",
    "plot_load",
    "record",
    "record_outcomes",
    "record_texts",
    "sample_of",
    "shape",
    "staggered",
    "traffics",
    "trends_of",
]
