"""Conversations, chat templates and features that drafters are trained on."""
