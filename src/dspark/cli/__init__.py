"""The command ``dspark``: one file per verb, which parses, builds and calls."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit: 0 done, 1 an error, 2 a wrong command line, 130 Ctrl-C."""
    try:
        from dspark.cli.app import app

        app()
    except KeyboardInterrupt:  # while the command itself was still loading
        sys.exit(130)
