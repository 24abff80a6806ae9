"""The same numbers with far fewer operations: decoder layers of the proven families without their module calls.

:func:`build_lean_body` reads the weights out of a transformers model; whether it may be used is decided by comparing it
with the seam on the model at hand, so a family that changes in a later transformers falls back by itself.
"""

from dspark.target.lean.body import LeanBody
from dspark.target.lean.families import build_lean_body

__all__ = ["LeanBody", "build_lean_body"]
