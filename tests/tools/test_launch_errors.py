"""A kernel launch that failed is told to the judge, who says so instead of calling the output wrong."""

import torch

from tools.replies import Done
from tools.subject import Subject
from tools.worker.messages import Region


def test_what_the_worker_says_of_a_failed_launch_reaches_the_judge() -> None:
    # It was dropped on the way, so that the author heard of a wrong output, never of the launch.
    subject = Subject.__new__(Subject)
    subject.device = "cpu"
    done = Done(launch_error="cudaErrorInvalidValue: invalid argument")
    returned = subject._returned(done, torch.zeros(8, dtype=torch.uint8), Region(0, 8), copied=False)
    assert returned.launch_error == "cudaErrorInvalidValue: invalid argument"
