"""Answer a batch of prompts, and see what speculation did for each.

python examples/generate.py [TARGET] [DRAFTER]
"""

from __future__ import annotations

import sys

from dspark import LLM, SamplingParams


def main(target: str = "smollm2-135m", drafter: str = "auto") -> None:
    """Chat with the target about three things at once, then sample two different answers to one of them."""
    llm = LLM(target, drafter=drafter)
    questions = ("What is a prime number?", "Write a haiku about the sea.", "Name three uses of a brick.")
    conversations = [[{"role": "user", "content": question}] for question in questions]
    for question, output in zip(
        questions, llm.chat(conversations, SamplingParams(temperature=0, max_tokens=64)), strict=True
    ):
        answer = output.outputs[0]
        print(f"\n> {question}\n{answer.text}")
        print(f"[{len(answer.token_ids)} tokens, {answer.stats.tau:.2f} a round, ended by {answer.finish_reason}]")

    sampling = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=32, seed=7, n=2)
    for answer in llm.chat(conversations[1], sampling)[0].outputs:
        print(f"\n> {questions[1]} (answer {answer.index + 1})\n{answer.text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
