"""The calibration beside a checkpoint: found, checked, applied before the policy looks, and nothing else changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from dspark import LLM
from dspark.calibration import ARTEFACT_FILE, HEAD_KEY, Calibration, head_fingerprint
from dspark.core import InputError, SamplingParams
from dspark.drafters import load_drafter
from dspark.drafters.dspark import DSparkCheckpoint, DSparkConfig, DSparkModel, HeadType, save_checkpoint
from dspark.engine import EngineCore, EngineOptions
from dspark.engine.calibrating import UNCALIBRATED
from dspark.scheduling import Reveal, StepOutcome, StepView
from dspark.target import LoadedTarget

from .tiny import byte_tokenizer, completions, tiny_drafter, tiny_target

GAMMA = 5
TEMPERATURES = (2.0, 0.5, 1.5, 1.0, 3.0)


@dataclass
class Watcher:
    """Verifies whole blocks and keeps the confidences it was shown."""

    name: str = "watcher"
    needs_confidence: bool = True
    seen: list[torch.Tensor] = field(default_factory=list)

    def begin_step(self, view: StepView) -> np.ndarray:
        return view.limits

    def admit(self, reveal: Reveal) -> None:
        assert reveal._conditional is not None
        self.seen.append(torch.from_numpy(reveal._conditional).float())
        reveal.admit_first(reveal.proposed)

    def outcome(self, outcome: StepOutcome) -> None:
        pass


@pytest.fixture(scope="module")
def loaded() -> LoadedTarget:
    target = tiny_target(vocab=300, positions=96)
    return LoadedTarget(target=target, tokenizer=byte_tokenizer(), name="tiny", source="tests", notes=())


@pytest.fixture
def checkpoint(loaded: LoadedTarget, tmp_path: Path) -> Path:
    facts = loaded.target.facts
    config = DSparkConfig(
        hidden_size=facts.hidden_size,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=facts.vocab_size,
        block_size=GAMMA,
        mask_token_id=facts.vocab_size - 1,
        target_layer_ids=(-1, 0),
        num_target_layers=facts.num_layers,
        max_position_embeddings=facts.max_positions,
        head_type=HeadType.VANILLA,
        markov_rank=8,
    )
    torch.manual_seed(0)
    model = DSparkModel(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3)
    save_checkpoint(tmp_path / "drafter", DSparkCheckpoint(model=model), dtype=torch.float32)
    return tmp_path / "drafter"


def _put(folder: Path, temperatures: tuple[float, ...] = TEMPERATURES, **extra: object) -> Path:
    errors = [0.04] * len(temperatures)
    content = {"temperatures": temperatures, "dataset": "some", "num_samples": 321, "ece_before": errors,
               "ece_after": errors, **extra}  # fmt: skip
    (folder / ARTEFACT_FILE).write_text(json.dumps(content))
    return folder / ARTEFACT_FILE


def _engine(calibration: Calibration | None, policy: object, **options: object) -> EngineCore:
    target = tiny_target()
    sizes = {"num_pages": 64, "max_requests": 8, "max_batch_rows": 64, "seed": 7, "record_rounds": True} | options
    return EngineCore(
        target, tiny_drafter(target), policy, options=EngineOptions(**sizes), calibration=calibration
    )  # fmt: skip


class TestEngine:
    calibration = Calibration(temperatures=TEMPERATURES)

    def test_the_policy_sees_calibrated_confidences_and_traces_keep_both(self):
        watcher = Watcher()
        answer = completions(_engine(self.calibration, watcher), [[3, 4, 5]], SamplingParams(max_tokens=20))[0]
        traces = [trace for trace in answer.stats.traces if trace.drafted]
        assert len(traces) == len(watcher.seen)
        for trace, seen in zip(traces, watcher.seen, strict=True):
            expected = self.calibration.apply(torch.tensor([trace.confidence]))
            torch.testing.assert_close(torch.tensor([trace.calibrated]), expected)
            torch.testing.assert_close(seen[:, : expected.shape[1]], expected)

    def test_without_one_the_policy_sees_what_the_drafter_said(self):
        watcher = Watcher()
        answer = completions(_engine(None, watcher), [[3, 4, 5]], SamplingParams(max_tokens=12))[0]
        first = answer.stats.traces[0]
        assert first.calibrated == ()
        assert watcher.seen[0][0].tolist() == list(first.confidence)

    def test_with_whole_blocks_answers_stay_the_same(self):
        params = SamplingParams(max_tokens=20, temperature=1.0, seed=3)
        one, other = (completions(_engine(c, Watcher()), [[3, 4], [9]], params) for c in (None, self.calibration))
        assert [answer.token_ids for answer in one] == [answer.token_ids for answer in other]

    def test_requests_that_draft_nothing_have_no_confidence(self):
        watcher = Watcher()
        answers = completions(
            _engine(self.calibration, watcher), [[3, 4], [9]], [SamplingParams(max_tokens=n) for n in (2, 12)]
        )
        assert all(len(trace.calibrated) == len(trace.drafted) for a in answers for trace in a.stats.traces)


class TestChoice:
    def test_uncalibrated_is_said(self, loaded, checkpoint):
        llm = LLM(loaded, drafter=checkpoint)
        assert llm.calibration.calibration is None
        assert UNCALIBRATED in llm.notes

    def test_auto_takes_what_lies_beside_the_checkpoint(self, loaded, checkpoint):
        file = _put(checkpoint)
        llm = LLM(loaded, drafter=checkpoint)
        assert llm.calibration.calibration == Calibration(temperatures=TEMPERATURES)
        assert llm.calibration.notes == (
            f"confidence is calibrated on 321 rounds of some (error 4.0 % before, 4.0 % after), from {file}",
        )

    def test_a_loaded_drafter_brings_it_along(self, loaded, checkpoint):
        _put(checkpoint)
        llm = LLM(loaded, drafter=load_drafter(checkpoint, loaded.target))
        assert llm.calibration.calibration is not None

    def test_off(self, loaded, checkpoint):
        (checkpoint / ARTEFACT_FILE).write_text("broken")
        llm = LLM(loaded, drafter=checkpoint, calibration="off")
        assert llm.calibration.calibration is None
        assert any("off" in note for note in llm.notes)

    @pytest.mark.parametrize("kind", ["file", "folder", "ready"])
    def test_by_name_and_by_hand(self, loaded, checkpoint, tmp_path, kind):
        (tmp_path / "other").mkdir()
        file = _put(tmp_path / "other")
        given = {"file": file, "folder": str(file.parent), "ready": Calibration(temperatures=TEMPERATURES)}[kind]
        llm = LLM(loaded, drafter=checkpoint, calibration=given)
        assert llm.calibration.calibration == Calibration(temperatures=TEMPERATURES)

    def test_a_threshold_follows_the_calibrated_confidence(self, loaded, checkpoint):
        """Nearly all doubt removed or added moves confidences across the threshold."""
        params = SamplingParams(max_tokens=20, temperature=0.0)
        stats = LLM(loaded, drafter=checkpoint, record_rounds=True).generate("the", params)[0].outputs[0].stats
        assert any(trace.drafted and trace.confidence[0] > 0.51 for trace in stats.traces)
        flat, sharp = (
            LLM(
                loaded,
                drafter=checkpoint,
                policy="threshold:0.7",
                calibration=Calibration(temperatures=(temperature,) * GAMMA),
            ).generate("the", params)[0]
            for temperature in (1000.0, 0.001)
        )
        assert flat.outputs[0].stats.verified == 0
        assert sharp.outputs[0].stats.verified > 0
        assert flat.outputs[0].token_ids == sharp.outputs[0].token_ids  # lossless, whatever the calibration

    def test_blocks_of_another_size(self, loaded, checkpoint):
        _put(checkpoint, (1.0, 1.0))
        with pytest.raises(InputError, match=r"calibrates blocks of 2 tokens, this drafter proposes 5; .*off"):
            LLM(loaded, drafter=checkpoint)
        with pytest.raises(InputError, match="blocks of 2 tokens, drafter 'dspark' proposes 5"):
            LLM(loaded, drafter=checkpoint, calibration=Calibration(temperatures=(1.0, 1.0)))

    def test_another_confidence_head(self, loaded, checkpoint):
        _put(checkpoint, **{HEAD_KEY: "0123456789abcdef"})
        with pytest.raises(InputError, match="fitted for another drafter"):
            LLM(loaded, drafter=checkpoint)
        _put(checkpoint, **{HEAD_KEY: head_fingerprint(checkpoint)})
        assert LLM(loaded, drafter=checkpoint).calibration.artefact is not None

    def test_damaged(self, loaded, checkpoint):
        (checkpoint / ARTEFACT_FILE).write_text("{}")
        with pytest.raises(InputError, match="lacks 'temperatures'"):
            LLM(loaded, drafter=checkpoint)

    def test_not_there(self):
        with pytest.raises(InputError, match=r"there is no calibration 'gone\.json'; expected 'auto', 'off'"):
            LLM("no such target either", calibration="gone.json")

    def test_nothing_to_calibrate(self, loaded, checkpoint):
        file = _put(checkpoint)
        assert LLM(loaded, drafter="ngram").calibration.notes == ()
        with pytest.raises(InputError, match="gives no confidence, there is nothing to calibrate"):
            LLM(loaded, drafter="ngram", calibration=file)
