"""The golden numbers are complete: all that their README lists is there, so no test can pass for want of data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open

VARIANTS = ["vanilla", "gated", "rnn", "dflash", "vanilla_conf_nomarkov"]
FILES_OF = {
    "target/": ["target/config.json", "target/model.safetensors", "target/io.safetensors"],
    "dspark/<variant>/": [
        f"dspark/{variant}/{name}"
        for variant in VARIANTS
        for name in ("config.json", "model.safetensors", "io.safetensors")
    ],
    "losses/<variant>.safetensors and <variant>_grads.safetensors": [
        f"losses/{variant}{end}.safetensors" for variant in VARIANTS for end in ("", "_grads")
    ],
    "eagle3/": ["eagle3/config.json", "eagle3/model.safetensors", "eagle3/io.safetensors"],
    "e2e/": ["e2e/trace.json", "e2e/draft/config.json", "e2e/draft/model.safetensors"],
    "rejection.json": ["rejection.json"],
    "scheduler.json": ["scheduler.json"],
    "sts.safetensors": ["sts.safetensors"],
}
ONLY_VANILLA = {"target_logits"}


@pytest.fixture(scope="module")
def sections(golden: Path) -> dict[str, str]:
    parts = re.split(r"^## (.*?) ?: .*\n|^## (.*)\n", (golden / "README.md").read_text(), flags=re.MULTILINE)[1:]
    return {(a or b): body for a, b, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def tensors(path: Path) -> set[str]:
    with safe_open(path, framework="np") as file:
        return set(file.keys())


def listed(section: str) -> list[str]:
    """Names in the first column of a section's table, shapes dropped."""
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    names = [name for cell in cells for name in re.split(r"[,;]", re.sub(r"\(.*?\)| bool", "", cell))]
    return [name.strip() for name in names if name.strip() not in ("tensor", "")]


def is_there(name: str, present: set[str]) -> bool:
    pattern = re.escape(name).replace(r"\{k\}", r"\d+")
    pattern = re.sub(r"\\\.n$", r"\\.\\d+", pattern)
    return any(re.fullmatch(pattern, key) for key in present)


def expected_absent(name: str, variant: str) -> bool:
    if variant == "dflash" and re.search(r"conf(_|$|idence)", name):
        return True
    return variant != "vanilla" and name in ONLY_VANILLA


def test_the_readme_has_the_sections_that_are_checked(sections: dict[str, str]) -> None:
    assert set(sections) == set(FILES_OF)


@pytest.mark.parametrize("section", FILES_OF)
def test_every_file_is_there(golden: Path, section: str) -> None:
    missing = [name for name in FILES_OF[section] if not (golden / name).stat().st_size]
    assert not missing


@pytest.mark.parametrize(
    ("section", "file", "variant"),
    [
        ("target/", "target/io.safetensors", "vanilla"),
        ("eagle3/", "eagle3/io.safetensors", "vanilla"),
        *[("dspark/<variant>/", f"dspark/{variant}/io.safetensors", variant) for variant in VARIANTS],
        *[
            ("losses/<variant>.safetensors and <variant>_grads.safetensors", f"losses/{variant}.safetensors", variant)
            for variant in VARIANTS
        ],
    ],
)
def test_every_listed_tensor_is_there(
    golden: Path, sections: dict[str, str], section: str, file: str, variant: str
) -> None:
    names = listed(sections[section])
    assert len(names) >= 8
    present = tensors(golden / file)
    missing = [name for name in names if not is_there(name, present) and not expected_absent(name, variant)]
    assert not missing


def test_the_stated_numbers_of_cases_are_there(golden: Path) -> None:
    scheduler = json.loads((golden / "scheduler.json").read_text())["instances"]
    assert len(scheduler) == 212
    trace = json.loads((golden / "e2e/trace.json").read_text())
    assert trace["cases"]
    assert all(case["rounds"] for case in trace["cases"] if case["max_new_tokens"] > 1)
    assert len(json.loads((golden / "rejection.json").read_text())["cases"]) >= 5
    assert {
        "logits",
        "prefix_labels",
        "eval_logits",
        "eval_prefix_labels",
        "grid",
        "temperatures",
        "ece_curve",
    } <= tensors(golden / "sts.safetensors")
