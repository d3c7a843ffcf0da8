"""The commands `run`, `resume` and `fork` have a model work on a task; with `serve` and `tool`, others do."""

from pathlib import Path
from typing import Annotated

import typer

from runs.apis import Api, ReasoningEcho
from runs.places import LOCAL
from runs.strategy_name import StrategyName
from tasks.target import Target
from tools.required_sandbox import RequireSandboxOption

ContextOption = Annotated[
    int | None,
    typer.Option(
        min=1024,
        metavar="TOKENS",
        help="How much the model takes, in and out: a longer conversation is compacted. By default what is known of "
        "the model, or what its server refuses.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    app.command()(run)
    app.command()(resume)
    app.command()(fork)
    app.command()(serve)
    app.command()(tool)


def run(
    task: Annotated[str, typer.Argument(help="A task's name, or the path of a task or KernelBench problem file.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="The model's name on its server, or `recorded`, or `recorded:RUN` for the replies of one run, or "
            "`simulated:SEED` for random edits of a causal convolution on the host."
        ),
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="A server that speaks Chat Completions or Responses.")] = None,
    api: Annotated[
        Api | None, typer.Option(help="Which of both it is asked by; by default what suits the model, else chat.")
    ] = None,
    stream: Annotated[bool | None, typer.Option(help="Receive replies as they are written; by default whole.")] = None,
    reasoning_effort: Annotated[
        str | None, typer.Option(help="How much the model is to reason, in its server's words, such as low or high.")
    ] = None,
    reasoning_echo: Annotated[
        ReasoningEcho | None, typer.Option(help="Whether the model gets its earlier reasoning back.")
    ] = None,
    reply_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most tokens of one reply; by default what the server allows.")
    ] = None,
    context: ContextOption = None,
    target: Annotated[
        Target | None, typer.Option(help="Where candidates run; by default cuda where there is a GPU, else cpu.")
    ] = None,
    strategy: Annotated[
        StrategyName | None,
        typer.Option(help="How rollouts build on one another; by default single, with more --rollouts best-of."),
    ] = None,
    rollouts: Annotated[
        int | None, typer.Option(min=1, help="The most conversations; by default 1, 4, or 12 of evolve.")
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="How many conversations go on at once.")] = 1,
    turns: Annotated[int, typer.Option(min=1, help="The most replies of a rollout.")] = 30,
    total_turns: Annotated[int | None, typer.Option(min=1, help="The most replies of the run.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="The most tokens of the run, in and out.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="The most wall time of the run.")] = None,
    dollars: Annotated[float | None, typer.Option(min=0, help="The most the run may cost.")] = None,
    gpu_seconds: Annotated[
        float | None, typer.Option(min=1, help="How long the run may hold the device that is measured on.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The directory under which the run is kept.")] = LOCAL,
    note: Annotated[str | None, typer.Option(help="How this run is made, for its record.")] = None,
    require: RequireSandboxOption = None,
) -> None:
    """Let a model write, verify and time kernels for TASK, and keep the transcript.
    Exits with 0: all rollouts ended by themselves, 2: bad usage, 3: server or machine failed, 130: stopped."""
    from agent.running import run_on_task
    from agent.strategies.choosing import configured
    from runs.config import Limits, ModelOptions

    asked = {
        "api": api,
        "stream": stream,
        "effort": reasoning_effort,
        "reasoning": reasoning_echo,
        "output_tokens": reply_tokens,
        "context_tokens": context,
    }
    run_on_task(
        task,
        model=model,
        base_url=base_url,
        options=ModelOptions.model_validate({name: value for name, value in asked.items() if value is not None}),
        target=target,
        strategy=configured(strategy, rollouts, parallel),
        limits=Limits(turns=turns),
        budget=Limits(turns=total_turns, tokens=tokens, seconds=seconds, dollars=dollars, gpu_seconds=gpu_seconds),
        out=out,
        note=note,
        require=require,
    )


def resume(
    run: Annotated[str, typer.Argument(help="A run's id, the unique beginning of one, or its path.")],
    base_url: Annotated[str | None, typer.Option(help="The model's server, where it has moved.")] = None,
    context: ContextOption = None,
    turns: Annotated[int | None, typer.Option(min=1, help="The most replies of a rollout: a new limit.")] = None,
    total_turns: Annotated[int | None, typer.Option(min=1, help="The most replies of the run: a new limit.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="The most tokens of the run: a new limit.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="The most wall time of the run: a new limit.")] = None,
    dollars: Annotated[float | None, typer.Option(min=0, help="The most the run may cost: a new limit.")] = None,
    gpu_seconds: Annotated[
        float | None, typer.Option(min=1, help="How long the run may hold the device: a new limit.")
    ] = None,
    require: RequireSandboxOption = None,
) -> None:
    """Go on with RUN where it was stopped or killed: what is in its transcripts is neither asked nor paid for again.
    Limits that are given here replace the run's own; what was spent before counts."""
    from agent.resume_command import resume_run
    from runs.config import Limits, ModelOptions

    resume_run(
        run,
        base_url=base_url,
        options=ModelOptions() if context is None else ModelOptions(context_tokens=context),
        limits=Limits(turns=turns),
        budget=Limits(turns=total_turns, tokens=tokens, seconds=seconds, dollars=dollars, gpu_seconds=gpu_seconds),
        require=require,
    )


def fork(
    run: Annotated[
        str, typer.Argument(help="A run's id, the unique beginning of one, or its path, or that of a rollout.")
    ],
    at: Annotated[int, typer.Option(min=0, metavar="TURN", help="The last turn that is taken over; 0 for none.")],
    model: Annotated[str | None, typer.Option(help="Another model, as of `run`; by default the run's.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Another server; by default the run's.")] = None,
    context: ContextOption = None,
    turns: Annotated[int | None, typer.Option(min=1, help="The most replies: a new limit.")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="The most tokens: a new limit.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="The most wall time: a new limit.")] = None,
    dollars: Annotated[float | None, typer.Option(min=0, help="The most it may cost: a new limit.")] = None,
    gpu_seconds: Annotated[
        float | None, typer.Option(min=1, help="How long it may hold the device: a new limit.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The directory under which the new run is kept.")] = LOCAL,
    note: Annotated[str | None, typer.Option(help="How this run is made, for its record.")] = None,
    require: RequireSandboxOption = None,
) -> None:
    """Make a new run that goes on from a turn of RUN. What is taken over is marked as copied, and not paid for again.
    Limits not given here are the old run's, and count from the fork."""
    from agent.fork_command import fork_run
    from runs.config import Limits, ModelOptions

    fork_run(
        run,
        at,
        model=model,
        base_url=base_url,
        options=ModelOptions() if context is None else ModelOptions(context_tokens=context),
        limits=Limits(turns=turns),
        budget=Limits(tokens=tokens, seconds=seconds, dollars=dollars, gpu_seconds=gpu_seconds),
        out=out,
        note=note,
        require=require,
    )


def serve(
    task: Annotated[
        str | None,
        typer.Argument(help="The only task that is served, as of `run`; without it, clients choose among all."),
    ] = None,
    target: Annotated[
        Target | None, typer.Option(help="Where candidates run; by default cuda where there is a GPU, else cpu.")
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Listen for HTTP in place of standard input, on this machine only.")
    ] = False,
    host: Annotated[str, typer.Option(help="With --http: the loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --http: the port; 0 for any free one.")] = 8000,
    out: Annotated[Path, typer.Option(help="The directory under which each rollout is kept as a run.")] = LOCAL,
    require: RequireSandboxOption = None,
) -> None:
    """Offer the tools to other agents over MCP, and keep a transcript of what they do with them. Over HTTP, clients
    must show the token that is printed at the start, or the one in KERNELWRIGHT_TOKEN."""
    from agent.serving.command import serve_tools

    serve_tools(task, target=target, out=out, address=(host, port) if http else None, require=require)


def tool(
    name: Annotated[
        str,
        typer.Argument(
            help="compile_kernel, verify, benchmark, profile, sanitize, disassemble, read_guide, diff_best or submit."
        ),
    ],
    run: Annotated[Path, typer.Option(help="The directory of the run that the call belongs to; made on first use.")],
    file: Annotated[
        str | None,
        typer.Argument(
            help="A candidate's file, compiled first where the run has not seen it; by default the candidate compiled "
            "last. Of read_guide, the name of a guide."
        ),
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(metavar="ID", help="A candidate compiled before in this run, in place of a file.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Of disassemble: a part of the kernel's name.")] = None,
    task: Annotated[str | None, typer.Option(help="What the run is of, as of `run`; needed on first use.")] = None,
    target: Annotated[
        Target | None, typer.Option(help="On first use: where candidates run; by default cuda where there is a GPU.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each result's record, one JSON object a line.")
    ] = False,
    require: RequireSandboxOption = None,
) -> None:
    """Carry out one tool call from a shell, and append it to a run. Exits with 0 where the answer is good, 1 for a
    fault of the candidate, 2 after bad usage, 3 if this machine cannot answer."""
    from agent.by_hand import call_by_hand
    from agent.hand_calls import Typed

    call_by_hand(
        Typed(name, file, candidate, kernel), run=run, task=task, target=target, as_json=as_json, require=require
    )
