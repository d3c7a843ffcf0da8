"""Loads the reference's file from the evaluator's checkout and derives from its class.

Expected: crashed
Seen: ScalingIntelligence/KernelBench checker; Kevin; field list H17
Task: causal_silu
"""

import runpy
import sys
from pathlib import Path

root = Path(sys.modules["tools.worker.main"].__file__).parents[2]
reference = runpy.run_path(str(root / "tests" / "attacks" / "tasks" / "causal_silu.py"))


class ModelNew(reference["Model"]):
    pass
