"""Stream an answer, with drafted tokens in brackets: what the drafter wrote and the target accepted.

python examples/stream.py [TARGET] [DRAFTER]
"""

from __future__ import annotations

import sys

from dspark import LLM, SamplingParams


def main(target: str = "smollm2-135m", drafter: str = "ngram") -> None:
    """Ask for something repetitive, which even looking up n-grams in the text can draft."""
    llm = LLM(target, drafter=drafter)
    messages = [{"role": "user", "content": "Write the words red, green and blue in this order, ten times."}]
    for step in llm.stream(messages, SamplingParams(temperature=0, max_tokens=128)):
        for piece in step.pieces:
            print(f"[{piece.text}]" if piece.origin == "draft" else piece.text, end="", flush=True)
        if step.completion is not None:
            stats = step.completion.stats
            print(f"\n\n{stats.accepted} of {stats.drafted} drafted tokens accepted in {stats.rounds} rounds")


if __name__ == "__main__":
    main(*sys.argv[1:])
