"""What stands in deploy/ fits the command: its files, flags, settings and paths exist."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from dspark.cli.app import app
from dspark.serving.app import make_app
from dspark.serving.schema import ChatRequest
from dspark.serving.service import Service
from dspark.serving.settings import ENV_PREFIX, ServeSettings

from .tiny import settings, tiny_llm

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def flags_of(words: list[str]) -> set[str]:
    return {word.split("=")[0] for word in words if word.startswith("--")}


def flags() -> set[str]:
    shown = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["serve", "--help"]).output
    return set(re.findall(r"--[a-z][a-z-]+", re.sub(r"\x1b\[[0-9;]*m", "", shown)))


def environment(text: str) -> set[str]:
    return {name.lower() for name in re.findall(rf"{ENV_PREFIX}([A-Z_]+)(?==)", text)} - {"name"}


def test_the_unit_starts_the_command_and_waits_for_it_to_end() -> None:
    text = (DEPLOY / "dspark.service").read_text("utf-8")
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert (Path(words[0]).name, words[1]) == ("dspark", "serve")
    assert flags_of(words) <= flags()
    assert service["KillSignal"] == "SIGTERM"
    assert float(service["TimeoutStopSec"]) > ServeSettings().shutdown_seconds + 5
    assert environment(text) <= set(ServeSettings.model_fields)


def test_the_container_file_copies_and_starts_what_exists() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY")]
    assert all((ROOT / name).exists() for names in copied for name in names)
    assert re.search(r'^ENTRYPOINT \["dspark", "serve"\]$', text, re.M)
    assert environment(text) <= set(ServeSettings.model_fields)
    assert f"EXPOSE {ServeSettings().port}" in text
    version = re.search(r"^readonly torch_version=(\S+)", (ROOT / "scripts/setup.sh").read_text(), re.M)
    assert version
    assert f"torch=={version[1]}" in text
    checked = re.search(r"127\.0\.0\.1:\d+(/[a-z/]+)", text)
    assert checked
    service = Service.of(tiny_llm("none", max_requests=1), settings())
    paths = make_app(service).openapi()["paths"]
    service.texts.close()
    assert checked[1] in paths


def test_the_document_names_only_what_exists() -> None:
    text = (ROOT / "docs/serving.md").read_text("utf-8")
    assert flags_of(re.findall(r"(--[a-z][a-z-]+)", text)) <= flags()
    assert {name.lower() for name in re.findall(rf"{ENV_PREFIX}([A-Z_]+)", text)} <= set(ServeSettings.model_fields)
    table = text.split("## Beyond")[1].split("## Metrics")[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", table, re.M)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert {"max_draft_tokens", "timeout"} <= named <= set(ChatRequest.model_fields)
    assert all((ROOT / name).exists() for name in re.findall(r"`(deploy/[^`]+)`", text))
