"""The vocabulary every other room speaks: parameters, requests, batches, proposals, verdicts."""

from dspark.core.batch import PackedBatch
from dspark.core.errors import DsparkError, InputError, RequestsFailedError
from dspark.core.outputs import FinishReason, Piece, TokenLogprobs, TokenOrigin
from dspark.core.proposal import CommittedRows, DraftBatch, DraftSampler, Proposal
from dspark.core.sampling_params import SamplingParams
from dspark.core.verdict import Verdict

__all__ = [
    "CommittedRows",
    "DraftBatch",
    "DraftSampler",
    "DsparkError",
    "FinishReason",
    "InputError",
    "PackedBatch",
    "Piece",
    "Proposal",
    "RequestsFailedError",
    "SamplingParams",
    "TokenLogprobs",
    "TokenOrigin",
    "Verdict",
]
