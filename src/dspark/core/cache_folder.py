"""Where things that were made once are kept."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_dir


def cache_dir() -> Path:
    """Converted models, profiles: ``DSPARK_CACHE``, else the user's cache folder."""
    return Path(os.environ.get("DSPARK_CACHE") or user_cache_dir("dspark"))
