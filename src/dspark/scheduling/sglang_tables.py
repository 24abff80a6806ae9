"""SGLang's two forms of an SPS table, both ways.

As in ``python/sglang/srt/speculative/dspark_components/dspark_sps.py`` of sgl-project/sglang (seen at commit 45b76f5,
2026; its loader tells the forms apart by the field ``bias_seconds``):

* *plain*: ``{"sample_batch_tokens": [..], "sample_steps_per_sec": [..], "max_batch_tokens": n}``. Widths are target
  rows of a step, looked up downwards (a staircase); the rate is that of whole steps with drafting, profiled with whole
  blocks.
* *additive*: ``{"bias_seconds": s, "bs_probes": [..], "alpha_seconds": [..], "m_probes": [..], "theta_seconds":
  [..]}``: a step of R requests and M rows takes bias + alpha(R) + theta(M), joined by lines. This is our own form:
  drafting is alpha, verifying is bias + theta.

The form of a temperature file is read and written in :mod:`dspark.calibration.sglang_temperatures`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dspark.core import InputError
from dspark.scheduling.cost_model import CostModel, StepCosts, json_object
from dspark.scheduling.profile_identity import ProfileIdentity
from dspark.scheduling.time_table import TimeTable

_PLAIN = ("sample_batch_tokens", "sample_steps_per_sec", "max_batch_tokens")
_ADDITIVE = ("bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds")
_LEAST = 1e-9


def from_sglang(text: str, identity: ProfileIdentity, place: str | Path = "the SPS table") -> CostModel:
    """Read a table of either form.

    A staircase becomes two points at the ends of every tread, so that its risers stay. Drafting is part of a plain
    table's times, so that it counts even where nobody drafts.

    Args:
        text: JSON.
        identity: what it was measured on; the file does not say.
        place: what messages call it.

    Raises:
        InputError: it has neither form, or its numbers are no table.
    """
    raw = json_object(text, place)
    try:
        return _additive(raw, identity) if "bias_seconds" in raw else _plain(raw, identity)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(
            f"{place} is no SPS table that SGLang reads ({error}); expected {', '.join(_PLAIN)} or "
            f"{', '.join(_ADDITIVE)}"
        ) from None


def _plain(raw: Mapping[str, Any], identity: ProfileIdentity) -> CostModel:
    widths, rates = _probes(raw["sample_batch_tokens"]), [float(rate) for rate in raw["sample_steps_per_sec"]]
    ends = [*[width - 1 for width in widths[1:]], max(int(raw["max_batch_tokens"]), widths[-1])]
    treads: dict[int, float] = {}
    for start, end, rate in zip(widths, ends, rates, strict=True):
        treads[start] = treads[end] = 1.0 / rate
    verify = TimeTable(widths=tuple(treads), depths=(0,), seconds=(tuple(treads.values()),))
    return CostModel(identity=identity, verify=verify, note="imported from a plain SPS table of SGLang")


def _additive(raw: Mapping[str, Any], identity: ProfileIdentity) -> CostModel:
    requests, rows, bias = _probes(raw["bs_probes"]), _probes(raw["m_probes"]), float(raw["bias_seconds"])
    alpha = tuple(max(float(value), _LEAST) for value in raw["alpha_seconds"])
    theta = tuple(bias + float(value) for value in raw["theta_seconds"])
    return CostModel(
        identity=identity,
        verify=TimeTable(widths=tuple(rows), depths=(0,), seconds=(theta,)),
        draft=TimeTable(widths=tuple(requests), depths=(0,), seconds=(alpha,)),
        note="imported from an additive SPS table of SGLang",
    )


def to_sglang(model: CostModel, *, context: float, block: int) -> str:
    """Write the additive form, which loses nothing but other contexts and other blocks.

    Args:
        model: the profile.
        context: mean keys per row of the one context that is kept.
        block: the one block length that is kept.
    """
    verify, draft = model.verify.nodes(context), model.draft
    bias = float(verify.min())
    fields = {
        "bias_seconds": bias,
        "bs_probes": [1] if draft is None else list(draft.widths),
        "alpha_seconds": [0.0] if draft is None else draft.nodes(block).tolist(),
        "m_probes": list(model.verify.widths),
        "theta_seconds": (verify - bias).tolist(),
    }
    return json.dumps(fields)


def to_sglang_plain(costs: StepCosts, widths: Sequence[int], *, context: float, block: int) -> str:
    """Write the plain form: rates of whole steps in which B rows are whole blocks, drafted ones.

    Args:
        costs: a profile, or one that has learnt.
        widths: rising step batches to keep.
        context: mean keys per row.
        block: drafted tokens of each request.
    """
    rows = np.array(widths)
    requests = -(-rows // (1 + block))
    seconds = costs.verify_curve(int(rows.max()), context)[rows]
    seconds = seconds + costs.draft_curve(int(requests.max()), block)[requests]
    values = ([int(row) for row in rows], (1.0 / seconds).tolist(), int(rows.max()))
    return json.dumps(dict(zip(_PLAIN, values, strict=True)))


def _probes(raw: Sequence[Any]) -> list[int]:
    probes = [int(value) for value in raw]
    if probes != sorted(set(probes)):
        raise ValueError("probes must rise")
    return probes
