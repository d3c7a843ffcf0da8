"""Reads what other agents recorded as runs of ours."""
