"""The features by which candidates of a population are told apart."""

from pathlib import Path
from typing import Any

import pytest

from agent.simulated.variant import Variant, text_of
from agent.strategies.approach import Approach, approach_of

PLAIN = Approach(
    tensor_cores=False,
    async_copies=False,
    shared_memory=False,
    threads=False,
    unrolled=False,
    prepares=False,
    vector=1,
    kernels=0,
    tile=1,
)
CANDIDATES = Path(__file__).resolve().parents[1] / "candidates"


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("wmma::mma_sync(d, a, b, c);", {"tensor_cores": True}),
        ("mma.sync.aligned.m16n8k8 and cp.async.cg", {"tensor_cores": True, "async_copies": True}),
        ("extern __shared__ float tile[];", {"shared_memory": True}),
        ("#pragma omp parallel for simd", {"threads": True, "vector": 0}),
        ("  #pragma omp parallel for collapse(2)", {"threads": True}),
        ("#pragma unroll 4", {"unrolled": True}),
        ("#pragma GCC unroll 4", {"unrolled": True}),
        ("    def prepare(self):", {"prepares": True}),
        ("float4 v; float2 w;", {"vector": 4}),
        ("__m256 v; float4 w;", {"vector": 8}),
        ("__half2 h;", {"vector": 2}),
        ("__global__ void a(); __global__ void b();", {"kernels": 2}),
        ("__global__ " * 9, {"kernels": 3}),
        # By hand: 16 x 4 is 64, which takes seven bits.
        ("constexpr int TILE = 16;\n#define ROWS 4", {"tile": 7}),
        ("// wmma, __shared__\n/* cp.async\n float4 */\n  # __global__ in Python\n", {}),
    ],
)
def test_features(text: str, features: dict[str, Any]) -> None:
    assert approach_of(text) == PLAIN._replace(**features)


def test_distance_counts_features() -> None:
    assert PLAIN.distance(PLAIN) == 0
    assert PLAIN.distance(approach_of("#pragma omp parallel for\nextern __shared__ float x[];")) == 2


def test_real_candidates_differ_as_their_authors_say() -> None:
    fast, naive = (
        approach_of((CANDIDATES / "cuda" / name).read_text()) for name in ("fast_causal.py", "causal_naive.py")
    )
    assert fast.tensor_cores and fast.shared_memory and not naive.tensor_cores
    assert approach_of((CANDIDATES / "cpu" / "causal_naive.py").read_text()).threads


def test_the_simulated_family_is_told_apart_by_tile_threads_and_packing() -> None:
    base = approach_of(text_of(Variant()))
    assert base.distance(approach_of(text_of(Variant(threads=True)))) == 1
    assert base.distance(approach_of(text_of(Variant(packed=True)))) == 1
    assert base.distance(approach_of(text_of(Variant(times=16)))) == 1


@pytest.mark.parametrize(
    "text",
    ["/*" * 200_000, "\n" * 200_000, "const " * 100_000, "#pragma omp " + "a " * 100_000, f"#define SIZE {'9' * 5000}"],
    ids=["open comments", "empty lines", "constants", "pragma", "digits"],
)
def test_no_text_holds_a_run_up(text: str) -> None:
    assert approach_of(text) == approach_of("")
