"""Errors that a user can cause: one line that says what happened and what to do about it."""


class OnehopError(Exception):
    """Something the user can put right. The command line prints it as one line and exits with status 2."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} {remedy}")
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["OnehopError"], tuple[str, str]]:
        """How it comes home from a worker process, which an exception of two arguments does not by itself."""
        return type(self), (self.what, self.remedy)


class SettingsError(OnehopError):
    """A setting has a wrong name, type or value."""


class ModelFileError(OnehopError):
    """A model file is damaged, foreign, too new or does not fit."""


class TextError(OnehopError):
    """Input text cannot be read as it is."""


class StoreError(OnehopError):
    """A token store is missing, damaged or does not fit the model."""


class ShortlistError(OnehopError):
    """A vocabulary shortlist is missing, damaged or belongs to another vocabulary."""


class RunError(OnehopError):
    """A training run cannot start, go on or be written."""


class DivergedError(RunError):
    """A training whose loss or gradient is no number any more."""


class ExportError(OnehopError):
    """A model cannot be written for another program, or read from it."""
