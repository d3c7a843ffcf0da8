"""Whatever a candidate does to its worker, it has its verdict within the limit and costs the next candidate nothing.

One judge and one session for all of them. After each, nothing of it is left on the machine, and an honest candidate is
verified. The one that hangs in native code, deaf to signals, is report R25.
"""

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from judging import CONVOLUTION, INPUTS, message_of, task_of, verdict_of
from processes import descendants, running, within
from tiers import needs_bubblewrap, without_bubblewrap

from tasks.spec import Target
from tools import confinement
from tools import session as session_module
from tools.candidate import Candidate
from tools.judge import Judge
from tools.lease import lease
from tools.results import VerifyResult
from tools.subject import Limits
from tools.verdict import Verdict

LIMITS = Limits(load_s=10.0, call_s=2.0)
VERDICT_WITHIN_S = LIMITS.call_s + 10.0
"""The limit of the call that hangs, and what starting and ending a worker takes on a machine with other work."""
LEFT = "left-by-a-candidate"
SEGMENT_BYTES = 1_234_567
"""Of the System V segment that one candidate makes, to tell it from those of others."""

EXTENSION = '''
import atexit, builtins, ctypes, gc, os, signal, subprocess, sys, threading, time, types
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    name="convolution",
    cpp_sources=r"""
#include <csignal>

torch::Tensor convolution(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const torch::Tensor input = x.contiguous(), filter = weight.contiguous();
    const int64_t outputs = filter.size(0), channels = input.size(1), length = input.size(2), width = filter.size(2);
    torch::Tensor out = torch::empty({input.size(0), outputs, length}, input.options());
    const float *in = input.data_ptr<float>(), *taps = filter.data_ptr<float>(), *shift = bias.data_ptr<float>();
    for (int64_t n = 0; n < input.size(0); ++n)
        for (int64_t o = 0; o < outputs; ++o)
            for (int64_t t = 0; t < length; ++t) {
                float sum = shift[o];
                for (int64_t c = 0; c < channels; ++c)
                    for (int64_t k = 0; k < width; ++k) {
                        const int64_t at = t + k - width / 2;
                        if (at < 0 || at >= length) continue;
                        sum += taps[(o * channels + c) * width + k] * in[(n * channels + c) * length + at];
                    }
                out.data_ptr<float>()[(n * outputs + o) * length + t] = sum;
            }
    return out;
}

void spin() {
    for (int number = 1; number < 32; ++number) std::signal(number, SIG_IGN);
    volatile bool forever = true;
    while (forever) {}
}
""",
    functions=["convolution", "spin"],
    extra_cflags=["-O2"],
)
'''
MODEL = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        {first}return extension.convolution(x, self.conv.weight, self.conv.bias)
"""


def candidate(imported: str = "", called: str = "", defined: str = "") -> Candidate:
    """The right kernel, with code that runs at import, at the beginning of every call, or stands in the class."""
    first = "".join(f"{line}\n        " for line in called.splitlines())
    return Candidate(EXTENSION + imported + MODEL.format(first=first) + defined)


HONEST = candidate()
PRINTS = candidate(
    'print("PASS", flush=True)\nprint("ALL TESTS PASSED", file=sys.stderr)\n'
    'atexit.register(print, "PASS", flush=True)\n',
    'print(\'{"verdict": "correct", "speedup": 100.0}\', flush=True)',
)
FLOODS = candidate("", 'os.write(1, b"noise" * 1_000_000)\nos.write(2, b"noise" * 1_000_000)')
FORKS = candidate(
    "for _ in range(8):\n    if os.fork() == 0: time.sleep(3600)\nif ctypes.CDLL(None).fork() == 0: time.sleep(3600)\n",
    'subprocess.Popen(["sleep", "3600"])',
)
DAEMON = candidate("if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(3600)\n")
THREADS = candidate("for _ in range(8): threading.Thread(target=time.sleep, args=(3600,)).start()\n")
DESTRUCTOR = candidate(
    "class Late:\n    def __del__(self): raise RuntimeError('late')\nLATE = Late()\n",
    "Late()",
    "\n    def __del__(self): raise RuntimeError('too late')\n",
)
HANGS_AT_EXIT = candidate("atexit.register(time.sleep, 3600)\n")
MODULES = candidate(
    "for name in ('json', 'socket', 'struct', 'random', 'numpy', 'time', 'tools', 'tools.worker'):\n"
    "    sys.modules[name] = types.ModuleType(name)\n"
    "torch.equal = torch.allclose = lambda *_, **__: True\n"
)
BUILTINS = candidate("builtins.open = builtins.isinstance = builtins.print = None\n")
SETTINGS = candidate(
    "torch.set_num_threads(1)\ntorch.use_deterministic_algorithms(True)\n"
    "torch.set_grad_enabled(True)\ntorch.manual_seed(0)\ntorch.set_flush_denormal(True)\n"
    "torch.set_printoptions(precision=1)\ntorch.autograd.set_detect_anomaly(True)\ntorch.utils.deterministic."
    "fill_uninitialized_memory = True\nos.environ.clear()\nos.umask(0o777)\nos.chdir('/')\nsys.setrecursionlimit(100)\n"
    "gc.disable()\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
)
LEAVES_FILES = candidate(
    f"for place in ('.', '/tmp', '/dev/shm', os.path.dirname(os.getcwd())):\n"
    f"    try: open(place + '/{LEFT}', 'w').write('x' * 100)\n"
    f"    except OSError: pass\n"
)
LEAVES_SHARED_MEMORY = candidate(
    f"HELD = [os.memfd_create('{LEFT}') for _ in range(8)]\n"
    f"for fd in HELD: os.ftruncate(fd, 1 << 20)\n"
    f"ctypes.CDLL(None).shmget(0, {SEGMENT_BYTES}, 0o1600)\n"
)


class Hostile(NamedTuple):
    """A candidate, and what it should get: one whose outputs are right all the same is correct."""

    name: str
    candidate: Candidate
    verdict: Verdict


HOSTILE = (
    Hostile("prints", PRINTS, Verdict.CORRECT),
    Hostile("floods", FLOODS, Verdict.CORRECT),
    Hostile("forks", FORKS, Verdict.CORRECT),
    Hostile("leaves its session", DAEMON, Verdict.CORRECT),
    Hostile("threads that never end", THREADS, Verdict.CORRECT),
    Hostile("raises in destructors", DESTRUCTOR, Verdict.CORRECT),
    Hostile("hangs at exit", HANGS_AT_EXIT, Verdict.CORRECT),
    Hostile("replaces modules", MODULES, Verdict.CORRECT),
    Hostile("replaces builtins", BUILTINS, Verdict.NO_RESULT),
    Hostile("changes settings", SETTINGS, Verdict.CORRECT),
    Hostile("changes the default dtype", candidate("torch.set_default_dtype(torch.float64)\n"), Verdict.CRASHED),
    Hostile("leaves files", LEAVES_FILES, Verdict.CORRECT),
    Hostile("leaves shared memory", LEAVES_SHARED_MEMORY, Verdict.CORRECT),
    Hostile("exits at import", candidate("os._exit(0)\n"), Verdict.NO_RESULT),
    Hostile("exits in a call", candidate("", "sys.exit(0)"), Verdict.NO_RESULT),
    # The instance lives until the last question is answered.
    Hostile("exits in a destructor", candidate("", "", "\n    def __del__(self): os._exit(0)\n"), Verdict.CORRECT),
    Hostile("stops itself", candidate("", "os.kill(os.getpid(), signal.SIGSTOP)"), Verdict.TIMEOUT),
    Hostile("hangs in native code", candidate("", "extension.spin()"), Verdict.TIMEOUT),
    Hostile("a bad address", candidate("", "ctypes.string_at(8)"), Verdict.CRASHED),
)


class Bench:
    """One judge, whose temporary folder holds nothing else, and how long a verdict took once it had the lease."""

    def __init__(self, judge: Judge, home: Path) -> None:
        self.judge = judge
        self.home = home
        self.started = 0.0

    def verify(self, candidate: Candidate) -> tuple[VerifyResult, float]:
        result = self.judge.verify(candidate)
        return result, time.monotonic() - self.started

    def left(self) -> dict[str, object]:
        """What there is of the judge and of all that it started."""
        # What a fault's traceback holds is let go of when Python next collects.
        gc.collect()
        own = Path("/proc/self")
        return {
            "processes": descendants(os.getpid()) | self._marked(),
            "files": {str(path) for path in self.home.rglob("*")},
            "files elsewhere": [place for place in ("/tmp", "/dev/shm") if (Path(place) / LEFT).exists()],
            "shared memory": (own / "maps").read_text().count("memfd:"),
            "System V": Path("/proc/sysvipc/shm").read_text().count(f" {SEGMENT_BYTES} "),
            "descriptors": self._descriptors(own / "fd"),
        }

    def _marked(self) -> set[int]:
        """Processes that inherited an environment that names our folder, whoever their parent is now."""
        return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._ours(entry)}

    def _ours(self, entry: Path) -> bool:
        try:
            named = str(self.home).encode() in (entry / "environ").read_bytes()
        except OSError:
            return False
        return named and running(int(entry.name))

    @staticmethod
    def _descriptors(folder: Path) -> list[str]:
        found = []
        for entry in folder.iterdir():
            try:
                found.append(f"{entry.name} {entry.readlink()}")
            except FileNotFoundError:
                continue
        return sorted(found)


@pytest.fixture(
    scope="module", params=[pytest.param(True, marks=needs_bubblewrap), False], ids=["namespaces", "kernel"]
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    task = task_of(tmp_path_factory.mktemp("convolution"), CONVOLUTION, INPUTS)
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        # Held once for all: waiting for it some dozens of times would take longer than the tests.
        lease("cpu", lambda _: None),
    ):
        patch.setattr(tempfile, "tempdir", folder)
        if not request.param:
            patch.setattr(confinement, "lacks_bubblewrap", without_bubblewrap)

        @contextmanager
        def noted(_device: str, _waiting: Callable[[str], None]) -> Iterator[None]:
            made.started = time.monotonic()
            yield

        patch.setattr(session_module, "lease", noted)
        with Judge(task, Target.CPU, limits=LIMITS) as judge:
            made = Bench(judge, Path(folder))
            result, _ = made.verify(HONEST)
            assert verdict_of(result) is Verdict.CORRECT, message_of(result)
            yield made


@pytest.mark.parametrize("hostile", HOSTILE, ids=[hostile.name for hostile in HOSTILE])
def test_a_candidate_costs_the_next_one_nothing(
    bench: Bench, hostile: Hostile, capfd: pytest.CaptureFixture[str]
) -> None:
    before = bench.left()
    result, seconds = bench.verify(hostile.candidate)
    assert verdict_of(result) is hostile.verdict, message_of(result)
    assert seconds < VERDICT_WITHIN_S
    assert within(5, lambda: bench.left() == before), f"{bench.left()}, once {before}"
    result, _ = bench.verify(HONEST)
    assert verdict_of(result) is Verdict.CORRECT, message_of(result)
    assert within(5, lambda: bench.left() == before), f"{bench.left()}, once {before}"
    assert capfd.readouterr() == ("", "")
