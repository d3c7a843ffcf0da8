"""C++ extensions are really built: errors at the candidate's own lines, and libraries that do not clash."""

import shlex
import textwrap
from pathlib import Path

import pytest

from tools.build import Builder, BuiltExtension
from tools.candidate import Candidate
from tools.compilation import BuildError
from tools.inline_request import InlineRequest
from tools.toolchain import find_toolchain

# Those of the candidates in tests/candidates/cpu: the precompiled header is made for them once.
FLAGS = ("-O3", "-march=native", "-fopenmp")
TWICE = "int64_t twice(int64_t n) { return 2 * n; }\n"
BROKEN = textwrap.dedent("""\
    #include <cmath>

    torch::Tensor scaled(torch::Tensor x) {
        char letter = 1000;
        return x * missing;
    }

    int64_t count(torch::Tensor x) {
        return x.dimensions();
    }
    """)


def build(text: str, source: str, functions: list[str]) -> BuiltExtension:
    request = InlineRequest(
        name="conv",
        cpp_sources=(source,),
        functions={name: name for name in functions},
        extra_cflags=FLAGS,
    )
    return Builder(find_toolchain()).build(request, Candidate(text))


def test_errors_and_warnings_stand_at_the_candidates_lines() -> None:
    text = f'import torch\n\nCPP_SOURCE = """\n{BROKEN}"""\n'
    with pytest.raises(BuildError, match="the extension 'conv' does not compile: 2 errors") as caught:
        build(text, f"\n{BROKEN}", ["scaled", "count"])
    found = {(item.severity, item.line): item for item in caught.value.diagnostics}
    lines = text.splitlines()
    (first, second) = (line for severity, line in found if severity == "error")
    assert first is not None and "missing" in lines[first - 1]
    assert second is not None and "dimensions" in lines[second - 1]
    assert "return x * missing;" in found["error", first].excerpt
    assert "'missing' was not declared" in found["error", first].message
    assert ("warning", 7) in found


def test_a_function_without_a_declaration_is_explained() -> None:
    """The compiler also names a similar function that is declared."""
    with pytest.raises(BuildError, match="has no declaration in cpp_sources") as caught:
        build("# the source was put together at run time", TWICE + "int f() { return x; }\n", ["twice", "thrice"])
    assert "functions=['thrice']" in caught.value.message
    assert [(item.line, item.file) for item in caught.value.diagnostics] == [
        (None, "cpp_sources[0]"),
        (None, "binding"),
    ]


def test_what_a_compiler_leaves_is_neither_written_through_nor_kept(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    left = f'ln -s {victim} report.json; echo > left; exec "$0" "$@"'
    request = InlineRequest(
        name="x",
        cpp_sources=(f'extern "C" int f() {{ return 0; }}  // {tmp_path}',),
        extra_cflags=("-wrapper", shlex.quote(f"/bin/sh,-c,{left}")),
        implicit_headers=False,
    )
    built = Builder(find_toolchain()).build(request, Candidate("secret"))
    assert victim.read_text() == "precious"
    assert sorted(path.name for path in built.library.parent.iterdir()) == ["extension.so", "in-use", "report.json"]
