"""Tokenizers with chat templates of the kinds that occur, one token per byte besides the markers."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<|end|>", "<|start|>", "</s>", "[INST]", "[/INST]")
CHATML = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
# Answers may think; thoughts of earlier answers are left out; asked not to think, the prompt holds an empty thought.
THINKING = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|start|>{{ m['role'] }}\n"
    "{% set content = m['content'] %}{% set thought = m['reasoning_content'] | default('') %}"
    "{% if m['role'] == 'assistant' and not thought and '</think>' in content %}"
    "{% set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{% if m['role'] == 'assistant' and loop.index0 > ns.last %}"
    "<think>\n{{ thought.strip('\n') }}\n</think>\n\n{% endif %}"
    "{{ content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
# Every prompt opens a thought.
OPENED = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'].split('</think>')[-1] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n<think>\n{% endif %}"
)
# User turns and answers end with different tokens, and there is no system prompt.
INSTRUCT = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}[/INST]"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] }}</s>"
    "{% else %}{{ raise_exception('roles must be user and assistant') }}{% endif %}{% endfor %}"
)


def tokenizer_with(template: str | None) -> PreTrainedTokenizerFast:
    """A tokenizer with a template; ``<think>`` and its end are tokens, though not special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIAL))
    inner.add_tokens([AddedToken(word, normalized=False) for word in ("<think>", "</think>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=SPECIAL[0], bos_token=SPECIAL[1])
    tokenizer.chat_template = template
    return tokenizer
