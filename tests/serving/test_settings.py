"""One name for each setting: flag, environment, file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dspark.cli.app import app
from dspark.core import InputError
from dspark.serving.settings import ServeSettings, as_yaml, read_settings


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("port: 1\nmax-queue: 2\ndrafter: none\napi_keys: [a, b]\n")
    monkeypatch.setenv("DSPARK_SERVE_PORT", "3")
    monkeypatch.setenv("DSPARK_SERVE_DRAFTER", "ngram")
    found = read_settings({"drafter": "auto"}, file)
    assert (found.port, found.max_queue, found.drafter) == (3, 2, "auto")
    assert [key.get_secret_value() for key in found.api_keys] == ["a", "b"]
    monkeypatch.setenv("DSPARK_SERVE_API_KEYS", "x, y")
    assert len(read_settings({}, file).api_keys) == 2
    assert read_settings({}).host == "127.0.0.1", "safe by default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 3", "did you mean port"),
        ("port: x", "port: "),
        ("- a", "names and values"),
        ("a: [", "no YAML"),
        ("log_level: loud", "log_level: must be one of"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        read_settings({}, file)


def test_the_printed_settings_give_themselves_again(tmp_path: Path) -> None:
    settings = read_settings({"port": 9, "prefix_cache": False})
    file = tmp_path / "again.yaml"
    file.write_text(as_yaml(settings))
    assert read_settings({}, file) == settings


def test_the_command_has_a_flag_for_each_and_hides_keys() -> None:
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
    shown = re.sub(r"\x1b\[[0-9;]*m", "", runner.invoke(app, ["serve", "--help"]).output)
    for name in set(ServeSettings.model_fields) - {"target"}:
        assert f"--{name.replace('_', '-')}" in shown
    printed = runner.invoke(app, ["serve", "place", "--max-queue", "5", "--api-keys", "secret", "--print-config"])
    assert printed.exit_code == 0
    found = yaml.safe_load(printed.output)
    assert (found["target"], found["max_queue"]) == ("place", 5)
    assert "secret" not in printed.output
