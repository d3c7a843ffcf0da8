"""How good it was: scores over many candidates."""
