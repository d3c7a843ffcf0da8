"""A candidate's id, and where in its text an inlined source begins."""

import ast

import pytest

from tools.candidate import Candidate

SOURCE = "int one() {\n    return 1;\n}\n"


def first_line(text: str, source: str) -> int | None:
    return Candidate(text).first_line_of(source)


def test_the_id_is_the_hash_of_the_text_in_utf_8() -> None:
    # printf 'abc' | sha256sum; printf 'größe' | sha256sum
    assert Candidate("abc").id == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert Candidate("größe").id == "d353a2671b67afff0941ae456e5c76e9394bd6579774ae7542a6185fb9843384"


def test_a_text_with_a_lone_surrogate_has_an_id() -> None:
    assert len(Candidate("\ud800").id) == 64


@pytest.mark.parametrize("quote", ['"""', "'''", 'r"""'])
def test_a_plain_literal(quote: str) -> None:
    closing = quote.removeprefix("r")
    text = f"import torch\n\nCPP = {quote}{SOURCE}{closing}\n"
    assert first_line(text, SOURCE) == 3


def test_a_literal_that_begins_with_a_line_break_is_found_where_its_text_begins() -> None:
    text = f'import torch\nCPP = """\n{SOURCE}"""\n'
    assert first_line(text, f"\n{SOURCE}") == 2
    assert first_line(text, SOURCE) == 3


def test_escapes_that_keep_the_lines() -> None:
    text = 'A = 1\nCPP = """int f() {\n    printf("a\\\\n");\n}"""\n'
    source = 'int f() {\n    printf("a\\n");\n}'
    assert ast.literal_eval(text.split("= ", 2)[2]) == source
    assert first_line(text, source) == 2


def test_escapes_that_make_lines_of_their_own_map_to_nothing() -> None:
    text = 'CPP = "int f();\\nint g();"\n'
    assert first_line(text, "int f();\nint g();") is None


def test_a_literal_whose_first_line_break_is_continued() -> None:
    text = 'A = 1\nCPP = """\\\nint f() {\n    puts("\\\\");\n}\n"""\n'
    source = 'int f() {\n    puts("\\");\n}\n'
    assert first_line(text, source) == 3


def test_several_equal_literals_are_the_first() -> None:
    text = f'A = """{SOURCE}"""\nB = """{SOURCE}"""\n'
    assert first_line(text, SOURCE) == 1


def test_a_text_put_together_at_run_time_maps_to_nothing() -> None:
    text = 'NAME = "f"\nCPP = f"""int {NAME}() {{\n    return 1;\n}}\n"""\n'
    assert first_line(text, "int f() {\n    return 1;\n}\n") is None
    joined = 'A = "int f();" + \\\n    "int g();"\n'
    assert first_line(joined, "int f();int g();") is None


def test_nothing_but_white_space_maps_to_nothing() -> None:
    assert first_line('A = "\\n"\n\n', "\n") is None
    assert first_line("A = 1\n", "") is None


def test_letters_beyond_ascii_do_not_move_lines() -> None:
    source = "// Größe, 大きさ, 😀\nint f();\n"
    assert first_line(f'# 💡\n\nCPP = """{source}"""\n', source) == 3


@pytest.mark.parametrize("break_", ["\r\n", "\r"])
def test_line_ends_of_other_systems(break_: str) -> None:
    """Python reads every kind of line end as a line feed, so the source is not in the text letter by letter."""
    text = f'import torch\nCPP = """{SOURCE}"""\n'.replace("\n", break_)
    assert first_line(text, SOURCE) == 2


def test_a_text_that_is_no_python_maps_only_what_it_holds_letter_by_letter() -> None:
    text = 'def broken(:\nCPP = """int f();\n"""\n'
    assert first_line(text, "int f();\n") == 2
    assert first_line(text, "int g();\n") is None


def test_a_text_whose_tree_is_too_deep_has_no_literals() -> None:
    assert first_line("x = " + "+".join(["1"] * 50_000), "int f();") is None
