"""How long a build takes: PyTorch's own `load_inline` beside ours, cold and cached, for a corpus of candidates.

    python benchmarks/build.py [NAME ...] --out FILE.jsonl          NAME: of tests/candidates/builds; without, all
    python benchmarks/build.py --plot FILE.jsonl FILE.png

Builds of the two arms take turns in one run, each alone on the machine. Plain is PyTorch's `load_inline` in a fresh
process with a fresh TORCH_EXTENSIONS_DIR; what counts is the time within `load_inline`. Cold and cached are whole
answers of `compile` (the worker, the build, the import, the construction of the model), first with nothing in the cache
but what is made once for a machine and the host compiler's flags, then again. What that takes is measured first.

Candidates that FILE has already are skipped, so a run that was cut short is continued by the same command; with --cache
it also keeps what is made once. An architecture is named to PyTorch, so that it does not build for more than one.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from build_records import (
    Candidates,
    DeviceCode,
    Once,
    OwnBuild,
    PlainBuild,
    Row,
    Setting,
    append,
    chosen_candidates,
    is_done,
    read_lines,
    read_rows,
    table,
)
from device_code import differences, kernels
from pydantic import ValidationError

from tasks.errors import KernelwrightError, UnavailableError
from tasks.loader import find_task
from tasks.spec import Precision, Target
from tools import process
from tools.candidate import Candidate
from tools.folders import remove_folder
from tools.judge import Judge
from tools.machine import machine
from tools.results import Fault
from tools.toolchain import Toolchain, find_toolchain

HERE = Path(__file__).resolve().parent
PLAIN_LIMIT_S = 900.0
CACHE_NAME = "kernelwright-build-benchmark"
MADE_ONCE = ("light", "precompiled")
"""The folders of the cache whose content serves every build of a machine; all else is emptied before a cold build."""
_MODEL = """
class ModelNew(torch.nn.Module):
    def __init__(self, *arguments):
        super().__init__()
"""
_NOTHING = f"""
import torch
from torch.utils.cpp_extension import load_inline

CUDA = '''
#include <torch/extension.h>
__global__ void nothing_NUMBER() {{}}
void nothing() {{ nothing_NUMBER<<<1, 1>>>(); }}
'''
extension = load_inline("nothing", "void nothing();", CUDA, functions=["nothing"], FLAGS)

{_MODEL}"""
_ONLY_BY_PYTORCH = f"""
import torch
from torch.utils.cpp_extension import load_inline

CPP = "#include <torch/csrc/autograd/function.h>\\nvoid nothing() {{}}"
extension = load_inline("nothing", CPP, functions=["nothing"], with_cuda=True, FLAGS)

{_MODEL}"""
_NO_EXTENSION = "class ModelNew:\n    pass\n"


class Benchmark:
    """Both arms on this machine; a judge for each task, whose fork server is warm before anything is timed."""

    def __init__(self, stack: ExitStack, cache: Path, toolchain: Toolchain) -> None:
        self._stack = stack
        self._cache = cache
        self._toolchain = toolchain
        self._judges: dict[str, Judge] = {}

    def _judge(self, task: str) -> Judge:
        if task not in self._judges:
            judge = self._judges[task] = self._stack.enter_context(Judge(find_task(task), Target.CUDA))
            # Refused when it is constructed: by then the fork server and the reference are there.
            judge.compile(Candidate(_NO_EXTENSION))
        return self._judges[task]

    def once(self, flags: str) -> Once:
        """Make what is made once for a set of flags, for builds on the fast paths and for those that fall back."""
        texts = (_NOTHING.replace("NUMBER", "1"), _NOTHING.replace("NUMBER", "2"), _ONLY_BY_PYTORCH)
        seconds = []
        for text in texts:
            result = self._judge("causal_conv").compile(Candidate(text.replace("FLAGS", flags)))
            if isinstance(result, Fault):
                raise SystemExit(f"an empty extension with {flags or 'no flags'} is not built: {result.message}")
            seconds.append(result.seconds)
        return Once(flags=flags, first_s=seconds[0], again_s=seconds[1], fallback_s=seconds[2])

    def plain(self, text: str, task: str, work: Path) -> PlainBuild:
        """Build as PyTorch does, in a process of its own; its libraries are below `work`."""
        (work / "candidate.py").write_text(text, encoding="utf-8")
        chain = self._toolchain
        environment = process.scrubbed_environment(
            CUDA_HOME=str(chain.cuda_home),
            CXX=chain.host_compiler,
            TORCH_CUDA_ARCH_LIST=chain.architecture,
            TORCH_EXTENSIONS_DIR=str(work / "extensions"),
            PYTHONPATH=os.pathsep.join(filter(None, sys.path)),
            TMPDIR=str(work),
            **{name: os.environ[name] for name in ("MAX_JOBS", "HOME") if name in os.environ},
        )
        arguments = [str(HERE / "plain_build.py"), "candidate.py", task, "result.json"]
        done = process.run([sys.executable, *arguments], cwd=work, timeout_s=PLAIN_LIMIT_S, env=environment)
        try:
            return PlainBuild.model_validate_json((work / "result.json").read_bytes())
        except (OSError, ValidationError):
            why = f"stopped after {PLAIN_LIMIT_S:.0f} s" if done.timed_out else f"ended with {done.returncode}"
            return PlainBuild(seconds=0.0, error=f"{why}: {done.output[-4000:]}")

    def own(self, text: str, task: str, *, cold: bool) -> OwnBuild:
        """Let the judge compile a candidate."""
        judge = self._judge(task)
        if cold:
            self._forget_builds()
        result = judge.compile(Candidate(text))
        if isinstance(result, Fault) or not result.extensions:
            return OwnBuild(whole_s=result.seconds, error=result.message if isinstance(result, Fault) else result.note)
        return OwnBuild(
            whole_s=result.seconds,
            build_s=sum(extension.seconds for extension in result.extensions),
            paths=tuple(extension.path_taken for extension in result.extensions),
            cached=all(extension.cached for extension in result.extensions),
            keys=tuple(extension.key for extension in result.extensions),
        )

    def libraries(self, own: OwnBuild) -> list[Path]:
        """The libraries of a build of ours, in the cache."""
        return [library for key in own.keys for library in sorted(self._cache.glob(f"*/{key}/*.so"))]

    def _forget_builds(self) -> None:
        # The folders themselves stay: the fork server was told of them when it started.
        for folder in self._cache.iterdir():
            if folder.is_dir() and folder.name not in MADE_ONCE:
                for path in folder.iterdir():
                    remove_folder(path) if path.is_dir() else path.unlink()


def measure(bench: Benchmark, name: str, text: str, task: str, *, with_plain: bool) -> Row:
    """One candidate, all arms."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-plain-") as folder:
        plain = bench.plain(text, task, Path(folder)) if with_plain else None
        cold = bench.own(text, task, cold=True)
        cached = bench.own(text, task, cold=False)
        code = _compared(bench, plain, cold)
    return Row(
        name=name,
        task=task,
        candidate=Candidate(text).id,
        cores=len(os.sched_getaffinity(0)),
        plain=plain,
        cold=cold,
        cached=cached,
        code=code,
    )


def _compared(bench: Benchmark, plain: PlainBuild | None, cold: OwnBuild) -> DeviceCode | None:
    if plain is None or not plain.libraries or not cold.keys:
        return None
    try:
        ours, theirs = (
            {function: code for library in libraries for function, code in kernels(library).items()}
            for libraries in (bench.libraries(cold), [Path(library) for library in plain.libraries])
        )
    except UnavailableError as error:
        return DeviceCode(error=str(error))
    return DeviceCode(functions=len(theirs), differing=differences(ours, theirs))


def setting(toolchain: Toolchain) -> Setting:
    """This machine, now."""
    return Setting(
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=machine(Target.CPU, Precision.FP32).device,
        cores=len(os.sched_getaffinity(0)),
        torch=toolchain.torch_version,
        cuda=toolchain.cuda_version,
        host_compiler=toolchain.host_version,
        architecture=toolchain.architecture,
    )


@contextmanager
def _cache(folder: Path | None) -> Iterator[Path]:
    """A folder of our own, because it is emptied, in the one given or in a temporary one; our builds go there."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-build-") as temporary:
        cache = (folder or Path(temporary)).resolve() / CACHE_NAME
        cache.mkdir(parents=True, exist_ok=True)
        os.environ["KERNELWRIGHT_CACHE"] = str(cache)
        yield cache


def run(candidates: Candidates, out: Path, cache: Path | None, plain_for: set[str], budget_s: float) -> None:
    """Measure what `out` lacks, for as long as the budget lasts; a row is written as soon as it is known."""
    started = time.monotonic()
    rows = read_rows(out)
    wanted = {n: c for n, c in candidates.items() if not is_done(rows, n, c, with_plain=n in plain_for)}
    kept = cache is not None and any((cache / CACHE_NAME / name).is_dir() for name in MADE_ONCE)
    known = {line.flags for line in read_lines(out) if kept and isinstance(line, Once)}
    longest = 0.0
    with _cache(cache) as folder, ExitStack() as stack:
        toolchain = find_toolchain()
        append(out, setting(toolchain))
        bench = Benchmark(stack, folder, toolchain)
        for flags in sorted({candidate.flags for candidate in wanted.values()} - known):
            once = bench.once(flags)
            append(out, once)
            print(once.summary(), flush=True)
        for position, (name, candidate) in enumerate(wanted.items()):
            if time.monotonic() - started + longest > budget_s:
                print(f"{len(wanted) - position} candidates are left: the budget of {budget_s:.0f} s is used up")
                return
            begun = time.monotonic()
            row = measure(bench, name, candidate.text, candidate.task, with_plain=name in plain_for)
            append(out, row)
            print(row.summary(), flush=True)
            longest = max(longest, time.monotonic() - begun)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which candidates; without, all of them")
    parser.add_argument("--out", type=Path, help="where results go, a JSON line each")
    parser.add_argument("--cache", type=Path, help="keep our cache here between runs")
    parser.add_argument("--plain-for", nargs="*", metavar="NAME", help="PyTorch's own arm for these only, or for none")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="start no candidate that may end later")
    parser.add_argument("--jobs", type=int, help="build on so many CPU cores only")
    parser.add_argument("--plot", nargs=2, type=Path, metavar=("FILE.jsonl", "FILE.png"))
    options = parser.parse_args()
    if options.plot:
        from build_plot import plot

        plot(read_rows(options.plot[0]), options.plot[1])
        return
    if options.out is None:
        parser.error("--out is missing: name a file for the results")
    if options.jobs:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.jobs])
        os.environ["MAX_JOBS"] = str(options.jobs)
    # As after Ctrl-C: compilers have sessions of their own, and would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        candidates = chosen_candidates(options.names)
        plain_for = set(candidates) if options.plain_for is None else set(options.plain_for)
        run(candidates, options.out, options.cache, plain_for, options.budget_s)
    except KernelwrightError as error:
        sys.exit(str(error))
    print(table(read_rows(options.out)))


if __name__ == "__main__":
    main()
