"""A few prompts of our own, for the demo and for a bench without files. Never part of any training data."""

from __future__ import annotations

from dspark.evaluation.prompts import PromptSet

_TEXTS = {
    "math": (
        "A baker fills 14 trays with 12 rolls each. She sells 95 rolls before noon and 48 after. How many rolls are "
        "left? Explain each step.",
        "A train covers 180 km in 2 hours and 15 minutes. What is its average speed in km/h? Show how you get there.",
        "Nora saves 35 euros a month. A bicycle costs 420 euros and is reduced by 15 percent. For how many months does "
        "she have to save? Think step by step.",
        "A garden is 18 metres long and 11 metres wide. How long is a fence around it with a gate of 2 metres left "
        "open? Explain your answer.",
    ),
    "code": (
        "Write a Python function that takes a list of integers and returns a new list with the duplicates removed, "
        "keeping the order. Add a docstring and two examples.",
        "Write a Python class Stack with the methods push, pop, peek and is_empty, and show how to use it.",
        "Write a Python function count_words(text) that returns a dictionary from each word to how often it occurs. "
        "Ignore case and punctuation.",
        "Explain what this code prints and why:\n```python\nfor i in range(3):\n    print(i, i * i)\n```",
    ),
    "chat": (
        "I have a free weekend and like mountains and good food. Suggest a plan for the two days.",
        "Explain to a ten-year-old why the sky is blue.",
        "Give me five tips for learning a new language beside a full-time job.",
        "Write a short and friendly email that asks a neighbour to water my plants for a week.",
    ),
}


def builtin_prompt_sets(per_domain: int | None = None) -> tuple[PromptSet, ...]:
    """The first ``per_domain`` prompts of each domain, or all of them, as conversations of one user turn."""
    return tuple(
        PromptSet(domain=domain, prompts=tuple(({"role": "user", "content": text},) for text in texts[:per_domain]))
        for domain, texts in _TEXTS.items()
    )
