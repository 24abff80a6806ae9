"""Conversations to train on, side by side in memory: everything but the target's hidden states.

Legend: T tokens of all sequences one after the other, Q sequences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dspark.core import InputError
from dspark.data.conversation import Conversation, check_files, read_conversations


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Tokenised conversations as flat arrays.

    Attributes:
        ids: [T] int32 token ids.
        mask: [T] bool, the tokens that the target wrote as answers.
        lengths: [Q] int64 tokens of each sequence.
        temperatures: [Q] float32 at which its answers were sampled.
        complete: [Q] bool, whether its last answer ended by itself.
        domains: Q names of where it came from, empty where that is not known.
    """

    ids: np.ndarray
    mask: np.ndarray
    lengths: np.ndarray
    temperatures: np.ndarray
    complete: np.ndarray
    domains: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.ids) == len(self.mask) == self.lengths.sum()
        assert len(self.lengths) == len(self.temperatures) == len(self.complete) == len(self.domains)

    @classmethod
    def of(cls, conversations: Iterable[Conversation]) -> Corpus:
        """Collect conversations.

        Raises:
            InputError: one without tokens, or with a token id that does not fit into 32 bits.
        """
        ids: list[np.ndarray] = []
        masks: list[np.ndarray] = []
        facts: list[tuple[float, bool, str]] = []
        for number, conversation in enumerate(conversations, start=1):
            if not conversation.ids:
                raise InputError(f"conversation {number} has no tokens")
            try:
                ids.append(np.asarray(conversation.ids, np.int32))
            except OverflowError:
                raise InputError(f"conversation {number} has a token id beyond 32 bits") from None
            masks.append(np.asarray(conversation.mask, bool))
            facts.append((conversation.temperature, conversation.complete, conversation.domain))
        return cls(
            ids=np.concatenate([np.zeros(0, np.int32), *ids]),
            mask=np.concatenate([np.zeros(0, bool), *masks]),
            lengths=np.array([len(one) for one in ids], np.int64),
            temperatures=np.array([fact[0] for fact in facts], np.float32),
            complete=np.array([fact[1] for fact in facts], bool),
            domains=tuple(fact[2] for fact in facts),
        )

    @classmethod
    def read(cls, files: Sequence[Path]) -> Corpus:
        """Read files of conversations, one JSON object a line.

        Raises:
            InputError: a file that is not there, or a line that is no conversation (its number is named).
        """
        check_files(files)
        return cls.of(conversation for file in files for conversation in read_conversations(file))

    @classmethod
    def joined(cls, parts: Sequence[Corpus]) -> Corpus:
        """Several corpora as one, in order; at least one."""
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            mask=np.concatenate([part.mask for part in parts]),
            lengths=np.concatenate([part.lengths for part in parts]),
            temperatures=np.concatenate([part.temperatures for part in parts]),
            complete=np.concatenate([part.complete for part in parts]),
            domains=tuple(domain for part in parts for domain in part.domains),
        )

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.ids)

    @property
    def sequences(self) -> int:
        """Q."""
        return len(self.lengths)

    @cached_property
    def offsets(self) -> np.ndarray:
        """[Q + 1] int64: sequence i has the flat rows ``offsets[i] .. offsets[i + 1] - 1``."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    def rows(self, sequences: np.ndarray) -> np.ndarray:
        """Flat rows of the tokens of these sequences [n], packed one sequence after the other: int64."""
        starts, lengths = self.offsets[sequences], self.lengths[sequences]
        firsts = np.cumsum(lengths) - lengths
        return np.repeat(starts - firsts, lengths) + np.arange(lengths.sum())

    def ids_of(self, sequence: int) -> np.ndarray:
        """Token ids of one sequence (a view)."""
        return self.ids[self.offsets[sequence] : self.offsets[sequence + 1]]

    def mask_of(self, sequence: int) -> np.ndarray:
        """Loss mask of one sequence (a view)."""
        return self.mask[self.offsets[sequence] : self.offsets[sequence + 1]]

    def select(self, sequences: np.ndarray) -> Corpus:
        """A corpus of these sequences [n] alone, in the given order."""
        rows = self.rows(sequences)
        return Corpus(
            ids=self.ids[rows],
            mask=self.mask[rows],
            lengths=self.lengths[sequences],
            temperatures=self.temperatures[sequences],
            complete=self.complete[sequences],
            domains=tuple(self.domains[index] for index in sequences),
        )

    def matching(
        self, *, domains: Iterable[str] | None = None, complete: bool | None = None, max_length: int | None = None
    ) -> np.ndarray:
        """Indices [n] int64 of the sequences that fulfil every condition given, increasing."""
        keep = np.ones(self.sequences, bool)
        if domains is not None:
            wanted = set(domains)
            keep &= np.array([domain in wanted for domain in self.domains], bool)
        if complete is not None:
            keep &= self.complete == complete
        if max_length is not None:
            keep &= self.lengths <= max_length
        return np.flatnonzero(keep)

    def fingerprint(self) -> str:
        """SHA-256 of the contents, hexadecimal; equal for equal conversations in equal order."""
        digest = hashlib.sha256()
        for array in (self.ids, self.mask, self.lengths, self.temperatures, self.complete):
            digest.update(np.ascontiguousarray(array).data)
        digest.update("\0".join(self.domains).encode())
        return digest.hexdigest()
