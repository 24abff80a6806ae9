"""Keeping transformers' own bars and warnings off the user's screen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger

from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and everything below an error inside the block, then restore what was set before."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub = getLogger("huggingface_hub")
    hub_level = hub.level
    logging.set_verbosity_error()
    hub.setLevel(ERROR)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            logging.enable_progress_bar()
