"""Answer prompts of a file anew, as training data, and see which tokens a drafter would learn from.

python examples/regenerate.py [TARGET] [DRAFTER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dspark import LLM
from dspark.data.conversation import read_conversations
from dspark.data.prompt_source import PromptReader, open_source
from dspark.recipes.engine_answers import EngineAnswers
from dspark.recipes.regenerated_file import RegeneratedFile
from dspark.recipes.regeneration import regenerate
from dspark.recipes.regeneration_plan import RegenerationPlan

PROMPTS = """\
{"turns": ["Name a colour.", "Name another one."], "domain": "chat"}
{"messages": [{"role": "user", "content": "What is 6 + 7?"}, {"role": "assistant", "content": "old"}], "domain": "math"}
{"conversations": [{"from": "human", "value": "def twice(x):"}], "domain": "code"}
"""


def main(target: str = "smollm2-135m", drafter: str = "auto") -> None:
    """Write the prompts to a file, answer them, and print what came of it; learnt text stands between brackets."""
    llm = LLM(target, drafter=drafter)
    with TemporaryDirectory() as folder:
        prompts, path = Path(folder) / "prompts.jsonl", Path(folder) / "conversations.jsonl"
        prompts.write_text(PROMPTS, encoding="utf-8")
        source = open_source(str(prompts))
        plan = RegenerationPlan(domain="other", temperatures={0.0: 0.5, 0.7: 0.5}, answer_tokens=32)
        file = RegeneratedFile.open(path, {"source": source.identity(), "target": llm.loaded.name})
        regenerate(PromptReader(source=source), EngineAnswers(llm, plan), file)
        print(f"{file.count} conversations, {file.tokens} tokens, {file.cut} with a cut answer, {file.failed} failed")
        for conversation in read_conversations(path):
            start = conversation.mask.index(1)
            head, rest = (
                llm.loaded.tokenizer.decode(part) for part in (conversation.ids[:start], conversation.ids[start:])
            )
            print(f"\n--- line {conversation.line}, {conversation.domain}, T = {conversation.temperature} ---")
            print(f"{head}[{rest}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
