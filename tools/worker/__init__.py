"""The untrusted side: a process that holds one candidate, reads input bytes and returns output bytes.

It imports PyTorch and the standard library only, and holds no seed, no reference, no expected value and no verdict.
What it says is not trusted: the judge reads the output bytes and its own clock. NOT covered here: a candidate that
patches this code inside its own process; that can only falsify what the judge checks again from outside.
"""
