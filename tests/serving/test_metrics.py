"""Metrics: true numbers, conventional names, and a dashboard that names no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dspark.calibration import ece
from dspark.engine import RoundStats, StepStats
from dspark.kvcache import PoolStats
from dspark.scheduling import CostModel, ProfileIdentity, TimeTable
from dspark.serving.metrics import Metrics

from .test_robustness import CHAT, body, raw
from .tiny import Live, confident_llm, live, tiny_llm, wait_for

TALK: list[Any] = [{"role": "user", "content": "the the the the"}]
DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/dspark.json"
POOL = PoolStats(used=3, cached=2, free=5, hit_tokens=0, evictions=0)


def values(text: str | bytes) -> dict[tuple[str, str], float]:
    """(name, label values) -> value."""
    families = text_string_to_metric_families(text if isinstance(text, str) else text.decode())
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def total(found: dict[tuple[str, str], float], name: str) -> float:
    return sum(value for (given, _), value in found.items() if given == name)


def test_counts_are_those_of_the_answers() -> None:
    with live(confident_llm(TALK)) as running:
        ask = {"messages": TALK, "temperature": 0, "dspark_usage": True, "max_tokens": 60}
        used = [httpx.post(running.url + CHAT, json=ask | {"n": n}, timeout=60).json()["usage"] for n in (1, 2)]
        wait_for(lambda: running.service.loop.idle)
        found = values(httpx.get(running.url + "/metrics").text)
    for name in ("drafted", "verified", "accepted"):
        assert total(found, f"dspark_{name}_tokens_total") == sum(usage["dspark"][name] for usage in used) > 0
    assert found["dspark_rounds_total", ""] == sum(usage["dspark"]["rounds"] for usage in used)
    assert found["dspark_verify_length_tokens_count", ""] == found["dspark_rounds_total", ""]
    assert found["dspark_generated_tokens_total", ""] == 180
    assert total(found, "dspark_confidence_accepted_total") == total(found, "dspark_accepted_tokens_total")
    assert total(found, "dspark_confidence_trials_total") == total(found, "dspark_reached_tokens_total")
    steps = {found["dspark_step_seconds_count", name] for name in ("draft", "verify", "sample", "host")}
    assert steps == {found["dspark_step_rows_count", ""]}
    assert found["dspark_users", ""] == found["dspark_queued_requests", ""] == 0
    (facts,) = [labels for name, labels in found if name == "dspark_server_info"]
    assert set(facts.split(",")) == {"tiny", "oracle", "fixed"}


def test_the_calibration_error_is_that_of_the_trials() -> None:
    draw = np.random.default_rng(5)
    metrics, stated, came = Metrics(), [], []
    for _ in range(40):
        believed = tuple(draw.uniform(size=4))
        accepted = int(draw.integers(5))
        found = RoundStats(drafted=4, verified=4, accepted=accepted, believed=believed)
        stated += believed[: found.reached]
        came += [place < accepted for place in range(found.reached)]
        metrics.step(StepStats(rows=5, verify_lens=(4,), rounds=(found,)), POOL, busy=True)
    seen = values(metrics.exposition())
    by_bin = {
        what: np.array([seen.get((f"dspark_confidence_{what}_total", f"{i / 10:.1f}"), 0.0) for i in range(10)])
        for what in ("trials", "stated", "accepted")
    }
    of_counters = np.abs(by_bin["stated"] - by_bin["accepted"]).sum() / by_bin["trials"].sum()
    assert of_counters == pytest.approx(ece(stated, came, bins=10))
    assert seen["dspark_calibration_error_ratio", ""] == pytest.approx(of_counters, abs=0.02)
    assert by_bin["trials"].sum() == len(stated) > 60


def test_nothing_runs_and_nobody_waits_once_all_have_left() -> None:
    with live(tiny_llm("none", max_requests=1)) as running:
        get = lambda: values(httpx.get(running.url + "/metrics").text)  # noqa: E731
        gone = [raw(running.port, body(max_tokens=480)) for _ in range(2)]
        wait_for(lambda: get()["dspark_queued_requests", ""] == 1)
        wait_for(lambda: get()["dspark_running_answers", ""] == 1)
        assert get()["dspark_users", ""] == 1
        assert get()["dspark_kv_pages", "used"] > 0
        for connection in gone:
            connection.close()
        names = ("users", "queued_requests", "running_answers", "waiting_answers")
        wait_for(lambda: not any(get()[f"dspark_{name}", ""] for name in names))
        wait_for(lambda: get()["dspark_kv_pages", "used"] == 0)


def costs() -> CostModel:
    identity = ProfileIdentity(machine="x", model="tiny", dtype="float32", threads=1, backend="x")
    table = TimeTable(widths=(1, 8, 64), depths=(0, 100), seconds=((0.01, 0.02, 0.08), (0.02, 0.04, 0.16)))
    return CostModel(identity=identity, verify=table)


def test_the_cost_curve_is_the_one_at_the_present_context() -> None:
    metrics, context = Metrics(), [0.0]
    metrics.profile(costs(), 48, lambda: context[0])
    name = "dspark_profile_step_seconds"
    shallow = values(metrics.exposition())
    assert {labels for given, labels in shallow if given == name} == {"1", "2", "4", "8", "16", "32", "48"}
    assert (shallow[name, "1"], shallow[name, "8"]) == pytest.approx((0.01, 0.02))
    context[0] = 100.0
    assert values(metrics.exposition())[name, "8"] == pytest.approx(0.04)


def test_a_server_that_plans_with_costs_shows_them() -> None:
    with live(confident_llm(TALK, policy="async", costs=costs())) as running:
        name = "dspark_profile_step_seconds"
        before = values(httpx.get(running.url + "/metrics").text)
        assert before[name, "8"] == pytest.approx(0.02)
        httpx.post(running.url + CHAT, json=body(messages=TALK, max_tokens=100), timeout=60)
        assert values(httpx.get(running.url + "/metrics").text)[name, "8"] > 0.025, "the context has grown"


def exported(drafting: Live) -> set[str]:
    """Every name that a server can show."""
    text = httpx.get(drafting.url + "/metrics").text
    families = list(text_string_to_metric_families(text))
    names = {sample.name for family in families for sample in family.samples}
    totals = {f"{family.name}_total" for family in families if family.type == "counter"}
    return names | totals | {"dspark_profile_step_seconds"}


def test_names_follow_the_conventions(drafting: Live) -> None:
    for family in text_string_to_metric_families(httpx.get(drafting.url + "/metrics").text):
        assert family.name.startswith("dspark_")
        assert family.documentation.endswith("."), family.name
        assert not re.search(r"milli|micro|percent|_ms\b", family.name)


def test_the_dashboard_names_only_what_exists(drafting: Live) -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries = [variable["query"] for variable in board["templating"]["list"]]
    named = set(re.findall(r"dspark_\w+", " ".join(expressions + queries)))
    known = exported(drafting)
    assert len(named) > 25
    assert not named - known
    unused = {name for name in known if not name.endswith(("_created", "_bucket", "_sum", "_count"))} - named
    assert not unused, "metrics that no panel shows"


def test_the_dashboard_is_laid_out() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")"), panel["title"]
