"""The exceptions of Kernelwright, one tree.

A candidate's failure is a value (`tools.results.Fault`), never an exception. These are the harness's own failures:

    KernelwrightError       anything this project raises on purpose; its text says what happened, where, and what to do
    ├── UsageError          the caller asked for something that cannot be; ends the program with exit code 2
    │   └── TaskError       a task file cannot be read or breaks the KernelBench form
    ├── UnavailableError    this machine cannot answer (no GPU, no compiler); ends the program with exit code 3
    │   └── StorageError    a run's directory can no longer be written, for example because the disk is full
    ├── HarnessError        a fault of ours, never counted against a candidate
    │   └── ProtocolError   a worker's message broke the protocol
    ├── RunFormatError      a transcript or run.json cannot be read
    ├── ModelServerError    the model's server failed for good; ends the rollout
    └── StoppedError        everybody was told to stop, so what was waited for will not come
"""


class KernelwrightError(Exception):
    """Anything this project raises on purpose."""


class UsageError(KernelwrightError):
    """The caller asked for something that cannot be."""


class TaskError(UsageError):
    """A task file cannot be read or breaks the KernelBench form."""


class UnavailableError(KernelwrightError):
    """This machine cannot answer, for example because it has no GPU."""


class StorageError(UnavailableError):
    """A run's directory can no longer be written; what is in it stays whole."""


class HarnessError(KernelwrightError):
    """A fault of Kernelwright itself."""


class ProtocolError(HarnessError):
    """A worker's message broke the protocol."""


class RunFormatError(KernelwrightError):
    """A transcript or `run.json` cannot be read."""


class ModelServerError(KernelwrightError):
    """The model's server failed for good."""


class StoppedError(KernelwrightError):
    """Everybody was told to stop, so what was waited for will not come."""
