"""What a run was asked to do and where: the contents of `run.json`, complete enough to run it again."""

from typing import Literal

from pydantic import AwareDatetime, Field

from tasks.record import Record
from tasks.spec import Target
from tools.briefing import Machine


class Limits(Record):
    """The most a rollout may spend; None means without limit."""

    turns: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens of all model replies together."""
    seconds: float | None = Field(default=None, ge=0)
    """Wall time, tools included."""
    dollars: float | None = Field(default=None, ge=0)


class Spending(Record):
    """What a rollout has spent."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    dollars: float | None = None
    """None where the model's prices are not known."""

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


class Prices(Record):
    """What a model's server charges, in US dollars for a million tokens."""

    input: float = Field(ge=0)
    cached_input: float = Field(ge=0)
    """For the part of the input that the server had in its cache."""
    output: float = Field(ge=0)
    as_of: str
    """The date from which these prices were known to hold."""


class ImportedFrom(Record):
    """The file that an imported run was read from."""

    file: str
    """Its name, without folders."""
    sha256: str
    format: str
    """`seed`, `chat` or `atif`."""


class RunConfig(Record):
    """The resolved configuration of a run, with the versions and the machine it ran on."""

    schema_version: Literal[1] = 1
    id: str
    created: AwareDatetime
    task: str
    task_argument: str
    """The task as it was asked for: its name, or the path of a file."""
    target: Target | None
    """None for an imported run: its file does not say where its candidates ran."""
    model: str
    base_url: str | None = None
    recorded_from: str | None = None
    """The transcript whose replies were fed to the loop, for the `recorded` model."""
    rollouts: int = Field(ge=1)
    limits: Limits
    prices: Prices | None = None
    """None where they are not known."""
    versions: dict[str, str]
    """Python and the packages that decide a result, by name."""
    commit: str | None = None
    """The git commit of the checkout, as far as it is one."""
    machine: Machine | None
    """None for an imported run."""
    provenance: str
    """How this run was made, in words."""
    imported_from: ImportedFrom | None = None
    """None for a run that was made here."""
