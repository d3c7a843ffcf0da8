"""What ptxas reports for one kernel when it is built."""

from tasks.record import Record


class KernelResources(Record):
    """What ptxas reports for one kernel."""

    name: str
    """Demangled."""
    registers: int
    shared_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    stack_bytes: int = 0
