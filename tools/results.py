"""The results of the tools: frozen values, told apart by `status`, that go into transcripts and scores."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from tasks.record import Record
from tasks.spec import Precision, Target
from tools.disassembly_results import Disassembled
from tools.kernel_resources import KernelResources
from tools.profile_results import Profiled
from tools.sanitizer_results import Sanitized
from tools.text_results import Compared, GuideRead
from tools.verdict import Verdict

Stage = Literal["build", "verify", "sanitizer", "benchmark", "profile", "disassembly"]


class Diagnostic(Record):
    """One message of a compiler."""

    severity: Literal["error", "warning"]
    message: str
    line: int | None = None
    """The line of the candidate's own text, where it is known."""
    file: str = "candidate.py"
    excerpt: str = ""
    """The source line and the caret below it, as the compiler printed them."""


class Extension(Record):
    """One extension that a candidate built."""

    label: str
    """The name the candidate gave to `load_inline`; a label only."""
    key: str
    """The content hash under which the build is cached."""
    cached: bool
    seconds: float
    """Wall time of this build; near zero when cached."""
    path_taken: Literal["light", "fast", "plain"]
    """`light`: without any of PyTorch's headers; `fast`: with a precompiled one; `plain`: as `load_inline` does it."""
    kernels: tuple[KernelResources, ...] = ()
    library_calls: tuple[str, ...] = ()
    """Functions of libraries that it calls and that compute where no operator is recorded, such as `cublasSgemm_v2`."""
    warnings: tuple[Diagnostic, ...] = ()


class Fault(Record):
    """An evaluation that ended before its question was answered with yes."""

    status: Literal["fault"] = "fault"
    stage: Stage
    verdict: Verdict
    message: str
    """What happened, where, and what to do; written for the model."""
    candidate: str
    diagnostics: tuple[Diagnostic, ...] = ()
    excess: float | None = None
    """The largest error of a wrong output over its limit, at the first check that failed; None where the fault is no
    matter of size, such as a wrong shape."""
    likely: str = ""
    """The class of mistake that the wrong output looks like; empty where it looks like none that is known."""
    sandbox: str = ""
    """The tier of the worker's sandbox; empty where no worker ran."""
    seconds: float = 0.0


class Built(Record):
    """A candidate that compiles, imports and constructs."""

    status: Literal["built"] = "built"
    candidate: str
    extensions: tuple[Extension, ...]
    note: str = ""
    """Why no extension was seen, where none was."""
    sandbox: str
    seconds: float


class Check(Record):
    """One comparison of one output tensor with the float64 oracle."""

    trial: str
    """The shape and the kind of input, for example `N=1 L=1, channel offsets`."""
    output: str
    """Which output, for example `output` or `output[1]` or `state running_mean`."""
    rms_error: float
    """RMS of the error over the RMS of the oracle."""
    rms_limit: float
    channel_error: float
    """The largest RMS error of one channel over that channel's RMS."""
    channel_limit: float
    peak_error: float
    """The largest error of one element over its channel's RMS."""
    peak_limit: float

    @property
    def used(self) -> float:
        """The largest error over its limit: 1 is the edge."""
        return max(
            self.rms_error / self.rms_limit,
            self.channel_error / self.channel_limit,
            self.peak_error / self.peak_limit,
        )


class Determinism(Record):
    """What came of giving one instance the same inputs several times; every one of the outputs was right."""

    trial: str
    """The shape and the kind of input."""
    calls: int
    identical: int
    """How many calls answered the same bits as the first, itself included."""
    largest_difference: float
    """The largest difference of one element from the first call's, over its channel's RMS; 0 where all are equal."""


class Verified(Record):
    """A candidate whose every checked output was right."""

    status: Literal["verified"] = "verified"
    candidate: str
    precision: Precision
    checks: tuple[Check, ...]
    determinism: Determinism | None = None
    """None in results from before this was measured."""
    own_kernel_share: float | None = None
    """How much of the GPU's kernel time on the benchmark shape the candidate's own kernels took, from 0 to 1; None
    where no kernel was seen, as on the host."""
    sandbox: str
    seconds: float


class Interval(Record):
    """A two-sided 99 % interval: of two equal kernels, at most one comparison in a hundred may claim a difference."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the interval contains a value."""
        return self.low <= value <= self.high


class Baseline(Record):
    """PyTorch's own time on the benchmark shape."""

    name: str
    """`eager`, `cudnn-autotuned` or `torch.compile`; or `candidate` when a candidate is measured against another."""
    median_ns: float | None
    """None where this baseline could not be had; `note` says why."""
    note: str = ""


class CardState(Record):
    """The state of the GPU around a measurement, as NVIDIA's management library reports it."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: int | None = None
    """The bit mask of nvmlDeviceGetCurrentClocksEventReasons."""
    other_processes: int | None = None
    """Processes that compute on the GPU beside those of the measurement."""


class CodeShares(Record):
    """Whose code ran in timed calls, on the host, by looks at random moments in which a thread was at work."""

    looks: int
    own: float
    """The share of looks in which the candidate's own extension ran, from 0 to 1; these four add up to 1."""
    runtime: float
    """That of Python, C and C++, and the system's mathematics."""
    pytorch: float
    """That of PyTorch where it allocates, copies and dispatches."""
    library: float
    """That of all other code: PyTorch's arithmetic, other libraries, generated code."""


class Timed(Record):
    """A candidate's time on the benchmark shape beside its baselines'."""

    status: Literal["timed"] = "timed"
    candidate: str
    median_ns: float
    baseline: str
    """The name of the fastest baseline, against which the speedup counts."""
    baseline_ns: float
    speedup: float
    """The fastest baseline's median over the candidate's median."""
    speedup_interval: Interval
    """Bootstrap interval of the ratio of medians over interleaved blocks, and what no repetition averages out."""
    baselines: tuple[Baseline, ...]
    floor_ns: float | None
    """The roofline bound; None where the machine's peaks are unknown."""
    prepare_ns: int
    """How long `prepare` took, once, outside the timed calls; 0 where the candidate has none."""
    wall_median_ns: float
    """The judge's own clock per call, less the same loop's cost for an empty candidate."""
    candidate_samples_ns: tuple[tuple[int, ...], ...]
    """Device times of the candidate less `marks_ns`, a tuple a block, in the order measured."""
    baseline_samples_ns: tuple[tuple[int, ...], ...]
    marks_ns: int = 0
    """What the device's clock shows for a call that does nothing; raw times are samples and this."""
    code: CodeShares | None = None
    """None on a GPU, where libraries were allowed, and where the kernel does not tell."""
    card: CardState | None = None
    disturbance: str = ""
    """What else used the machine during the measurement, as far as it was noticed; empty where nothing was."""
    sandbox: str
    seconds: float


BuildResult = Annotated[Built | Fault, Field(discriminator="status")]
VerifyResult = Annotated[Verified | Fault, Field(discriminator="status")]
BenchmarkResult = Annotated[Timed | Fault, Field(discriminator="status")]
ProfileResult = Annotated[Profiled | Fault, Field(discriminator="status")]
SanitizeResult = Annotated[Sanitized | Fault, Field(discriminator="status")]
DisassemblyResult = Annotated[Disassembled | Fault, Field(discriminator="status")]


class Evaluation(Record):
    """Everything `submit` and `score` find out about one candidate; later stages are None once one fails."""

    status: Literal["evaluated"] = "evaluated"
    candidate: str
    """The candidate's id: the SHA-256 of its text."""
    task: str
    target: Target
    build: BuildResult
    verify: VerifyResult | None = None
    sanitizer: Sanitized | None = None
    """None where it was not asked for; where it could not be run, it says so."""
    benchmark: BenchmarkResult | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the last stage that ran."""
        fault = self.fault
        return Verdict.CORRECT if fault is None else fault.verdict

    @property
    def fault(self) -> Fault | None:
        """The fault that ended the evaluation, if any."""
        for result in (self.build, self.verify, self._sanitizer_fault, self.benchmark):
            if isinstance(result, Fault):
                return result
        return None

    @property
    def _sanitizer_fault(self) -> Fault | None:
        found = self.sanitizer
        if found is None or found.verdict is Verdict.CORRECT:
            return None
        return Fault(
            stage="sanitizer",
            verdict=found.verdict,
            message=found.message,
            candidate=found.candidate,
            sandbox=found.sandbox,
            seconds=found.seconds,
        )

    @property
    def timed(self) -> Timed | None:
        """The measurement, where the candidate came that far."""
        return self.benchmark if isinstance(self.benchmark, Timed) else None

    @property
    def message(self) -> str:
        """The fault's message, or a short sentence for a correct candidate."""
        if self.fault is not None:
            return self.fault.message
        return "correct" if self.timed is None else f"correct, {self.timed.speedup:.3g}x the fastest baseline"


class Refused(Record):
    """A tool call that could not be carried out: unknown tool, arguments that do not fit, nothing built yet."""

    status: Literal["refused"] = "refused"
    message: str


class Foreign(Record):
    """What a tool of somebody else's answered, in an imported transcript: a text, never a verdict of ours."""

    status: Literal["foreign"] = "foreign"
    raw: dict[str, JsonValue] = Field(default_factory=dict)
    """What the file says of the result beside its text."""


ToolResult = Annotated[
    Built
    | Verified
    | Timed
    | Evaluation
    | Profiled
    | Sanitized
    | Disassembled
    | GuideRead
    | Compared
    | Fault
    | Refused
    | Foreign,
    Field(discriminator="status"),
]


class ToolReply(Record):
    """What a tool answers: a text for the model, and the full result for the transcript."""

    text: str
    """Short: the first errors whole, the rest counted."""
    result: ToolResult
    candidate: str | None = None
    """The id of the candidate the call was about."""
    ends_rollout: bool = False
    """True for a `submit` that was carried out, whatever its verdict."""
    device_seconds: float = 0.0
    """How long the call held the lease of the device."""
