"""Finds the guides: Markdown files beside this one, named as they are asked for, their titles in the first line."""

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def guide_titles() -> dict[str, str]:
    """All guides by name, with their titles."""
    return {path.stem: read_guide(path.stem).partition("\n")[0].lstrip("# ") for path in sorted(_FOLDER.glob("*.md"))}


def read_guide(name: str) -> str:
    """The text of a guide; raises OSError where there is none of that name."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()
