"""What a run was asked to do and where: the contents of `run.json`, complete enough to run it again."""

from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime, Field

from runs.apis import Api, ReasoningEcho
from runs.origin import StrategyConfig
from tasks.record import Record
from tasks.spec import Target
from tools.briefing import Machine


class Limits(Record):
    """The most a rollout, or a run as a whole, may spend; None means without limit."""

    turns: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    """Input and output tokens of all model replies together."""
    seconds: float | None = Field(default=None, ge=0)
    """Wall time, tools included."""
    dollars: float | None = Field(default=None, ge=0)
    gpu_seconds: float | None = Field(default=None, ge=0)
    """How long tools may hold the device that is measured on; on the host target, the host."""


class Spending(Record):
    """What a rollout, or a run as a whole, has spent."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    """In which it was worked on: not those between a kill and `resume`."""
    dollars: float | None = None
    """None where the model's prices are not known."""
    gpu_seconds: float = 0.0

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


class ForkedFrom(Record):
    """The rollout whose beginning a fork took over."""

    run: str
    """`<task>/<id>`."""
    rollout: str
    turn: int = Field(ge=0)
    """The last turn taken over."""


class ModelOptions(Record):
    """How a model's server is asked: what the caller said, over the table of quirks, over these defaults."""

    api: Api = Api.CHAT
    stream: bool = False
    reasoning: ReasoningEcho = ReasoningEcho.AUTO
    effort: str | None = None
    """How much the model is to reason, in its server's words; None leaves it to the server."""
    summary: str | None = None
    """Which summary of its reasoning is asked for; of the Responses interface only."""
    temperature: float | None = None
    """None sends none: some models refuse any, and most servers know what suits their model."""
    output_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of one reply; None leaves it to the server."""
    context_tokens: int | None = Field(default=None, ge=1)
    """How many tokens the model takes at most, in and out; None waits for the server to refuse a conversation."""
    output_limit: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    """The name of that limit in Chat Completions."""
    strict: bool = False
    """Whether the server is asked to keep to the tools' schemas."""
    parallel_calls: bool | None = None
    """Whether a reply may hold several tool calls; None says nothing about it."""


class Driver(StrEnum):
    """Who makes the tool calls of a run."""

    MODEL = "model"
    """A model, asked by our own loop."""
    CLIENT = "client"
    """An agent that called the tools through `kernelwright serve`."""
    SHELL = "shell"
    """Whoever typed or scripted `kernelwright tool`."""


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
    """Its name; of a run that no model of ours drives, who called the tools."""
    driver: Driver = Driver.MODEL
    base_url: str | None = None
    recorded_from: str | None = None
    """The transcript whose replies were fed to the loop, for the `recorded` model."""
    rollouts: int = Field(ge=1)
    strategy: StrategyConfig | None = None
    """None in runs from before there were any: their rollouts knew nothing of one another."""
    limits: Limits
    """Of each rollout."""
    budget: Limits = Limits()
    """Of all rollouts together."""
    prices: Prices | None = None
    """None where they are not known."""
    model_options: ModelOptions | None = None
    """None where no server is asked, and in runs older than this field."""
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
    forked_from: ForkedFrom | None = None
