"""Errors meant for users: one clear sentence each."""


class DsparkError(Exception):
    """Base of all errors that a command shows as one line and exit code 1."""


class InputError(DsparkError, ValueError):
    """Something the user gave is wrong: the message says what was got, what was expected, what to do."""


class RequestsFailedError(DsparkError):
    """A step failed because of some of its requests; without them it would not have.

    Attributes:
        request_ids: their names.
    """

    def __init__(self, message: str, request_ids: frozenset[str]) -> None:
        super().__init__(message)
        self.request_ids = request_ids
