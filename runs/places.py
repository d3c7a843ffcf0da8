"""Where runs are kept."""

from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
"""The runs that ship with the project."""
LOCAL = Path(__file__).parent / "local"
"""Where new runs land; ignored by git."""
