"""A caller who requires a sandbox gets it, or a refusal that says what is missing, before anything is run."""

import platform

import pytest
from tiers import without_bubblewrap
from typer.testing import CliRunner

from kernelwright import app
from runs.places import RECORDED
from tasks.errors import UnavailableError
from tasks.spec import Target
from tools import confinement, required_sandbox
from tools.doctor import examine
from tools.required_sandbox import RequiredSandbox, require_sandbox
from tools.worker import sandbox

RECORDED_RUN = "/".join(min(RECORDED.glob("*/*/run.json")).parts[-3:-1])


@pytest.fixture
def nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Landlock and bubblewrap."""
    monkeypatch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)
    for module in (sandbox, required_sandbox):
        monkeypatch.setattr(module, "landlock_version", lambda: 0)


@pytest.mark.usefixtures("nothing_there")
def test_without_a_requirement_every_machine_will_do() -> None:
    require_sandbox(None, Target.CPU)


@pytest.mark.usefixtures("nothing_there")
@pytest.mark.parametrize("required", list(RequiredSandbox))
def test_a_lesser_sandbox_is_refused_with_what_to_do(required: RequiredSandbox) -> None:
    with pytest.raises(UnavailableError) as caught:
        require_sandbox(required, Target.CPU)
    assert f"--require-sandbox {required}" in str(caught.value)
    assert "landlock (use Linux 5.13 or later" in str(caught.value)
    assert ("bubblewrap is not used in this test" in str(caught.value)) == (required is RequiredSandbox.BUBBLEWRAP)


@pytest.mark.skipif(not sandbox.landlock_version(), reason="needs a kernel with Landlock")
def test_bubblewrap_is_not_part_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)
    require_sandbox(RequiredSandbox.PLATFORM, Target.CPU)
    with pytest.raises(UnavailableError, match="lacks bubblewrap"):
        require_sandbox(RequiredSandbox.BUBBLEWRAP, Target.CPU)


def test_a_processor_without_a_filter_still_has_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel can add seccomp there, so that requiring it could never be met."""
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(required_sandbox, "landlock_version", lambda: 7)
    require_sandbox(RequiredSandbox.PLATFORM, Target.CPU)


@pytest.mark.usefixtures("nothing_there")
@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "causal_conv", __file__, "--target", "cpu"],
        ["run", "causal_conv", "--target", "cpu", "--model", "recorded"],
        ["attacks", "--target", "cpu"],
        ["tasks", "causal_conv", "--admit", "--target", "cpu"],
        ["replay", RECORDED_RUN, "--target", "cpu"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_that_runs_candidates_refuses(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--require-sandbox", "landlock"])
    assert isinstance(result.exception, UnavailableError), result.output
    assert "Nothing was run" in str(result.exception)


def test_a_requirement_that_does_not_exist() -> None:
    for arguments in (["score", "causal_conv", __file__], ["tasks", "causal_conv", "--admit"]):
        result = CliRunner().invoke(app, [*arguments, "--target", "cpu", "--require-sandbox", "castle"])
        assert "castle" in f"{result.output}{result.exception}"
        assert result.exit_code != 0


@pytest.mark.usefixtures("nothing_there")
def test_doctor_says_what_is_missing_and_how_to_get_it() -> None:
    (finding,) = (finding for finding in examine().findings if finding.check == "sandbox")
    assert finding.status == "note"
    assert "lacks landlock and bubblewrap" in finding.found
    assert "landlock: use Linux 5.13" in finding.remedy
    assert "bubblewrap: bubblewrap is not used in this test" in finding.remedy
