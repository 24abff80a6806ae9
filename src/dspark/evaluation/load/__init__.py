"""Load tests: closed and open loops over the engine, every arm in turn, and what they say about the scheduler."""
