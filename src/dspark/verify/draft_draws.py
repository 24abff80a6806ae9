"""The DraftSampler the engine hands to drafters: the same warping and drawing as verification uses."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dspark.verify.draw import draw
from dspark.verify.greedy import best_in_place
from dspark.verify.row_sampling import RowSampling
from dspark.verify.warp import warp


class DraftDraws:
    """Draws draft tokens of R requests with the temperature and filters of each.

    Args:
        sampling: options of the R requests.
        uniforms: [R, G] ``RoundUniforms.draft``; not read when all requests are greedy (then it may be None).
    """

    def __init__(self, sampling: RowSampling, uniforms: np.ndarray | None) -> None:
        assert uniforms is not None or bool(sampling.greedy.all())
        self._sampling = sampling
        self._uniforms = uniforms

    def __call__(self, slot: int, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """See :class:`dspark.core.DraftSampler`; greedy requests in a mixed batch get one-hot rows."""
        greedy = torch.from_numpy(self._sampling.greedy)
        if self._uniforms is None or bool(greedy.all()):
            return best_in_place(logits), None
        probs = warp(logits, self._sampling)
        if bool(greedy.any()):
            rows = greedy.nonzero()[:, 0].to(logits.device)
            best = best_in_place(logits.index_select(0, rows))
            probs.index_fill_(0, rows, 0.0)[rows, best] = 1.0
        return draw(probs, self._uniforms[:, slot]), probs
