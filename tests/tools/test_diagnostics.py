"""What compilers print becomes messages at the candidate's own lines; the outputs are real ones."""

from tools.diagnostics import parse_diagnostics
from tools.results import Diagnostic

# g++ 12.2 -Wall, of a source with `#line 8 "candidate.py"`, the file beside it.
GCC = """\
candidate.py: In function 'int first(int)':
candidate.py:10:5: error: expected ',' or ';' before 'return'
   10 |     return y;
      |     ^~~~~~
candidate.py:9:9: warning: unused variable 'y' [-Wunused-variable]
    9 |     int y = x
      |         ^
candidate.py:14:52: error: 'missing' was not declared in this scope
"""
GCC_NO_HEADER = """\
candidate.py:3:10: fatal error: not_there.h: No such file or directory
    3 | #include <not_there.h>
      |          ^~~~~~~~~~~~~
compilation terminated.
"""
GCC_IN_TORCH = """\
In file included from /opt/torch/include/ATen/core/TensorBody.h:25,
                 from candidate.py:4:
/opt/torch/include/ATen/core/Formatting.h: In function 'void f()':
/opt/torch/include/c10/util/Half.h:77:31: error: no match for 'operator+'
"""
# nvcc 13.0.88, front end.
NVCC = """\
candidate.py(15): error: expected a ";"
      if (i < n) x[i] = 2.0f * y[i];
      ^

candidate.py(40): error: return value type does not match the function type
  __attribute__((global)) void k(float*x){ return 3; }
                                                  ^

candidate.py(13): warning #177-D: variable "unused" was declared but never referenced
      int unused;
          ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

2 errors detected in the compilation of "cuda.cu".
"""
# ptxas of the same release, of inline assembly.
PTXAS = """\
ptxas /tmp/tmpxft_00003ee5_00000000-6_d.ptx, line 29; error   : Unknown modifier '.instr'
ptxas /tmp/tmpxft_00003ee5_00000000-6_d.ptx, line 33; error   : Arguments mismatch for instruction 'mov'
ptxas fatal   : Ptx assembly aborted due to errors
"""
UNRESOLVED = "ptxas fatal   : Unresolved extern function '_Z1ff'\n"
LD = """\
/usr/bin/ld: /tmp/ccv9qEzZ.o: in function `main':
g.cpp:(.text+0xa): undefined reference to `defined_nowhere(int)'
collect2: error: ld returned 1 exit status
"""


def severities(found: tuple[Diagnostic, ...]) -> list[tuple[str, int | None]]:
    return [(item.severity, item.line) for item in found]


def test_gcc_at_the_candidates_lines_with_its_excerpts() -> None:
    found = parse_diagnostics(GCC)
    assert severities(found) == [("error", 10), ("warning", 9), ("error", 14)]
    assert found[0].message == "expected ',' or ';' before 'return'"
    assert found[0].excerpt == "   10 |     return y;\n      |     ^~~~~~"
    assert found[2].excerpt == ""


def test_a_header_that_is_missing_is_an_error() -> None:
    (found,) = parse_diagnostics(GCC_NO_HEADER)
    assert (found.severity, found.line) == ("error", 3)
    assert found.message == "not_there.h: No such file or directory"


def test_an_error_in_a_header_has_no_line_of_the_candidate() -> None:
    (found,) = parse_diagnostics(GCC_IN_TORCH)
    assert (found.line, found.file) == (None, "Half.h")


def test_the_front_end_of_nvcc() -> None:
    found = parse_diagnostics(NVCC)
    assert severities(found) == [("error", 15), ("error", 40), ("warning", 13)]
    assert found[0].message == 'expected a ";"'
    assert found[0].excerpt == "      if (i < n) x[i] = 2.0f * y[i];\n      ^"
    assert found[2].message == 'variable "unused" was declared but never referenced'


def test_ptxas_speaks_of_its_own_lines_not_of_the_candidates() -> None:
    found = parse_diagnostics(PTXAS)
    assert severities(found) == [("error", None)] * 3
    assert found[0].message == "Unknown modifier '.instr'"
    assert found[2].message == "Ptx assembly aborted due to errors"


def test_a_device_function_that_is_defined_nowhere() -> None:
    (found,) = parse_diagnostics(UNRESOLVED)
    assert (found.severity, found.message) == ("error", "Unresolved extern function '_Z1ff'")


def test_the_linker_names_what_is_missing() -> None:
    (found,) = parse_diagnostics(LD)
    assert found.file == "linker"
    assert found.message == "undefined reference to defined_nowhere(int)"


def test_flags_that_the_drivers_refuse_are_errors() -> None:
    found = parse_diagnostics("g++: error: unrecognized command-line option '-bogus'\nnvcc fatal   : Unknown option\n")
    assert [item.message for item in found] == ["unrecognized command-line option '-bogus'", "Unknown option"]
    assert severities(found) == [("error", None)] * 2


def test_a_repeated_message_is_told_once() -> None:
    """Both of nvcc's front ends, device and host, report the same mistake."""
    assert parse_diagnostics(NVCC + NVCC) == parse_diagnostics(NVCC)


def test_other_lines_are_no_messages() -> None:
    assert parse_diagnostics("note: see here\nerrors: none\n    int x = 3;\nptxas info    : 0 bytes gmem\n") == ()
