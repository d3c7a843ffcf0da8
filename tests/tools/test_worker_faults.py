"""Every way in which a candidate can end its worker has its verdict, and the next candidate never notices."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from worker_bench import GOOD, Bench, started_bench

from tools.verdict import Verdict

SOCKETS = """
import os, stat
def sockets():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                yield fd
        except OSError:
            pass
"""


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = started_bench()
    yield bench
    bench.server.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\ndef broken(:\n", "SyntaxError: .*line 2"),
        ("x = 1\n  y = 2\n", "IndentationError"),
        ("x = '\0'\n", "null byte"),
        ("x = '\ud800'\n", "surrogate"),
        ("-" * 200_000 + "1", "SyntaxError"),
    ],
    ids=["syntax", "indentation", "null byte", "lone surrogate", "nested too deeply"],
)
def test_a_text_that_is_no_python_does_not_build(bench: Bench, text: str, message: str) -> None:
    fault = bench.fault(text)
    assert fault.verdict is Verdict.BUILD_FAILED
    assert re.search(message, fault.message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\nraise ValueError('no')\n", "ValueError: no (candidate.py: line 2, in <module>)"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("class Own(BaseException): pass\nraise Own('out')", "Own: out"),
        ("def f(): f()\nf()", "RecursionError"),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "ended by SIGTERM"),
        (f"{GOOD}    def __init__(self):\n        raise KeyError('weights')\n", "KeyError: 'weights'"),
        (f"{GOOD}    def __init__(self, channels):\n        super().__init__()\n", "channels"),
    ],
    ids=["exception", "import", "BaseException", "recursion", "abort", "SIGTERM", "constructor", "arguments"],
)
def test_crashes(bench: Bench, text: str, message: str) -> None:
    fault = bench.fault(text)
    assert fault.verdict is Verdict.CRASHED
    assert message in fault.message


def test_a_segmentation_fault_names_the_candidates_line(bench: Bench) -> None:
    fault = bench.fault("import ctypes\n\ndef read():\n    ctypes.string_at(0)\n\nread()\n")
    assert fault.verdict is Verdict.CRASHED
    assert "ended by SIGSEGV" in fault.message
    assert 'File "candidate.py", line 4 in read' in fault.message
    assert "/tools/worker/" not in fault.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os; os._exit(0)", "exit code 0"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import sys; sys.exit('done')", "SystemExit: done"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        (f"{SOCKETS}\nfor fd in sockets(): os.close(fd)\n", "without an answer"),
        (f"{SOCKETS}\nfor fd in sockets(): os.write(fd, b'garbage\\n')\n", "disturbed during load"),
        (f"{SOCKETS}\nfor fd in sockets(): os.write(fd, b'[' * 100_000 + b'\\n')\n", "disturbed during load"),
        (f'{SOCKETS}\nfor fd in sockets(): os.write(fd, b\'{{"verdict": "correct"}}\\n\')\n', "broke the protocol"),
    ],
    ids=["exit 0", "exit 3", "sys.exit", "interrupt", "socket closed", "garbage", "nesting", "a verdict of its own"],
)
def test_processes_that_end_without_an_answer(bench: Bench, text: str, message: str) -> None:
    fault = bench.fault(text)
    assert fault.verdict is Verdict.NO_RESULT
    assert message in fault.message


@pytest.mark.parametrize(
    "text",
    [
        "import torch; torch.empty(1 << 60, dtype=torch.uint8)",
        "bytearray(1 << 60)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    ],
    ids=["torch", "Python", "killed from outside"],
)
def test_memory_that_runs_out(bench: Bench, text: str) -> None:
    assert bench.fault(text).verdict is Verdict.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "text",
    [
        "while True: pass",
        "import ctypes; ctypes.CDLL(None).pause()",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(1000)",
    ],
    ids=["loop", "in C", "stopped", "deaf"],
)
def test_silence_is_a_timeout(bench: Bench, text: str) -> None:
    """R25."""
    bench.fault(GOOD.replace("pass", "raise ValueError"))
    fault = replace(bench, timeout_s=1.0).fault(text)
    assert fault.verdict is Verdict.TIMEOUT
    assert "no answer within 1 s during load" in fault.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch", "defines no class ModelNew"),
        ("ModelNew = 3", "defines no class ModelNew"),
        ("def ModelNew(): pass", "defines no class ModelNew"),
        ("class ModelNew: pass", "derives from torch.nn.Module"),
        (f"{GOOD}    def __new__(cls): return 3\n", "did not give a torch.nn.Module"),
    ],
)
def test_a_module_without_its_model(bench: Bench, text: str, message: str) -> None:
    fault = bench.fault(text)
    assert fault.verdict is Verdict.CONTRACT_ERROR
    assert message in fault.message
