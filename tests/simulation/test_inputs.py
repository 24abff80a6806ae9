"""What users write, and what they get when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dspark.calibration import Rounds
from dspark.core import InputError
from dspark.evaluation.load import LatencyTarget
from dspark.scheduling import CostModel, to_sglang, to_sglang_plain
from dspark.simulation import (
    ClosedLoop,
    Cluster,
    ConfidenceLaw,
    CurveShape,
    Difficulty,
    Figures,
    LengthLaw,
    OpenLoop,
    RecordedText,
    RecordedTexts,
    ReplicaOptions,
    Sweep,
    Traffic,
    closed_loads,
    open_load,
    read_acceptance,
    read_costs,
    read_curve,
    read_recordings,
    simulate,
    whole,
    write_recordings,
)

from .worlds import RISING, even, flat, lengths


class TestCurves:
    def test_stairs_and_cliffs_stay(self):
        shape = read_curve("step=10,row=0.5,free=8,tile=8,cliff=20:3,cliff=40:1,draft=1,draft_request=0.1")
        assert shape == CurveShape(
            step=10, row=0.5, free=8, tile=8, cliffs=((20, 3.0), (40, 1.0)), draft=1, draft_request=0.1
        )
        costs = shape.cost_model("")
        rows = np.arange(1, 4097)
        assert np.allclose(costs.verify.at(rows), shape.seconds(rows))
        assert np.allclose(1e3 * costs.verify.at([8, 9, 16, 17, 19, 20, 40]), [10, 14, 14, 18, 18, 21, 30])
        assert costs.draft_curve(4, 7)[[0, 1, 4]] == pytest.approx([0, 0.0011, 0.0014])

    def test_longer_blocks_cost_more(self):
        costs = CurveShape(step=10, row=0.1, draft=1, draft_token=0.25).cost_model("")
        assert [float(costs.draft_curve(1, block)[1]) for block in (1, 3, 7)] == pytest.approx(
            [0.00125, 0.00175, 0.00275]
        )

    def test_files(self, tmp_path: Path):
        costs = RISING.cost_model("made up")
        forms = {
            "profile": costs.to_json(),
            "additive": to_sglang(costs, context=0, block=2),
            "plain": to_sglang_plain(costs, (1, 8, 9, 64), context=0, block=2),
        }
        for name, text in forms.items():
            (tmp_path / name).write_text(text)
        assert read_costs(str(tmp_path / "profile")) == costs
        assert read_costs(str(tmp_path / "additive")).verify.at(50) == pytest.approx(costs.verify.at(50))
        assert isinstance(read_costs(str(tmp_path / "plain")), CostModel)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("nowhere.json", "cannot read costs from 'nowhere.json'"),
            ("step=10", "needs 'step' and 'row'"),
            ("step=10,rows=1", "a curve has no 'rows'; did you mean 'row'"),
            ("step=x,row=1", "'step' of a curve must be a number, got 'x'"),
            ("step=0,row=1", "'step' above 0"),
            ("step=10,row=-1", "must be numbers >= 0"),
            ("step=10,row=1,tile=0", "'tile' >= 1"),
            ("step=10,row=1,cliff=7", "what a cliff adds must be a number, got ''"),
            ("step=10,row=1,cliff=0:7", "a cliff is rows >= 1"),
        ],
    )
    def test_bad_ones(self, text: str, message: str):
        with pytest.raises(InputError, match=message):
            read_costs(text)

    def test_a_file_that_is_no_table(self, tmp_path: Path):
        file = tmp_path / "table.json"
        for text, message in (("[]", "must hold a JSON object"), ('{"a": 1}', "no SPS table that SGLang reads")):
            file.write_text(text)
            with pytest.raises(InputError, match=message):
                read_costs(str(file))


class TestTraffic:
    @pytest.mark.parametrize(
        ("text", "low", "high", "mean"),
        [("7", 7, 7, 7), ("3-9", 3, 9, 6), ("exponential:100", 1, 1600, 100), ("lognormal:50:0.5", 1, 800, 56.7)],
    )
    def test_lengths(self, text: str, low: int, high: int, mean: float):
        drawn = LengthLaw(text=text).draw(5000, np.random.default_rng(0))
        assert low <= drawn.min() <= drawn.max() <= high
        assert drawn.mean() == pytest.approx(mean, rel=0.05)

    @pytest.mark.parametrize(
        "text", ["0", "x", "9-3", "exponential", "lognormal:5", "lognormal:5:-1", "exponential:0", "7:1"]
    )
    def test_bad_lengths(self, text: str):
        with pytest.raises(InputError, match="length"):
            LengthLaw(text=text)

    @pytest.mark.parametrize(("kind", "tau"), [("math", 5.57), ("code", 5.12), ("chat", 3.49)])
    def test_accepted_lengths_of_the_reference(self, kind: str, tau: float):
        """Whole blocks of 7, as in section 7 of the method."""
        law = read_acceptance(kind, 7, confidence=None)
        texts = Traffic(prompt=LengthLaw(text="1"), answer=LengthLaw(text="300"), law=law).draw(200)
        history = simulate(Cluster(costs=flat(0.01)), texts, ClosedLoop(users=200), "fixed")
        assert history.committed.sum() / history.decoding.sum() == pytest.approx(tau, rel=0.03)

    def test_mixtures(self):
        law = read_acceptance("chat*3, 0.5:4*1", 5, token_spread=0.0, confidence=None)
        assert [part.weight for part in law.parts] == [3, 1]
        drawn = law.difficulties(4000, np.random.default_rng(0))
        assert drawn.mean() == pytest.approx((3 * 0.843 + 0.5) / 4, abs=0.01)
        assert len(read_acceptance("mixed", 5, confidence=None).parts) == 3

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("poetry", "acceptance must be math, code, chat, mixed"),
            ("1.5", r"must be in \[0, 1\]"),
            ("0.5:0", "concentration of acceptance must be above 0"),
            ("0.5:x", "concentration of '0.5:x' must be a number"),
            ("chat*0", "weight of a part"),
            ("chat*x", "weight of"),
        ],
    )
    def test_bad_acceptance(self, text: str, message: str):
        with pytest.raises(InputError, match=message):
            read_acceptance(text, 5, confidence=None)

    def test_bad_laws(self):
        with pytest.raises(InputError, match="block size"):
            read_acceptance("chat", 0, confidence=None)
        with pytest.raises(InputError, match="noise must be"):
            ConfidenceLaw(noise=-1)
        with pytest.raises(InputError, match="token_spread"):
            read_acceptance("chat", 5, token_spread=-1.0, confidence=None)
        with pytest.raises(InputError, match="acceptance must be in"):
            Difficulty(mean=float("nan"))

    def test_a_head_that_promises_too_much(self):
        """An offset raises what is said, not what happens."""
        drawn = {
            offset: Traffic(
                prompt=LengthLaw(text="1"),
                answer=LengthLaw(text="50"),
                law=read_acceptance("chat", 5, confidence=ConfidenceLaw(offset=offset, temperature=0.5)),
            ).draw(20)
            for offset in (0.0, 2.0)
        }
        places = np.arange(20), np.full(20, 5), np.zeros(20, np.int64)
        honest, boastful = (texts.blocks(*places) for texts in drawn.values())
        assert (honest.would_accept == boastful.would_accept).all()
        assert (boastful.confidence > honest.confidence).all()


class TestArrivals:
    def test_a_ramp_rises_and_falls(self):
        times = open_load("ramp:1:9:100", 500, 0).arrivals().times
        counts = np.histogram(times, [0, 20, 40, 60, 80, 100])[0]
        assert counts[0] < counts[1] < counts[2] > counts[3] > counts[4]
        assert len(times) == 500

    def test_a_burst(self):
        times = open_load("burst:2:40:100", 700, 0).arrivals().times
        assert ((times > 42.5) & (times < 57.5)).sum() == pytest.approx(600, rel=0.15)

    def test_it_goes_on_for_as_many_as_are_asked_for(self):
        assert len(open_load("ramp:1:2:3", 400, 0).arrivals().times) == 400
        assert len(open_load("poisson:5", 0, 0).arrivals().times) == 0

    @pytest.mark.parametrize(
        "text", ["poisson", "poisson:0", "poisson:x", "ramp:1:2", "flood:3", "burst:1:2:inf", "poisson:1:2"]
    )
    def test_bad_ones(self, text: str):
        with pytest.raises(InputError, match=r"arrivals"):
            open_load(text, 10, 0)

    def test_bad_loads(self):
        with pytest.raises(InputError, match="at least one request of each"):
            closed_loads((4,), 0)
        with pytest.raises(InputError, match="number of requests"):
            open_load("poisson:5", -1, 0)
        with pytest.raises(InputError, match="at least one user"):
            ClosedLoop(users=0)
        with pytest.raises(InputError, match="never fall"):
            OpenLoop.of([1.0, 0.5])
        with pytest.raises(InputError, match="2 arrival times for 3 requests"):
            simulate(Cluster(costs=flat(1.0)), even(3, 0.5), OpenLoop.of([0.0, 1.0]), "fixed")


class TestClusters:
    def test_bad_ones(self):
        with pytest.raises(InputError, match="replicas must be an integer >= 1"):
            Cluster(costs=flat(1.0), replicas=0)
        with pytest.raises(InputError, match="max_requests must be"):
            ReplicaOptions(max_requests=0)
        with pytest.raises(InputError, match="max_batch_rows must be at least"):
            ReplicaOptions(max_requests=8, max_batch_rows=7)
        with pytest.raises(InputError, match="unknown policy 'asink'; did you mean 'async'"):
            simulate(Cluster(costs=flat(1.0)), even(3, 0.5), ClosedLoop(users=1), "asink")
        with pytest.raises(InputError, match="named twice"):
            Sweep(policies=("fixed", "fixed"), loads=())

    def test_no_requests(self):
        """Figures of nothing are nothing, not an error."""
        history = simulate(Cluster(costs=flat(1.0)), even(0, 0.5), ClosedLoop(users=3), "async")
        figures = Figures.of(history, whole(history), LatencyTarget())
        assert (figures.tokens_per_second, figures.first_token, figures.attainment) == (0.0, None, None)

    def test_texts_that_make_no_sense(self):
        with pytest.raises(InputError, match="at least one token"):
            lengths(3, answer=0)
        with pytest.raises(InputError, match="latency targets"):
            LatencyTarget(token=0)


def recorded(**changes: object) -> RecordedText:
    fields = {
        "prompt": 3,
        "answer": 5,
        "max_tokens": 8,
        "by": "place",
        "proposed": np.array([2, 2, 0, 2]),
        "accepted": np.array([2, 1, 0, 0]),
        "confidence": np.full((4, 2), 0.5),
    }
    return RecordedText(**(fields | changes))


class TestRecordings:
    def test_by_place_and_by_round(self):
        place = recorded()
        turn = recorded(
            by="round",
            proposed=np.array([2, 2]),
            accepted=np.array([1, 0]),
            confidence=np.array([[0.9, 0.8], [0.2, 0.1]]),
        )
        texts = RecordedTexts((place, turn), 2, np.array([1, 0, 1]))
        assert texts.lengths.answer.tolist() == [5, 5, 5]
        blocks = texts.blocks(np.array([0, 1, 2]), np.array([4, 2, 1]), np.array([3, 1, 0]))
        assert blocks.would_accept.tolist() == [0, 1, 1]
        assert blocks.proposed.tolist() == [2, 2, 2]
        assert blocks.confidence.tolist() == [[0.2, 0.1], [0.5, 0.5], [0.9, 0.8]]

    def test_a_recording_is_repeated(self):
        """Rounds of whole blocks, simulated with whole blocks, write what they wrote."""
        accepted = np.array([3, 0, 2, 4, 1])
        rounds = Rounds(confidence=np.full((5, 4), 0.7), horizon=np.full(5, 4), accepted=accepted)
        text = RecordedText.of_rounds(rounds, prompt=10, answer=1 + int((accepted + 1).sum()), max_tokens=64)
        history = simulate(Cluster(costs=flat(1.0)), RecordedTexts([text], 4), ClosedLoop(users=1), "fixed")
        assert history.accepted[history.decoding > 0].tolist() == accepted.tolist()
        assert history.committed[history.decoding > 0].tolist() == (accepted + 1).tolist()

    def test_files(self, tmp_path: Path):
        answers = (recorded(), recorded(confidence=None, by="round"))
        write_recordings(tmp_path / "answers.jsonl", answers)
        back = read_recordings(tmp_path / "answers.jsonl")
        assert [text.to_json() for text in back] == [text.to_json() for text in answers]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"by": "token"}, "got 'token'"),
            ({"answer": 9}, "needs 8 blocks or more, got 4"),
            ({"accepted": np.array([-1, 0, 0, 0])}, "from 0 to the proposed ones"),
            ({"accepted": np.array([2, 2, 1, 0])}, "from 0 to the proposed ones"),
            ({"proposed": np.array([2, 2])}, "from 0 to the proposed ones"),
            ({"confidence": np.zeros((3, 2))}, r"confidence must be \[4, G\], got \[3, 2\]"),
        ],
    )
    def test_bad_answers(self, changes: dict, message: str):
        with pytest.raises(InputError, match=message):
            recorded(**changes)

    def test_bad_files(self, tmp_path: Path):
        file = tmp_path / "answers.jsonl"
        with pytest.raises(InputError, match="cannot read the recorded answers"):
            read_recordings(file)
        good = recorded().to_json()
        fields = json.loads(good)
        cases = {
            "": "holds no recorded answers",
            f"{good}\n[]": "line 2: it is no recorded answer",
            json.dumps({**fields, "accepted": "x"}): "line 1: it is no recorded answer",
        }
        for text, message in cases.items():
            file.write_text(text)
            with pytest.raises(InputError, match=message):
                read_recordings(file)

    def test_answers_that_do_not_fit_each_other(self):
        with pytest.raises(InputError, match="one block size"):
            RecordedTexts((recorded(), recorded(confidence=None)), 2)
        with pytest.raises(InputError, match="no recorded answers"):
            RecordedTexts((), 2)
