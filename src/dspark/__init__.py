"""Exact speculative decoding with a semi-autoregressive drafter and confidence-scheduled verification."""
