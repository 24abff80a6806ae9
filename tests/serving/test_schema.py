"""Requests made up from the OpenAPI document itself: no answer is a server error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .tiny import Live


@pytest.mark.slow
def test_nothing_that_the_document_allows_breaks_the_server(drafting: Live) -> None:
    code = "from schemathesis.cli import schemathesis; schemathesis()"
    options = (
        "--checks",
        "not_a_server_error",
        "--max-examples",
        "5",
        "--generation-deterministic",
        "--phases",
        "fuzzing",
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", f"{drafting.url}/openapi.json", *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11/11" in done.stdout
