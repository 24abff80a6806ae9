"""The page in a real browser: streaming, race, live view, keyboard, phones, and bad days."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from .test_metrics import costs
from .test_robustness import body, raw
from .tiny import Live, confident_llm, live, tiny_llm, wait_for

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ASKED = "the the the the"
TALK: list[Any] = [{"role": "user", "content": ASKED}]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "the page is tested in Chromium through playwright: make browser"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason=MISSING)
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(MISSING)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def confident() -> Iterator[Live]:
    with live(confident_llm(TALK)) as running:
        yield running


@contextmanager
def opened(chromium: Any, url: str, *, quiet: bool = True, **options: Any) -> Iterator[Any]:
    """A page; what it says on the console must be nothing, unless trouble is asked for."""
    context = chromium.new_context(**options)
    context.set_default_timeout(20_000)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"uncaught: {error}"))
    page.goto(url)
    yield page
    context.close()
    assert not [line for line in said if quiet or line.startswith("uncaught")], said


def has(locator: Any, text: str | re.Pattern[str]) -> None:
    """Wait for a text in an element."""
    locator.filter(has_text=text).first.wait_for()


def send(page: Any, text: str = ASKED, tokens: int = 60) -> None:
    page.fill("#max-tokens", str(tokens))
    page.fill("#prompt", text)
    page.press("#prompt", "Control+Enter")


def expected(running: Live, tokens: int = 60) -> str:
    answer = httpx.post(f"{running.url}/v1/chat/completions", json=body(messages=TALK, max_tokens=tokens), timeout=60)
    return answer.json()["choices"][0]["message"]["content"]


def test_streaming_shows_who_wrote_each_token(chromium: Any, confident: Live) -> None:
    with opened(chromium, confident.url) as page:
        has(page.locator("#about"), "tiny · drafter oracle · policy fixed")
        send(page)
        has(page.locator(".figures"), "60 tokens")
        answer = page.locator("#turns .tokens")
        assert answer.evaluate("box => box.textContent") == expected(confident)
        for origin in ("draft", "correction", "bonus", "plain"):
            assert answer.locator(f".token.{origin}").count() > 0
        assert "confidence 90 %" in answer.locator(".draft").first.get_attribute("title")
        answer.locator(".correction").first.hover()
        has(page.locator("#turns .detail"), "confidence in the rejected draft 40 %")
        answer.focus()
        page.keyboard.press("Home")
        has(page.locator("#turns .detail"), "nothing was drafted")
        has(page.locator(".figures"), "tokens a round")


def test_without_drafting_every_token_is_plain_and_the_text_the_same(chromium: Any, confident: Live) -> None:
    with opened(chromium, confident.url) as page:
        page.uncheck("#draft")
        send(page)
        has(page.locator(".figures"), "60 tokens")
        assert page.locator("#turns .token.draft").count() == 0
        assert page.locator("#turns .tokens").evaluate("box => box.textContent") == expected(confident)


def test_escape_stops_an_answer_and_the_server_forgets_it(chromium: Any, plain: Live) -> None:
    with opened(chromium, plain.url) as page:
        send(page, tokens=450)
        page.locator("#turns .token").first.wait_for()
        page.keyboard.press("Escape")
        has(page.locator(".error"), "Stopped.")
        wait_for(lambda: plain.service.loop.idle)
        assert page.is_enabled("#send")


def test_the_race(chromium: Any, confident: Live) -> None:
    with opened(chromium, confident.url) as page:
        page.click("#tab-race")
        page.fill("#race-prompt", ASKED)
        page.fill("#race-tokens", "60")
        page.click("#race-start")
        has(page.locator("#race-verdict"), "the same text")
        lanes = [page.locator(f"#lane-{name}") for name in ("plain", "dspark")]
        texts = [lane.locator(".tokens").evaluate("box => box.textContent") for lane in lanes]
        assert texts[0] == texts[1] == expected(confident)
        assert lanes[0].locator(".token.draft").count() == 0 < lanes[1].locator(".token.draft").count()
        page.click("#race-replay")
        page.wait_for_selector("#race-replay:enabled")
        assert [lane.locator(".tokens").evaluate("box => box.textContent") for lane in lanes] == texts


def test_the_live_view_of_a_busy_server(chromium: Any, confident: Live) -> None:
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            httpx.post(f"{confident.url}/v1/chat/completions", json=body(messages=TALK, max_tokens=110), timeout=60)

    clients = [threading.Thread(target=load) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        with opened(chromium, confident.url) as page:
            page.press("#tab-playground", "End")
            has(page.locator("#live-span"), "Means of the last")
            cards = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
            assert float(cards["Tokens/s"]) > 0
            has(page.locator("#cards div"), re.compile("^Users1$"))  # of now: between two answers there is none
            assert 1 < float(cards["Tokens a round"]) <= 6
            assert 0 < float(cards["Mean verify length"]) <= 5
            page.locator("#chart-speed svg .line").wait_for()
            assert page.locator("#chart-acceptance svg .bar").count() == 5
            assert "stated 90 %" in page.locator("#chart-calibration svg").get_attribute("aria-label")
            assert "verify" in page.locator("#chart-split svg").get_attribute("aria-label")
            has(page.locator("#chart-cost"), "No profile")
            page.click("#tab-playground")
            send(page)
            has(page.locator(".figures"), "60 tokens")
    finally:
        stop.set()
        for client in clients:
            client.join()


def test_the_cost_curve_and_where_the_server_stands_on_it(chromium: Any) -> None:
    llm = confident_llm(TALK, policy="async", costs=costs())
    with live(llm) as running, opened(chromium, running.url + "#live") as page:
        httpx.post(f"{running.url}/v1/chat/completions", json=body(messages=TALK, max_tokens=60), timeout=60)
        page.locator("#chart-cost svg .point").wait_for()
        assert re.search(
            r"now \d+\.\d rows take \d+\.\d ms", page.locator("#chart-cost svg").get_attribute("aria-label")
        )


def test_a_busy_server_and_a_bad_request_are_explained(chromium: Any) -> None:
    with (
        live(tiny_llm("none", max_requests=1), max_queue=1) as running,
        ExitStack() as held,
        opened(chromium, running.url, quiet=False) as page,
    ):
        send(page, "long " * 200)
        has(page.locator(".error"), "The request was refused: the prompt has")
        for _ in range(2):
            held.enter_context(raw(running.port, body(max_tokens=480)))
            wait_for(lambda: not running.service.loop.idle)
        wait_for(lambda: httpx.post(f"{running.url}/v1/chat/completions", json=body()).status_code == 429)
        send(page)
        has(page.locator(".error").first, "The server is busy")
        held.close()
        wait_for(lambda: running.service.loop.idle)
        page.locator(".error").first.get_by_role("button", name="Try again").click()
        has(page.locator(".figures").first, "60 tokens")


def test_a_server_that_goes_and_comes_back(chromium: Any) -> None:
    with live(tiny_llm("none", max_requests=2)) as running:
        port = running.port
        context = opened(chromium, running.url, quiet=False)
        page = context.__enter__()
        has(page.locator("#about"), "tiny")
    send(page)
    has(page.locator(".error"), "cannot be reached")
    has(page.locator("#connection"), "trying again")
    with live(tiny_llm("none", max_requests=2), port=port):
        page.locator("#connection").wait_for(state="hidden")
        page.get_by_role("button", name="Try again").click()
        has(page.locator(".figures"), "60 tokens")
        context.__exit__(None, None, None)


def test_a_key_is_asked_for(chromium: Any) -> None:
    llm = tiny_llm("none", max_requests=2)
    with live(llm, api_keys=("secret",)) as running, opened(chromium, running.url, quiet=False) as page:
        has(page.locator("#connection"), "asks for an API key")
        page.fill("#key", "secret")
        page.press("#key", "Enter")
        has(page.locator("#about"), "tiny")
        assert page.is_hidden("#connection")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(chromium: Any, confident: Live, scheme: str) -> None:
    with opened(chromium, confident.url, color_scheme=scheme, **PHONE) as page:
        send(page, tokens=100)
        has(page.locator(".figures"), "100 tokens")
        page.locator("#turns .draft").first.tap()
        has(page.locator("#turns .detail"), "drafted and accepted")
        for view in ("playground", "race", "live"):
            page.click(f"#tab-{view}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
        small = page.evaluate(
            "[...document.querySelectorAll('button')].filter(b => b.checkVisibility() && b.offsetHeight < 32).length"
        )
        assert small == 0
        assert page.evaluate("getComputedStyle(document.body).colorScheme || 'light dark'") == "light dark"


def test_everything_can_be_done_with_keys(chromium: Any, confident: Live) -> None:
    with opened(chromium, confident.url) as page:
        seen = []
        for _ in range(12):
            page.keyboard.press("Tab")
            seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert seen[:4] == ["skip", "tab-playground", "prompt", "max-tokens"]
        assert {"temperature", "seed", "draft", "raw", "send", "clear"} <= set(seen)
        page.focus("#tab-playground")
        for view in ("race", "live", "playground"):
            page.keyboard.press("ArrowRight")
            assert page.is_visible(f"#{view}")
            assert page.evaluate("document.activeElement.id") == f"tab-{view}"
