"""Choosing the model of a run from what the caller named and the environment holds."""

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.address import require_address, require_key, without_secrets
from agent.model import ModelClient
from agent.prices import prices_of
from agent.quirks import options_for
from agent.recorded import NAME, RecordedModel, find_recording, recording_of
from agent.simulated.model import NAME as SIMULATED
from agent.simulated.model import SimulatedModel
from runs.config import Driver, Limits, ModelOptions, Prices
from tasks.errors import UsageError
from tasks.spec import Target

KEY_NAMES = ("KERNELWRIGHT_API_KEY", "OPENAI_API_KEY")
DEFAULT_MODEL = "gpt-5"
"""Where a key is set and nothing else is said."""
NO_KEY = "no-key-needed"
"""What is sent as the key to a server of one's own; the SDK refuses to send none."""


@dataclass(frozen=True)
class Choice:
    """A model, ready to make a client for each rollout."""

    name: str
    make_client: Callable[[], ModelClient]
    base_url: str | None = None
    """Without any password in it."""
    options: ModelOptions | None = None
    """How the server is asked; None for a recording."""
    recorded_from: str | None = None
    driver: Driver = Driver.MODEL
    prices: Prices | None = None
    by_default: bool = False
    """True where nothing was named and no key was found."""


def choose(
    model: str | None,
    base_url: str | None,
    task: str,
    target: Target,
    environment: Mapping[str, str] = os.environ,
    asked: ModelOptions = ModelOptions(),  # noqa: B008
) -> Choice:
    """The model that the caller means; raises UsageError where that cannot be told.

    Of `asked`, only what was set explicitly counts; the rest is the table's of quirks. A run that is resumed gives the
    options that its configuration holds.
    """
    key = next((require_key(name, environment[name]) for name in KEY_NAMES if environment.get(name, "").strip()), None)
    url = base_url or environment.get("OPENAI_BASE_URL") or None
    if model is None and key is None and url is None:
        return _recorded(None, task, target, by_default=True)
    if model is not None and (model == NAME or model.startswith(f"{NAME}:")):
        return _recorded(model.removeprefix(NAME).removeprefix(":") or None, task, target)
    if model is not None and (model == SIMULATED or model.startswith(f"{SIMULATED}:")):
        return _simulated(model)
    if url is not None:
        require_address(url)
    if model is None and url is not None:
        raise UsageError(f"Which model of {without_secrets(url)}? Name one with --model.")
    model = model or DEFAULT_MODEL
    if key is None and url is None:
        raise UsageError(
            f"There is no key for {model}. Set OPENAI_API_KEY, or name a server of your own with --base-url, "
            "or replay a recorded run with --model recorded."
        )
    return _served(model, key or NO_KEY, url, options_for(model, asked))


def require_prices(limits: Limits, choice: Choice) -> None:
    """Raise UsageError if dollars are limited but cannot be counted."""
    if limits.dollars is not None and choice.prices is None:
        raise UsageError(
            f"The prices of {choice.name} are not known, so --dollars cannot be kept. Add them to agent/prices.toml, "
            "or limit --tokens instead."
        )


def _served(model: str, key: str, url: str | None, options: ModelOptions) -> Choice:
    # The SDK takes most of a second to import, which a replay need not pay for.
    from agent.served import ServedModel

    return Choice(
        name=model,
        make_client=lambda: ServedModel(model, key, url, options),
        base_url=None if url is None else without_secrets(url),
        options=options,
        prices=prices_of(model),
    )


def _simulated(asked: str) -> Choice:
    _, _, seed = asked.partition(":")
    if not (seed or "0").isdecimal():
        raise UsageError(f"The seed of {asked} is no number; say {SIMULATED}:7, or only {SIMULATED} for the seed 0.")
    numbers = itertools.count(1)
    return Choice(name=asked, make_client=lambda: SimulatedModel(int(seed or "0"), next(numbers)))


def _recorded(asked: str | None, task: str, target: Target, by_default: bool = False) -> Choice:
    run, rollout = find_recording(task, target) if asked is None else recording_of(asked)
    events = run.events(rollout)
    recorded_task = run.config().task
    if recorded_task != task:
        raise UsageError(f"The run {run.id} is of {recorded_task}, not of {task}; its candidates would not fit.")
    return Choice(
        name=NAME,
        make_client=lambda: RecordedModel(events),
        recorded_from=f"{recorded_task}/{run.id}/{rollout}",
        by_default=by_default,
    )
