"""Answers of a given form, through llguidance: JSON, JSON schemas, regular expressions, Lark grammars."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.hf import from_tokenizer
from llguidance.numpy import fill_next_token_bitmask
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from dspark.core import InputError
from dspark.verify import ConstraintError

_SPACE = r"[\x20\x0A\x0D\x09]{0,24}"
"""White space between parts of a JSON text; bounded, as a model that got lost would write nothing else."""
_KEPT = 64
"""Compiled grammars that are kept."""


def json_grammar(schema: dict[str, Any]) -> str:
    """JSON that fits a schema.

    Raises:
        InputError: the schema is no JSON object.
    """
    try:
        return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_pattern": _SPACE})
    except ValueError as error:
        raise InputError(f"the JSON schema cannot be used: {error}") from None


def regex_grammar(pattern: str) -> str:
    """Text that matches a regular expression as a whole."""
    return LLMatcher.grammar_from_regex(pattern)


def lark_grammar(text: str) -> str:
    """Text of a Lark grammar, llguidance's dialect."""
    return LLMatcher.grammar_from_lark(text)


class Grammars:
    """Compiles grammars for one tokenizer; belongs to one thread, what it makes belongs to whoever gets it.

    Args:
        tokenizer: the model's.
        vocab_size: V of the model.
        eos_ids: ids that end an answer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, eos_ids: Collection[int]) -> None:
        self._hf, self._vocab_size, self._eos_ids = tokenizer, vocab_size, frozenset(eos_ids)
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        """Takes about a second to make, so the first request that needs it waits."""
        if not self._eos_ids:
            raise InputError("this model has no end-of-text token, so the form of an answer cannot be given")
        if not isinstance(self._hf, PreTrainedTokenizerFast):
            raise InputError("the form of an answer cannot be given with this model's tokenizer, which is a slow one")
        try:
            return from_tokenizer(self._hf, n_vocab=self._vocab_size, eos_token=sorted(self._eos_ids))
        except ValueError as error:
            raise InputError(f"the form of an answer cannot be given with this model's tokenizer: {error}") from None

    def compile(self, grammar: str) -> Callable[[], GrammarConstraint]:
        """What makes a constraint for each answer.

        Raises:
            InputError: what is wrong with the grammar.
        """
        known = self._kept.get(grammar)
        if known is None:
            known = self._compiled(grammar)
            self._kept[grammar] = known
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(grammar)
        matcher = known.deep_copy()
        return lambda: GrammarConstraint(matcher.deep_copy(), self._eos_ids)

    def _compiled(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
        if matcher.is_error():
            raise InputError(f"the form of the answer cannot be used: {matcher.get_error().strip():.400}")
        return matcher


class GrammarConstraint:
    """A grammar and where an answer stands in it; see :class:`dspark.verify.TokenConstraint`."""

    def __init__(self, matcher: LLMatcher, eos_ids: frozenset[int]) -> None:
        self._matcher, self._eos_ids = matcher, eos_ids

    def allowed(self, drafts: Sequence[int]) -> int:
        """How many leading drafts may follow one another."""
        return self._matcher.validate_tokens(list(drafts))

    def fill(self, drafts: Sequence[int], words: np.ndarray) -> None:
        """Say what may follow the committed tokens and each draft."""
        consumed = 0
        for row in range(len(drafts) + 1):
            fill_next_token_bitmask(self._matcher, words, row)
            if row == len(drafts) or drafts[row] in self._eos_ids:
                break
            if not self._matcher.try_consume_tokens([drafts[row]]):
                break
            consumed += 1
        if consumed:
            self._matcher.rollback(consumed)
        if self._matcher.is_error():
            raise ConstraintError(f"the form of the answer became too complex: {self._matcher.get_error():.200}")

    def commit(self, tokens: Sequence[int]) -> None:
        """Append tokens; an end-of-text token ends the answer, and the grammar need not know."""
        self._matcher.consume_tokens([token for token in tokens if token not in self._eos_ids])
