"""Serving without a model: the policies of the engine, its sharing out of rows, and a clock that costs advance."""

from dspark.evaluation.load.figures import ORACLE
from dspark.simulation.arrivals import ClosedLoop, OpenLoop
from dspark.simulation.cluster import Cluster, simulate
from dspark.simulation.curves import ACCELERATOR, CurveShape, read_costs, read_curve
from dspark.simulation.drawn_texts import AcceptanceLaw, ConfidenceLaw, Difficulty, DrawnTexts
from dspark.simulation.figures import Course, Figures, Window, steady, whole
from dspark.simulation.history import History
from dspark.simulation.loads import open_load
from dspark.simulation.plots import plot_simulation
from dspark.simulation.recorded_texts import RecordedText, RecordedTexts, read_recordings, write_recordings
from dspark.simulation.replica import ReplicaOptions
from dspark.simulation.report import SimulationReport
from dspark.simulation.sweep import PLAIN, Load, SimulatedRow, Sweep, closed_loads, frontier_gain, matched_gain
from dspark.simulation.texts import Blocks, Lengths, Texts
from dspark.simulation.traffic import LengthLaw, Traffic, read_acceptance
from dspark.simulation.validation import Compared, ValidationPlan, profile, record, validate
from dspark.simulation.validation_report import ValidationReport

__all__ = [
    "ACCELERATOR",
    "ORACLE",
    "PLAIN",
    "AcceptanceLaw",
    "Blocks",
    "ClosedLoop",
    "Cluster",
    "Compared",
    "ConfidenceLaw",
    "Course",
    "CurveShape",
    "Difficulty",
    "DrawnTexts",
    "Figures",
    "History",
    "LengthLaw",
    "Lengths",
    "Load",
    "OpenLoop",
    "RecordedText",
    "RecordedTexts",
    "ReplicaOptions",
    "SimulatedRow",
    "SimulationReport",
    "Sweep",
    "Texts",
    "Traffic",
    "ValidationPlan",
    "ValidationReport",
    "Window",
    "closed_loads",
    "frontier_gain",
    "matched_gain",
    "open_load",
    "plot_simulation",
    "profile",
    "read_acceptance",
    "read_costs",
    "read_curve",
    "read_recordings",
    "record",
    "simulate",
    "steady",
    "validate",
    "whole",
    "write_recordings",
]
