"""Profiles: what was measured stays, what was not is stated, and machines that change are noticed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dspark.core import InputError
from dspark.scheduling import (
    CostModel,
    LiveCosts,
    Measurement,
    ProfileIdentity,
    RefinementOptions,
    TimeTable,
    check_profile,
    find_profile,
    from_sglang,
    keep_profile,
    profile_file,
    read_profile,
    to_sglang,
    to_sglang_plain,
)

from .worlds import IDENTITY, model

CLIFF = TimeTable(widths=(1, 4, 5, 8), depths=(0, 100), seconds=((1.0, 1.0, 3.0, 3.0), (2.0, 2.0, 4.0, 5.0)))


class TestTimeTable:
    def test_measured_points_and_cliffs_stay(self):
        assert CLIFF.at([1, 2, 4, 5, 8]).tolist() == [1.0, 1.0, 1.0, 3.0, 3.0]

    def test_lines_between_neighbours_only(self):
        table = TimeTable(widths=(2, 4, 6), depths=(0,), seconds=((1.0, 2.0, 8.0),))
        assert table.at([3, 5]).tolist() == [1.5, 5.0]

    def test_outside_what_was_measured(self):
        table = TimeTable(widths=(2, 4, 8), depths=(0,), seconds=((1.0, 2.0, 4.0),))
        assert table.at([0, 1]).tolist() == [1.0, 1.0]
        assert table.at([10, 16]).tolist() == [5.0, 8.0]  # mean slope of the upper half: 1/2 a row
        assert TimeTable(widths=(4,), depths=(0,), seconds=((2.0,),)).at([8]).tolist() == [4.0]

    def test_a_fall_at_the_end_is_not_continued(self):
        table = TimeTable(widths=(2, 4), depths=(0,), seconds=((3.0, 2.0),))
        assert table.at([4, 100]).tolist() == [2.0, 2.0]

    def test_depths(self):
        assert CLIFF.at([8], 50).tolist() == [4.0]
        assert CLIFF.at([8], 0).tolist() == CLIFF.at([8], -5).tolist() == [3.0]
        assert CLIFF.at([1, 8], 200).tolist() == [3.0, 7.0]

    def test_medians_of_a_grid(self):
        points = [
            Measurement(width=w, ran=w, depth=d, seconds=(1.0 * w, 2.0 * w, 9.0 * w)) for w in (4, 1) for d in (9, 0)
        ]
        table = TimeTable.of(points)
        assert (table.widths, table.depths, table.seconds) == ((1, 4), (0, 9), ((2.0, 8.0), (2.0, 8.0)))
        assert table.spread == ((2.0, 2.0), (2.0, 2.0))

    @pytest.mark.pitfall(27)
    def test_another_width_than_was_asked_for_is_refused(self):
        points = [Measurement(width=w, ran=1, depth=0, seconds=(0.1,)) for w in (1, 8)]
        with pytest.raises(InputError, match="asked for width 8, but 1 ran"):
            TimeTable.of(points)

    def test_holes_are_refused(self):
        points = [Measurement(width=w, ran=w, depth=d, seconds=(0.1,)) for w, d in ((1, 0), (2, 0), (1, 5))]
        with pytest.raises(InputError, match="width 2 was not measured at depth 5"):
            TimeTable.of(points)
        with pytest.raises(InputError, match="no measured time"):
            TimeTable.of([Measurement(width=1, ran=1, depth=0, seconds=())])

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"widths": (2, 1)}, "widths must be rising integers from 1"),
            ({"widths": (0, 1)}, "widths must be rising"),
            ({"depths": (-1,)}, "depths must be rising"),
            ({"depths": (0, 1)}, "seconds must be 2 rows of 2"),
            ({"seconds": ((1.0,),)}, "seconds must be 1 rows of 2"),
            ({"seconds": ((1.0, 0.0),)}, "positive"),
            ({"seconds": ((1.0, float("nan")),)}, "positive"),
            ({"spread": ((1.0,),)}, "spread must be 1 rows of 2"),
        ],
    )
    def test_bad_tables(self, fields, message):
        good = {"widths": (1, 2), "depths": (0,), "seconds": ((1.0, 2.0),)}
        with pytest.raises(InputError, match=message):
            TimeTable(**(good | fields))


class TestProfile:
    def test_round_trip(self):
        whole = CostModel(identity=IDENTITY, verify=CLIFF, draft=CLIFF, note="as measured")
        assert CostModel.from_json(whole.to_json()) == whole
        bare = CostModel(identity=IDENTITY, verify=CLIFF)
        assert CostModel.from_json(bare.to_json()) == bare

    def test_prefill_rows_are_rows(self):
        costs = CostModel(identity=IDENTITY, verify=CLIFF, draft=CLIFF)
        assert costs.verify_curve(8, 0)[[1, 5]].tolist() == [1.0, 3.0]
        assert costs.sps(5) == pytest.approx(1 / 3)
        assert costs.draft_curve(5, 100).tolist() == [0.0, 2.0, 2.0, 2.0, 2.0, 4.0]
        assert costs.draft_curve(5, 0).tolist() == [0.0] * 6
        assert model([1.0]).draft_curve(2, 7).tolist() == [0.0] * 3

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "not valid JSON"),
            ("[]", "must hold a JSON object"),
            ('{"format": 7}', "has format 7, expected 1"),
            ('{"format": 1}', "lacks 'draft'"),
            ('{"format": 1, "draft": null, "identity": {"cpu": 1}}', "identity is damaged"),
        ],
    )
    def test_damaged(self, text, message):
        with pytest.raises(InputError, match=message):
            CostModel.from_json(text)
        fields = json.loads(model([1.0]).to_json())
        fields["verify"]["seconds"] = None
        with pytest.raises(InputError, match="this one is damaged"):
            CostModel.from_json(json.dumps(fields))

    @pytest.mark.pitfall(26)
    def test_kept_under_its_identity(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("DSPARK_CACHE", str(tmp_path))
        assert find_profile(IDENTITY) is None
        costs = model([0.1, 0.2])
        file = keep_profile(costs)
        assert file == profile_file(IDENTITY) == tmp_path / "profiles" / f"{IDENTITY.digest()}.json"
        assert find_profile(IDENTITY) == read_profile(file) == costs
        file.write_text("{")
        assert find_profile(IDENTITY) is None
        with pytest.raises(InputError, match="not valid JSON"):
            read_profile(file)
        with pytest.raises(InputError, match="cannot read"):
            read_profile(tmp_path / "none.json")

    @pytest.mark.pitfall(27)
    def test_everything_that_matters_is_in_the_identity(self):
        base = {"machine": "m", "model": "t", "drafter": "d", "dtype": "bf16", "threads": 2, "backend": "cpu"}
        one = ProfileIdentity(**base, versions={"torch": "1", "dspark": "2"})
        assert one.digest() == ProfileIdentity(**base, versions={"dspark": "2", "torch": "1"}).digest()
        others = [base | {name: 3 if name == "threads" else "x"} for name in base]
        digests = {ProfileIdentity(**other, versions=one.versions).digest() for other in others}
        assert len(digests | {one.digest(), ProfileIdentity(**base).digest()}) == len(base) + 2
        assert (
            one.difference(ProfileIdentity(**(base | {"threads": 3}), versions=one.versions))
            == "threads 3 instead of 2"
        )


class TestChecks:
    @pytest.mark.pitfall(27)
    def test_one_width_at_every_point(self):
        (doubt,) = check_profile(model([0.02] * 32))
        assert "32 rows takes as long as one of 1" in doubt
        assert "was one width measured at every point?" in doubt

    def test_good_ones(self):
        assert check_profile(model([0.02 + 0.001 * rows for rows in range(32)], [0.01, 0.01])) == ()
        assert check_profile(model([0.02, 0.0175])) == ()  # a small step downwards is how kernels are

    def test_time_that_falls(self):
        (doubt,) = check_profile(model([0.02, 0.04, 0.03]))
        assert "3 rows took 30.0 ms, one of 2 took 40.0 ms" in doubt
        (doubt,) = check_profile(model([0.02, 0.03], [0.02, 0.01]))
        assert doubt.startswith("drafting of 2 requests")

    def test_times_that_do_not_repeat(self):
        points = [Measurement(width=w, ran=w, depth=0, seconds=(0.01 * w, 0.011 * w, 0.03 * w)) for w in (1, 2)]
        (doubt,) = check_profile(CostModel(identity=IDENTITY, verify=TimeTable.of(points)))
        assert "repeated times of a step of 1 rows" in doubt


class TestRefinement:
    BASE = model([0.02 + 0.001 * rows for rows in range(16)], [0.01, 0.012])

    def run(self, factor, steps: int = 300, widths=(2, 9, 15), **options) -> LiveCosts:
        live, rng = LiveCosts(self.BASE, RefinementOptions(**options)), np.random.default_rng(0)
        for _ in range(steps):
            width = int(rng.choice(widths))
            seconds = float(self.BASE.verify.at(width)) * factor(width) * float(rng.normal(1, 0.02))
            live.observe("verify", width, 0.0, seconds)
        return live

    def test_starts_as_measured(self):
        live = LiveCosts(self.BASE)
        assert live.verify_curve(20, 0).tolist() == self.BASE.verify_curve(20, 0).tolist()
        assert live.draft_curve(2, 5).tolist() == self.BASE.draft_curve(2, 5).tolist()
        assert (live.notice(), live.drift()) == (None, 1.0)

    def test_a_machine_that_slows_down_is_noticed_and_followed(self):
        live = self.run(lambda _: 2.0, steps=100)
        assert live.verify_curve(9, 0)[9] == pytest.approx(2 * float(self.BASE.verify.at(9)), rel=0.05)
        assert live.verify_curve(6, 0)[6] > 1.4 * float(self.BASE.verify.at(6))  # a width that never ran follows
        assert "has become slower" in (live.notice() or "")
        live.reset()
        assert (live.notice(), live.drift()) == (None, 1.0)

    def test_one_width_that_is_dearer(self):
        live = self.run(lambda width: 1.5 if width == 9 else 1.0)
        truth = {2: 1.0, 9: 1.5, 15: 1.0}
        for width, factor in truth.items():
            assert live.verify_curve(16, 0)[width] == pytest.approx(factor * float(self.BASE.verify.at(width)), rel=0.1)
        assert live.width_factors()[9] > 1.2
        assert live.notice() is None

    def test_hiccups_hardly_count(self):
        live = LiveCosts(self.BASE)
        for step in range(100):
            live.observe("verify", 4, 0.0, float(self.BASE.verify.at(4)) * (100.0 if step % 20 == 0 else 1.0))
        assert live.verify_curve(4, 0)[4] == pytest.approx(float(self.BASE.verify.at(4)), rel=0.06)

    def test_bounds(self):
        live = self.run(lambda _: 1e6, steps=2000)
        assert live.drift() == pytest.approx(8.0)
        assert max(live.width_factors().values()) <= 2.0 + 1e-9

    def test_nonsense_and_off(self):
        live = LiveCosts(self.BASE)
        for seconds in (0.0, -1.0, float("nan"), float("inf")):
            live.observe("verify", 4, 0.0, seconds)
        live.observe("verify", 0, 0.0, 5.0)
        assert live.drift() == 1.0
        off = LiveCosts(self.BASE, enabled=False)
        off.observe("verify", 4, 0.0, 5.0)
        assert off.drift() == 1.0

    def test_drafting_learns_apart(self):
        live = LiveCosts(self.BASE)
        for _ in range(200):
            live.observe("draft", 2, 7.0, 0.024)
        assert live.draft_curve(2, 7)[2] == pytest.approx(0.024, rel=0.05)
        assert live.drift("verify") == 1.0
        bare = LiveCosts(model([0.1]))
        bare.observe("draft", 1, 7.0, 0.5)
        assert bare.draft_curve(1, 7).tolist() == [0.0, 0.0]
        assert bare.width_factors("draft") == {}


class TestSglang:
    def test_additive_both_ways(self):
        costs = model([0.02, 0.02, 0.05], [0.01, 0.012])
        text = to_sglang(costs, context=0.0, block=7)
        assert set(json.loads(text)) == {"bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds"}
        back = from_sglang(text, IDENTITY)
        np.testing.assert_allclose(back.verify_curve(5, 0), costs.verify_curve(5, 0))
        np.testing.assert_allclose(back.draft_curve(3, 7), costs.draft_curve(3, 7))
        assert json.loads(to_sglang(model([0.1]), context=0.0, block=1))["bs_probes"] == [1]

    def test_plain_is_a_staircase(self):
        text = '{"sample_batch_tokens":[8,16],"sample_steps_per_sec":[100.0,50.0],"max_batch_tokens":20}'
        costs = from_sglang(text, IDENTITY)
        assert costs.verify_curve(20, 0)[[1, 8, 15, 16, 20]] == pytest.approx([0.01, 0.01, 0.01, 0.02, 0.02])
        assert costs.draft_curve(3, 7).tolist() == [0.0] * 4

    def test_plain_export_counts_drafting(self):
        raw = json.loads(to_sglang_plain(model([0.02] * 8, [0.01, 0.03]), [4, 8], context=0.0, block=3))
        assert raw["sample_batch_tokens"] == [4, 8]
        assert raw["sample_steps_per_sec"] == pytest.approx([1 / 0.03, 1 / 0.05])
        assert raw["max_batch_tokens"] == 8

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]",
            "{}",
            '{"bias_seconds": 1}',
            '{"sample_batch_tokens":[2,1],"sample_steps_per_sec":[1,1],"max_batch_tokens":2}',
            '{"sample_batch_tokens":[1,2],"sample_steps_per_sec":[1,0],"max_batch_tokens":2}',
        ],
    )
    def test_neither_form(self, text):
        with pytest.raises(InputError, match="the SPS table"):
            from_sglang(text, IDENTITY)
