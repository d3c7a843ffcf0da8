"""How a timed call's input is made from its base, in the worker and again, bit for bit, in the judge."""

import torch


def refresh_into(buffer: torch.Tensor, base: torch.Tensor, roll: int, scale: torch.Tensor, shift: torch.Tensor) -> None:
    """Write `roll(base) * scale + shift` into `buffer`, which has the base's shape.

    The roll goes along the last dimension. Multiplication and addition are separate operators, so that each rounds once
    on every device. `scale` and `shift` broadcast against the base. Integer bases are only rolled.
    """
    length = base.shape[-1] if base.ndim else 0
    if length:
        at = roll % length
        buffer[..., at:].copy_(base[..., : length - at])
        buffer[..., :at].copy_(base[..., length - at :])
    else:
        buffer.copy_(base)
    if base.is_floating_point():
        buffer.mul_(scale)
        buffer.add_(shift)
