"""Errors meant for users: one clear sentence each."""


class DsparkError(Exception):
    """Base of all errors that a command shows as one line and exit code 1."""


class InputError(DsparkError, ValueError):
    """Something the user gave is wrong: the message says what was got, what was expected, what to do."""
