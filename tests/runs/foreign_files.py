"""Small files as other agents write them, for the tests of imports."""

import json
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from runs.commands import register
from runs.find import list_runs
from runs.store import RunDirectory

KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
SECOND = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    steps = 2\n"
CALL = json.dumps({"kernel_code": KERNEL}, indent=2)

SEED = f"""reasoning
First I think.
```python
class ModelNew(nn.Module):
def forward(self, x):
return x
```
A part is missing: ...[ omitted 4616 characters ]... and it goes on.
call → compile_kernel
callcompile_kernel
{CALL}"""
"""As the seeds are: the code in the reasoning has lost its indentation, the one in the call has not."""

CHAT: list[dict[str, object]] = [
    {"role": "system", "content": "You write kernels."},
    {"role": "user", "content": "Begin."},
    {
        "role": "assistant",
        "content": f"Here:\n```python\n{SECOND}```\n",
        "reasoning_content": "I think of shared memory.",
        "refusal": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "write", "arguments": json.dumps({"text": KERNEL})}},
            {"id": "b", "type": "function", "function": {"name": "run", "arguments": "{broken"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "written", "elapsed": 3},
    {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "not JSON"}]},
    {"role": "user", "content": "Go on."},
    {"role": "assistant", "content": "Done."},
]

ATIF: dict[str, object] = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s1",
    "agent": {"name": "somebody", "version": "2", "model_name": "m1", "extra": {"mode": "fast"}},
    "steps": [
        {"step_id": 1, "source": "system", "message": "You write kernels."},
        {"step_id": 2, "source": "user", "message": "Begin.", "timestamp": "2026-03-01T12:00:00Z"},
        {
            "step_id": 3,
            "source": "agent",
            "timestamp": "2026-03-01T12:00:05.25+00:00",
            "message": "Trying.",
            "reasoning_content": "I think.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "write", "arguments": {"text": KERNEL}}],
            "observation": {
                "results": [
                    {"source_call_id": "c1", "content": "written", "extra": {"took": 2}},
                    {"source_call_id": None, "content": "the disk is nearly full"},
                ]
            },
            "metrics": {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 60, "cost_usd": 0.5},
        },
        {"step_id": 4, "source": "agent", "message": "Done."},
    ],
    "final_metrics": {"total_steps": 4},
}


def command(*arguments: str | Path) -> Result:
    """One of the floor's commands, as on the command line."""
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def imported(tmp_path: Path, content: str | bytes, *options: str, name: str = "foreign.json") -> RunDirectory:
    """The run that `kernelwright import` makes of a file."""
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = command("import", file, "--out", tmp_path / "runs", *options)
    assert done.exit_code == 0, done.output or done.exception
    (run,) = list_runs(tmp_path / "runs")
    return run
