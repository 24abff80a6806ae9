"""Verification: warping, the greedy and the rejection rule, what is emitted, log probabilities.

Pure functions of numbers; random numbers come in as uniforms. One step is a few lines for the engine::

    adjusted = adjust_logits(logits, edits, drafts)
    adjusted = mask_logits(adjusted, constraints, drafts, fresh=adjusted is not logits)
    verdicts = judge(adjusted, drafts, sampling, uniforms, proposal, proposal_rows)
    logprobs = token_logprobs(logits, rows, tokens, top_n)
"""

from dspark.verify.adjust import adjust_logits
from dspark.verify.constraint import ConstraintError, TokenConstraint, mask_logits
from dspark.verify.draft_draws import DraftDraws
from dspark.verify.draw import draw
from dspark.verify.edits import LogitEdits
from dspark.verify.faults import RowsAtFaultError
from dspark.verify.greedy import best_tokens, greedy_verdict
from dspark.verify.judge import judge
from dspark.verify.logprobs import token_logprobs
from dspark.verify.row_sampling import RowSampling
from dspark.verify.rules import acceptance, residual, residual_of_token
from dspark.verify.token_counts import TokenCounts
from dspark.verify.uniforms import ACCEPT, DRAFT, EMIT, RoundUniforms
from dspark.verify.warp import warp

__all__ = [
    "ACCEPT",
    "DRAFT",
    "EMIT",
    "ConstraintError",
    "DraftDraws",
    "LogitEdits",
    "RoundUniforms",
    "RowSampling",
    "RowsAtFaultError",
    "TokenConstraint",
    "TokenCounts",
    "acceptance",
    "adjust_logits",
    "best_tokens",
    "draw",
    "greedy_verdict",
    "judge",
    "mask_logits",
    "residual",
    "residual_of_token",
    "token_logprobs",
    "warp",
]
