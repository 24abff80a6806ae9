"""Everything ``dspark serve`` can be told, by flag, environment or file, under one name each."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

if TYPE_CHECKING:
    from dspark.core import InputError

ENV_PREFIX = "DSPARK_SERVE_"


class ServeSettings(BaseSettings):
    """Flags win over the environment (``DSPARK_SERVE_PORT``), that over the file, that over the defaults here."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    target: str = Field("smollm2-135m", description="Model: a name, directory, GGUF file or hub id.")
    drafter: str = Field("auto", description="auto, none, ngram, or a checkpoint directory.")
    policy: str = Field(
        "auto", description="async, sync, fixed, fixed:K, threshold:T, or auto: async where it can, else fixed."
    )
    calibration: str = Field("auto", description="Of the drafter's confidence: auto, off, or a file.")
    costs: str = Field("auto", description="Of steps: auto (kept, or measured at start), or a file of dspark profile.")
    dtype: str = Field("auto", description="auto, float32, bfloat16 or float16.")
    device: str = Field("auto", description="auto, cpu, cuda.")
    max_requests: int = Field(64, ge=1, description="Most answers in progress at a time.")
    max_batch_rows: int = Field(512, ge=1, description="Most rows of one target forward.")
    max_context: int | None = Field(None, ge=2, description="Most tokens of prompt and answer together.")
    kv_tokens: int | None = Field(None, ge=1, description="Tokens the KV memory must hold.")
    kv_memory: int | None = Field(None, ge=1, description="Bytes of KV memory, instead of kv-tokens.")
    prefix_cache: bool = Field(True, description="Reuse the computed rows of texts that start alike.")
    seed: int | None = Field(None, ge=0, description="Seeds requests that come without one.")

    host: str = Field("127.0.0.1", description="Address to listen on; the default is this machine only.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    served_model_name: str | None = Field(None, description="Name of the model for clients.")
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Keys that clients must send one of; separated by commas."
    )
    max_queue: int = Field(256, ge=1, description="Most requests that wait; more get 429.")
    max_body_bytes: int = Field(4 << 20, ge=1024, description="Most bytes of a request body.")
    max_answers: int = Field(64, ge=1, description="Most answers of one HTTP request: prompts times n.")
    body_seconds: float = Field(30.0, gt=0, description="Seconds a client may take to send a body.")
    request_seconds: float | None = Field(None, gt=0, description="Seconds a request may take, queueing included.")
    slow_reader_seconds: float = Field(60.0, gt=0, description="Seconds a stream may be stuck in a client's buffers.")
    keep_alive_seconds: float = Field(15.0, gt=0, description="Silence on a stream after which a comment is sent.")
    shutdown_seconds: float = Field(30.0, ge=0, description="Seconds running requests get to end on shutdown.")
    log_level: str = Field("info", description="critical, error, warning, info or debug.")
    otel_endpoint: str | None = Field(None, description="OTLP/HTTP address that traces are sent to, path included.")
    log_prompts: bool = Field(False, description="Write prompts and answers into the log.")

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Keys in one text are separated by commas."""
        if isinstance(value, str):
            return tuple([key.strip() for key in value.split(",") if key.strip()])
        return value

    @field_validator("log_level")
    @classmethod
    def _known(cls, value: str) -> str:
        levels = ("critical", "error", "warning", "info", "debug")
        if value not in levels:
            raise ValueError(f"must be one of {', '.join(levels)}")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what is given and the environment; the file comes in through :func:`read_settings`."""
        return (init_settings, env_settings)


def read_settings(flags: dict[str, Any], file: Path | None = None) -> ServeSettings:
    """Settings of a server.

    Args:
        flags: what was given on the command line.
        file: a YAML file.

    Raises:
        InputError: what is wrong, and where.
    """
    try:
        from_env = ServeSettings(**flags).model_dump(exclude_unset=True)
        return ServeSettings(**{**_from_file(file), **from_env})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"][:1])
        raise _wrong(f"{name}: {first['msg'].removeprefix('Value error, ')}{_near(name)}") from None


def as_yaml(settings: ServeSettings) -> str:
    """All settings as a file that gives them again; keys are hidden."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise _wrong(f"{file} must hold names and values, like 'port: 8000'")
    return {key.replace("-", "_"): value for key, value in found.items()}


def _near(name: str) -> str:
    """A hint for a name that does not exist."""
    if name in ServeSettings.model_fields:
        return ""
    near = get_close_matches(name, ServeSettings.model_fields, 1)
    return f"; there is no such setting{f', did you mean {near[0]}?' if near else ''}"


def _wrong(message: str) -> InputError:
    """The error for users; made here because its home loads torch, which help texts must not wait for."""
    from dspark.core import InputError

    return InputError(message)
