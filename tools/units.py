"""Times and quantities in the units that people read them in."""


def format_ns(nanoseconds: float) -> str:
    """A time in the unit that people read it in."""
    for limit, divisor, unit in ((1e3, 1.0, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / divisor:.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


def format_quantity(value: float) -> str:
    """A number with a decimal prefix, for example `3.35 T`; a unit may follow it."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g} "
