"""The targets; apart from the facts of a task, because every command line names them and few need the rest."""

from enum import StrEnum


class Target(StrEnum):
    """Where candidates run."""

    CUDA = "cuda"
    CPU = "cpu"
