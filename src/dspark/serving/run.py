"""Running a server until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import math
import socket

import uvicorn

from dspark.engine import LLM
from dspark.serving.app import make_app
from dspark.serving.service import Service
from dspark.serving.settings import ServeSettings

_SPARE = 5.0
"""Seconds that connections get to send the last words after everything has been ended."""


class DrainingServer(uvicorn.Server):
    """Takes no more connections once told to stop, and lets running requests end or ends them cleanly."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening; drain the engine while connections finish."""
        draining = asyncio.create_task(self._service.drain())
        await super().shutdown(sockets)
        await draining


def make_server(service: Service) -> DrainingServer:
    """A server that is ready to run."""
    settings = service.settings
    config = uvicorn.Config(
        make_app(service),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=settings.log_level == "debug",
        server_header=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds + _SPARE),
    )
    return DrainingServer(config, service)


def open_llm(settings: ServeSettings) -> LLM:
    """The model that a server is for.

    Raises:
        InputError: about the first setting that does not fit.
    """
    return LLM(
        settings.target,
        drafter=settings.drafter,
        policy=settings.policy,
        calibration=settings.calibration,
        costs=settings.costs,
        dtype=settings.dtype,
        device=settings.device,
        max_requests=settings.max_requests,
        max_batch_rows=settings.max_batch_rows,
        max_context=settings.max_context,
        kv_tokens=settings.kv_tokens,
        kv_memory=settings.kv_memory,
        seed=settings.seed,
        prefix_cache=settings.prefix_cache,
    )


def run(llm: LLM, settings: ServeSettings) -> None:
    """Serve until SIGINT or SIGTERM."""
    logging.getLogger("dspark.serving").setLevel(settings.log_level.upper())
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    make_server(Service.of(llm, settings)).run()
