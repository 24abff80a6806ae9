"""Drafters: what proposes the blocks that the target verifies."""
