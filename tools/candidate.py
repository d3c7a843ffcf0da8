"""A candidate: the text of a Python module that defines `ModelNew`."""

import ast
import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Candidate:
    """The text of a candidate; equal texts are the same candidate."""

    text: str

    @cached_property
    def id(self) -> str:
        """The SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    def first_line_of(self, source: str) -> int | None:
        """The line of this text on which an inlined source string starts, counted from 1.

        None where the string was put together at run time or its lines do not map one to one onto the text's.
        """
        at = self.text.find(source) if source.strip() else -1
        if at >= 0:
            return self.text.count("\n", 0, at) + 1
        for literal in self._string_literals:
            if literal.value == source and isinstance(literal.value, str):
                return self._first_line_of_literal(literal)
        return None

    @property
    def docstring(self) -> str:
        """The module's docstring; empty where there is none, or the text is no Python."""
        tree = self._tree
        return "" if tree is None else ast.get_docstring(tree) or ""

    @property
    def _tree(self) -> ast.Module | None:
        try:
            return ast.parse(self.text)
        # A worker could compile it, but here the stack is deeper, and a syntax tree needs more of it.
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @cached_property
    def _string_literals(self) -> tuple[ast.Constant, ...]:
        tree = self._tree
        nodes = () if tree is None else ast.walk(tree)
        return tuple(n for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))

    def _first_line_of_literal(self, literal: ast.Constant) -> int | None:
        """A literal with escapes maps one to one only if its line count equals the count of lines it spans."""
        spanned = (literal.end_lineno or literal.lineno) - literal.lineno
        newlines = str(literal.value).count("\n")
        if newlines == spanned:
            return literal.lineno
        segment = ast.get_source_segment(self.text, literal) or ""
        opened_by_continuation = segment.lstrip("rRuUbB").startswith(('"""\\\n', "'''\\\n"))
        return literal.lineno + 1 if opened_by_continuation and newlines == spanned - 1 else None
