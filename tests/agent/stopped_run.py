"""A run of three rollouts at once with stand-ins for model and judge, for tests that stop it: `OUT MODE`.

The first two candidates take next to no time; the third is built, or measured, or thought about, until it is stopped.
"""

import functools
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer
from pool_stand_ins import JUDGE, Orders, Script

import tools.local_site
from agent import running
from agent.choice import Choice
from agent.model import AssistantMessage, Message, ModelReply, Patience, ToolDefinition
from runs.config import Limits, ModelOptions
from runs.events import ToolCall
from runs.origin import StrategyConfig
from runs.strategy_name import StrategyName
from tasks.spec import Target


class Model:
    """Compiles and times a candidate a turn; in the third turn, what takes long is what `mode` says."""

    name = "stand-in"

    def __init__(self, mode: str, touch: Path) -> None:
        self._mode = mode
        self._touch = touch

    def query(self, messages: Sequence[Message], tools: Sequence[ToolDefinition], patience: Patience) -> ModelReply:
        """The next candidate."""
        del tools, patience
        turn = sum(isinstance(message, AssistantMessage) for message in messages) + 1
        long = Orders(sleep_s=300.0, touch=str(self._touch)) if turn == 3 else Orders()
        if turn == 3 and self._mode == "model":
            self._touch.touch()
            time.sleep(300)
        script = Script(
            name=f"{id(self)}-{turn}",
            build=long if self._mode == "build" else Orders(),
            evaluate=long if self._mode == "measure" else Orders(),
        )
        arguments = json.dumps({"kernel_code": script.model_dump_json()})
        calls = (
            ToolCall(id="a", name="compile_kernel", arguments=arguments),
            ToolCall(id="b", name="benchmark", arguments="{}"),
        )
        return ModelReply(text=f"turn {turn}", tool_calls=calls if turn < 5 else (), finish_reason="tool_calls")


def main() -> None:
    """Carry out the run."""
    # A shell that starts the tests in the background has them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out, mode = Path(sys.argv[1]), sys.argv[2]
    local_site = functools.partial(tools.local_site.local_site, lanes=3, builders=3, judge=JUDGE)
    tools.local_site.local_site = local_site
    numbers = iter(range(100))
    choice = Choice(
        name="stand-in",
        make_client=lambda: Model(mode, out / f"long-{next(numbers)}"),
        options=ModelOptions(),
    )
    setattr(running, "choose", lambda *_, **__: choice)  # noqa: B010
    running.run_on_task(
        "causal_conv",
        model=None,
        base_url=None,
        options=ModelOptions(),
        target=Target.CPU,
        strategy=StrategyConfig(name=StrategyName.BEST_OF, rollouts=9, parallel=3),
        limits=Limits(turns=4),
        budget=Limits(),
        out=out,
        note=None,
        require=None,
    )


if __name__ == "__main__":
    try:
        main()
    except typer.Exit as leaving:
        sys.exit(leaving.exit_code)
