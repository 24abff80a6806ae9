"""The laws of ``rejection.json``, measured on the real code by bisecting its uniforms."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dspark.core import SamplingParams

from .rounds import Law, Tokens, emitted_law, prefix_laws

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "rejection.json").read_text())
CASES = GOLDEN["cases"]
VOCAB = GOLDEN["vocab"]
PARAMS = SamplingParams(temperature=1.0)


def round_law(case: dict, position: int, anchor: int, length: int) -> tuple[dict[Tokens, float], Law, np.ndarray]:
    """Draft paths, law of emitted tokens and joint law of (accepted, last token) of a round at ``position``."""
    p, q = np.array(case["p"]), np.array(case["q"])
    with np.errstate(divide="ignore"):
        logits = np.log(p)

    def row(drafts: Tokens) -> np.ndarray:
        return logits[position + len(drafts), (anchor, *drafts)[-1]]

    def draft_laws(drafts: Tokens) -> np.ndarray:
        before = (anchor, *drafts)
        return np.array([q[position + j, before[j]] for j in range(len(drafts))]).reshape(len(drafts), VOCAB)

    chances = {}
    for path in product(range(VOCAB), repeat=length):
        chance = float(np.prod([law[x] for law, x in zip(draft_laws(path), path, strict=True)]))
        if chance > 0:
            chances[path] = chance
    laws = prefix_laws(list(chances), row, draft_laws, PARAMS, VOCAB)
    joint = sum(chance * laws[path] for path, chance in chances.items())
    return chances, emitted_law(chances, dict.fromkeys(chances, length), laws), np.asarray(joint)


def first_token(law: Law) -> np.ndarray:
    found = np.zeros(VOCAB)
    for emitted, chance in law.items():
        found[emitted[0]] += chance
    return found


@pytest.mark.pitfall(2)
@pytest.mark.pitfall(5)
@pytest.mark.parametrize("length", range(4))
@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c['kind']}" for i, c in enumerate(CASES)])
def test_laws_of_a_round(case: dict, length: int) -> None:
    expected = case["by_draft_length"][length]
    assert expected["draft_length"] == length
    _, law, joint = round_law(case, 0, case["anchor"], length)
    np.testing.assert_allclose(joint, expected["accepted_count_and_last_token"], atol=1e-9)
    np.testing.assert_allclose(joint.sum(1), expected["accepted_count"], atol=1e-9)
    assert sum(len(emitted) * chance for emitted, chance in law.items()) == pytest.approx(
        expected["expected_tokens"], abs=1e-9
    )
    np.testing.assert_allclose(first_token(law), expected["first_token"], atol=1e-9)
    np.testing.assert_allclose(first_token(law), case["target_first"], atol=1e-9)


@pytest.mark.parametrize("length", range(4))
@pytest.mark.parametrize("case", CASES[::3], ids=[f"{i}-{c['kind']}" for i, c in enumerate(CASES)][::3])
def test_two_rounds(case: dict, length: int) -> None:
    """A round that emits one token is followed by a second one at the next position."""
    _, law, _ = round_law(case, 0, case["anchor"], length)
    two = np.zeros((VOCAB, VOCAB))
    for emitted, chance in law.items():
        if len(emitted) > 1:
            two[emitted[:2]] += chance
    alone = {emitted[0]: chance for emitted, chance in law.items() if len(emitted) == 1 and chance > 0}
    for token, chance in alone.items():
        _, second, _ = round_law(case, 1, token, min(length, 2))
        two[token] += chance * first_token(second)
    np.testing.assert_allclose(two, case["by_draft_length"][length]["first_two_tokens"], atol=1e-9)
    np.testing.assert_allclose(two, case["target_first_two"], atol=1e-9)
