"""Which target this machine evaluates on where the caller names none."""

from tasks.spec import Target
from tools.gpus import visible_gpus


def default_target() -> Target:
    """`cuda` where PyTorch can use a GPU, else `cpu`."""
    if not visible_gpus():
        return Target.CPU
    # Asked only by commands that evaluate: importing PyTorch takes seconds.
    import torch

    return Target.CUDA if torch.cuda.is_available() else Target.CPU
