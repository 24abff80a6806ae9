"""A target's tokenizer without its weights."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from dspark.target.loading import _name, _place, read_tokenizer
from dspark.target.sources import DEFAULT_TARGET, resolve


@dataclass(frozen=True, kw_only=True)
class LoadedTokenizer:
    """The tokenizer of a target.

    Attributes:
        tokenizer: the tokenizer, chat template included.
        name: short name of the target, the same that loading the whole target gives.
    """

    tokenizer: PreTrainedTokenizerBase
    name: str


def load_tokenizer(spec: str = DEFAULT_TARGET) -> LoadedTokenizer:
    """Load the tokenizer of a target.

    Args:
        spec: as for :func:`dspark.target.load_target`.

    Raises:
        InputError: there is no such target, or it has no tokenizer.
    """
    source = resolve(spec)
    place, local = _place(source)
    return LoadedTokenizer(tokenizer=read_tokenizer(place, local_only=local), name=_name(spec, source))
