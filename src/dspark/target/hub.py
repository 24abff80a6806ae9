"""Whether the Hugging Face hub can be asked at all; its own client would retry for half a minute."""

from __future__ import annotations

import socket
import urllib.request
from urllib.parse import urlsplit

from huggingface_hub import constants, try_to_load_from_cache

from dspark.core import InputError


def must_stay_local(repo_id: str) -> bool:
    """Whether a hub model must be read from the hub's local cache, because there is no network.

    Raises:
        InputError: there is no network and the model is not in the cache.
    """
    if hub_is_reachable():
        return False
    if isinstance(try_to_load_from_cache(repo_id, "config.json"), str):
        return True
    raise InputError(
        f"{repo_id!r} is no local path, and as a hub id it cannot be fetched: {constants.ENDPOINT} is not reachable; "
        "without a network give a local directory or GGUF file"
    )


def hub_is_reachable() -> bool:
    """Whether the hub's name resolves (or a proxy would do that), and offline mode is not asked for."""
    if constants.HF_HUB_OFFLINE:
        return False
    address = urlsplit(constants.ENDPOINT)
    if address.scheme in urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(address.hostname, address.port or 443)
    except OSError:
        return False
    return True
