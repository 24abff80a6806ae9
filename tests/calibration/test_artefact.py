"""The file beside the checkpoint: read strictly, kept whole, refused for the wrong drafter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import save_file

from dspark.calibration import (
    ARTEFACT_FILE,
    HEAD_KEY,
    Calibration,
    StsArtefact,
    check_artefact,
    head_fingerprint,
    parse_artefact,
    read_artefact,
    save_artefact,
)
from dspark.core import InputError

GOOD = {
    "temperatures": [1.5, 0.8],
    "dataset": "builtin",
    "num_samples": 400,
    "ece_before": [0.06, 0.1],
    "ece_after": [0.01, 0.02],
}


def _text(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def test_the_five_fields_and_nothing_else_are_written():
    assert json.loads(parse_artefact(_text()).to_json()) == GOOD


def test_what_is_not_ours_is_kept(tmp_path: Path):
    read = parse_artefact(_text(tool={"name": "x"}, fitted="today"))
    save_artefact(tmp_path / ARTEFACT_FILE, read)
    again = read_artefact(tmp_path / ARTEFACT_FILE)
    assert again == read
    assert again.extra == {"tool": {"name": "x"}, "fitted": "today"}
    assert [path.name for path in tmp_path.iterdir()] == [ARTEFACT_FILE]


def test_whole_numbers_are_numbers():
    assert parse_artefact(_text(temperatures=[1, 2])).calibration.temperatures == (1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[1]", "must hold a JSON object, got list"),
        (_text(temperatures=[float("nan"), 1]), "NaN is no number"),
        ('{"temperatures": [1e999, 1]}', "lacks 'dataset'"),
        (_text().replace("1.5", "1e999"), "finite numbers, got inf"),
        (_text().replace("1.5", "1" + "0" * 400), "too large"),
        (_text(temperatures="1.5"), "must be a list of numbers, got str"),
        (_text(temperatures=[1.5, None]), "got None in it"),
        (_text(temperatures=[1.5, True]), "got True in it"),
        (_text(temperatures=[]), "temperatures must be positive"),
        (_text(temperatures=[1.5, 0]), "temperatures must be positive"),
        (_text(ece_after=[0.1]), "ece_after has 1 entries, temperatures has 2"),
        (_text(ece_before=[0.1, 1.5]), r"ece_before must be in \[0, 1\]"),
        (_text(num_samples=0), "num_samples must be an integer >= 1, got 0"),
        (_text(num_samples=4.5), "num_samples must be an integer >= 1"),
        (_text(dataset=None), "dataset must be a text"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str):
    with pytest.raises(InputError, match=says) as error:
        parse_artefact(text, "some.json")
    assert str(error.value).startswith("some.json")


class TestOffsets:
    better: ClassVar = {"temperatures": [1.2, 1.0], "offsets": [-0.5, -1], "ece_after": [0.001, 0.002]}

    def test_they_are_used_and_kept(self):
        read = parse_artefact(_text(with_offsets=self.better))
        assert read.temperatures == (1.5, 0.8)
        assert read.calibration == Calibration(temperatures=(1.2, 1.0), offsets=(-0.5, -1.0))
        assert read.ece_applied == (0.001, 0.002)
        assert parse_artefact(read.to_json()) == read

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"offsets": [1.0]}, "2 positive temperatures and 2 offsets"),
            ({"offsets": ["a", 1]}, "finite numbers, got 'a'"),
            ({"temperatures": [0, 1]}, "2 positive temperatures"),
            ({"ece_after": None}, "must be a list"),
        ],
    )
    def test_what_is_wrong_is_named(self, changes: dict, says: str):
        with pytest.raises(InputError, match=says):
            parse_artefact(_text(with_offsets=self.better | changes))

    def test_half_of_it(self):
        with pytest.raises(InputError, match="must have temperatures, offsets, ece_after"):
            parse_artefact(_text(with_offsets={"offsets": [1, 2]}))


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_field_is_named(name: str):
    fields = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(InputError, match=f"lacks '{name}'"):
        parse_artefact(json.dumps(fields))


def test_no_file(tmp_path: Path):
    with pytest.raises(InputError, match=r"cannot read the calibration .*gone\.json: .*dspark calibrate"):
        read_artefact(tmp_path / "gone.json")


def test_a_text_in_no_encoding(tmp_path: Path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot read the calibration"):
        read_artefact(tmp_path / "x.json")


def test_no_place_to_write(tmp_path: Path):
    with pytest.raises(InputError, match="cannot write the calibration"):
        save_artefact(tmp_path / "no" / "sts.json", parse_artefact(_text()))


def _checkpoint(folder: Path, value: float, dtype: torch.dtype = torch.float32) -> Path:
    folder.mkdir()
    weights = {"confidence_head.proj.weight": torch.full((1, 4), value), "fc.weight": torch.zeros(2, 2)}
    save_file({name: tensor.to(dtype) for name, tensor in weights.items()}, folder / "model.safetensors")
    return folder


def test_fingerprint_tells_heads_apart_but_not_dtypes(tmp_path: Path):
    one = head_fingerprint(_checkpoint(tmp_path / "a", 0.5))
    assert one == head_fingerprint(_checkpoint(tmp_path / "b", 0.5, torch.bfloat16))
    assert one != head_fingerprint(_checkpoint(tmp_path / "c", 0.25))


def test_no_head_no_fingerprint(tmp_path: Path):
    save_file({"fc.weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert head_fingerprint(tmp_path) is None


def test_no_weights(tmp_path: Path):
    with pytest.raises(InputError, match="cannot read the drafter's weights"):
        head_fingerprint(tmp_path)


class TestCheck:
    def test_blocks_of_another_size(self):
        with pytest.raises(InputError, match=r"calibrates blocks of 2 tokens, this drafter proposes 7"):
            check_artefact(parse_artefact(_text()), "sts.json", 7, None)

    def test_another_head(self):
        artefact = parse_artefact(_text(**{HEAD_KEY: "aaaa"}))
        with pytest.raises(InputError, match=r"fitted for another drafter \(confidence head aaaa, this one has bbbb\)"):
            check_artefact(artefact, "sts.json", 2, "bbbb")

    @pytest.mark.parametrize(("stated", "own"), [(None, "bbbb"), ("aaaa", "aaaa"), ("aaaa", None)])
    def test_fits(self, stated: str | None, own: str | None):
        extra = {} if stated is None else {HEAD_KEY: stated}
        artefact: StsArtefact = parse_artefact(_text(**extra))
        check_artefact(artefact, "sts.json", 2, own)
