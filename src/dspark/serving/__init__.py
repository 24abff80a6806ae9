"""The server: OpenAI-compatible HTTP in front of one engine."""
