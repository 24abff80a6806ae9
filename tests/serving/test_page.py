"""The page without a browser: complete, self-contained, readable, and true to the server."""

from __future__ import annotations

import re
from itertools import pairwise

import httpx2 as httpx
import pytest

from dspark.serving.page_routes import PAGE

from .tiny import Live, live, tiny_llm

FILES = sorted(PAGE.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
HTML = (PAGE / "index.html").read_text("utf-8")


def test_it_is_served_with_a_policy_that_keeps_it_to_itself(drafting: Live) -> None:
    answer = httpx.get(drafting.url + "/")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text == HTML
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    for path in FILES:
        found = httpx.get(f"{drafting.url}/page/{path.name}")
        assert found.content == path.read_bytes()
        assert found.headers["content-security-policy"] == answer.headers["content-security-policy"]
    assert httpx.get(f"{drafting.url}/page/../settings.py").status_code == 404
    assert httpx.get(f"{drafting.url}/page/nothing.js").json()["error"]["message"]


def test_the_page_is_there_without_a_key_and_nothing_else_is() -> None:
    with live(tiny_llm("none", max_requests=1), api_keys=("one",)) as running:
        assert [httpx.get(running.url + path).status_code for path in ("/", "/page/app.js")] == [200, 200]
        assert [httpx.get(running.url + path).status_code for path in ("/metrics", "/version", "/pages")] == [401] * 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere(path: object) -> None:
    text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")  # type: ignore[attr-defined]
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", text)


def test_what_is_referred_to_exists() -> None:
    names = {path.name for path in FILES}
    assert set(re.findall(r'(?:src|href)="page/([^"]+)"', HTML)) <= names
    ids = set(re.findall(r'\bid="([^"]+)"', HTML))
    for path in SCRIPTS:
        text = path.read_text("utf-8")
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= names, path.name
        assert set(re.findall(r'(?:byId|numberOf|new Lane)\("([^"]+)"', text)) <= ids, path.name
    assert set(re.findall(r'(?:for|aria-controls|aria-labelledby)="([^"]+)"', HTML)) <= ids


def test_the_metrics_it_reads_exist(drafting: Live) -> None:
    text = httpx.get(drafting.url + "/metrics").text
    shown = set(re.findall(r"^# TYPE (\w+)", text, re.M)) | set(re.findall(r"^(\w+)[ {]", text, re.M))
    code = (PAGE / "live.js").read_text("utf-8")
    code = code.replace("${what}", "accepted")  # of the names that are put together
    read = set(re.findall(r"dspark_\w+", code)) - {"dspark_profile_step_seconds"}  # only where there is a profile
    assert len(read) > 10
    assert not {name for name in read if not {name, f"{name}_count", name.removesuffix("_total")} & shown}


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_can_be_read(scheme: int) -> None:
    """WCAG AA: a contrast of 4.5 for every pair of text and background."""
    css = (PAGE / "style.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[scheme]))
    pairs = [("text", back) for back in ("back", "panel", "draft", "correction", "bonus")]
    pairs += [("soft", "back"), ("soft", "panel"), ("accent", "back"), ("on-accent", "accent"), ("bad", "bad-back")]
    for front, back in pairs:
        light, dark = sorted((luminance(colours[front]), luminance(colours[back])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back)


def test_headings_and_labels_are_in_order() -> None:
    levels = [int(level) for level in re.findall(r"<h(\d)", HTML)]
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    inputs = re.findall(r"<(?:input|textarea)[^>]*\bid=\"([^\"]+)\"", HTML)
    for name in inputs:
        labelled = f'for="{name}"' in HTML or re.search(rf'<label[^>]*>[^<]*<input id="{name}"', HTML)
        assert labelled, name
