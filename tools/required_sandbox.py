"""Refuses to run candidates where the sandbox is less than the caller requires."""

import platform
from enum import StrEnum
from typing import Annotated

import typer

from tasks.errors import UnavailableError
from tasks.target import Target
from tools import confinement
from tools.confinement import tier
from tools.worker.sandbox import SECCOMP_MACHINE, landlock_version


class RequiredSandbox(StrEnum):
    """The least that a caller accepts."""

    LANDLOCK = "landlock"
    PLATFORM = "platform"
    """Landlock, and seccomp where the filter is written for the processor: all that needs no other program."""
    BUBBLEWRAP = "bubblewrap"
    """All of it."""


RequireSandboxOption = Annotated[
    RequiredSandbox | None,
    typer.Option(
        "--require-sandbox",
        help="Run no candidate unless the sandbox is at least this: landlock; platform (landlock and seccomp); "
        "bubblewrap (all three). Exits with 3 where it is less.",
    ),
]


def missing_parts(*, gpu: bool) -> dict[str, str]:
    """The parts of the sandbox that this machine lacks, by name, with what to do."""
    missing = {}
    if not landlock_version():
        missing["landlock"] = "use Linux 5.13 or later with landlock in the kernel's list of security modules (lsm=)"
    if platform.machine() != SECCOMP_MACHINE:
        missing["seccomp"] = f"use an {SECCOMP_MACHINE} machine; the filter is not written for {platform.machine()}"
    # Compilers run without the GPU's devices on every target.
    if why := confinement.lacks_bubblewrap(gpu=gpu) or confinement.lacks_bubblewrap(gpu=False):
        missing["bubblewrap"] = why
    return missing


def require_sandbox(required: RequiredSandbox | None, target: Target) -> None:
    """Return where a target's workers get what is required, or nothing is.

    Raises:
        UnavailableError: they get less; the message names the missing parts and what to do about each.
    """
    if required is None:
        return
    parts = {
        RequiredSandbox.LANDLOCK: ("landlock",),
        # On another processor there is no filter to be had.
        RequiredSandbox.PLATFORM: ("landlock", *(("seccomp",) if platform.machine() == SECCOMP_MACHINE else ())),
        RequiredSandbox.BUBBLEWRAP: ("landlock", "seccomp", "bubblewrap"),
    }[required]
    gpu = target is Target.CUDA
    missing = [f"{part} ({what})" for part, what in missing_parts(gpu=gpu).items() if part in parts]
    if missing:
        raise UnavailableError(
            f"--require-sandbox {required}: candidates would run in `{tier(gpu=gpu)}` on this machine, which lacks "
            f"{' and '.join(missing)}. Nothing was run."
        )
