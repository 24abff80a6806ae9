"""The default target, end to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from dspark import LLM, SamplingParams

TALKS = [
    [{"role": "user", "content": "List the days of the week, then list them again."}],
    [{"role": "user", "content": "Write one sentence about rivers."}],
]


@pytest.mark.slow
def test_plain_and_ngram_agree_and_text_is_text(default_target_dir: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=1)
    plain = LLM(str(default_target_dir), drafter="none", dtype="float32", kv_tokens=2048)
    expected = [output.outputs[0] for output in plain.chat(TALKS, params)]
    drafted = LLM(plain.loaded, drafter="ngram", kv_tokens=2048)
    found = [output.outputs[0] for output in drafted.chat(TALKS, params)]
    tokenizer = plain.loaded.tokenizer
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert one.text == other.text == tokenizer.decode(one.token_ids, skip_special_tokens=True)
        assert [entry.logprob for entry in one.logprobs or ()] == pytest.approx(
            [entry.logprob for entry in other.logprobs or ()], abs=1e-3
        )
    assert "Monday" in expected[0].text
