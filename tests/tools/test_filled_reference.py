"""A reference that is filled once answers every call as a fresh copy does, whatever it keeps from call to call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tools import filled_reference
from tools.filled_reference import FilledReference

INPUTS = [torch.full((2, 3), float(value)) for value in (1, 5, 2)]


class Keeping(nn.Module):
    """Adds what it kept to its input, and keeps more in one of many places."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self.weight = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.kept: torch.Tensor
        self.hidden: torch.Tensor
        self.register_buffer("kept", torch.zeros(()))
        self.register_buffer("hidden", torch.zeros(()), persistent=False)
        self.calls = 0
        self.seen: list[float] = []
        self.by_name: dict[str, Any] = {"deep": {"deeper": [0.0]}}
        self.tensor = torch.zeros(())
        self.object = nn.Module()
        self.child = nn.Identity()

    def total(self) -> float:
        """The sum of everything that is kept."""
        numbers = self.calls + sum(self.seen) + self.by_name["deep"]["deeper"][0] + len(self.by_name) - 1
        tensors = (self.weight, self.kept, self.hidden, self.tensor)
        numbers += float(getattr(self.child, "count", 0)) + float(getattr(self, "late", 0))
        return float(numbers) + sum(float(tensor) for tensor in tensors)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input and what was kept before."""
        result = x + self.total()
        KEEP[self.place](self)
        return result


def _deep(model: Any) -> None:
    model.by_name["deep"]["deeper"][0] += 1.0


def _attribute_of_a_child(model: Any) -> None:
    model.child.count = getattr(model.child, "count", 0) + 1


def _new_buffer(model: Any) -> None:
    model.kept = model.kept + 1


def _other_data(model: Any) -> None:
    model.weight.data = model.weight.data + 1


KEEP: dict[str, Callable[[Any], object]] = {
    "nowhere": lambda _: None,
    "a counter": lambda model: setattr(model, "calls", model.calls + 1),
    "a list": lambda model: model.seen.append(1.0),
    "a key": lambda model: model.by_name.setdefault(f"{len(model.by_name)}"),
    "deep in containers": _deep,
    "a tensor": lambda model: model.tensor.add_(1),
    "a tensor past its version": lambda model: model.tensor.data.add_(1),
    "a buffer": lambda model: model.kept.add_(1),
    "a buffer past its version": lambda model: model.kept.data.add_(1),
    "a hidden buffer": lambda model: model.hidden.add_(1),
    "a new buffer": _new_buffer,
    "a parameter": lambda model: model.weight.add_(1),
    "a parameter's data": _other_data,
    "a child": _attribute_of_a_child,
    "a new attribute": lambda model: setattr(model, "late", getattr(model, "late", 0) + 1),
}


class Copies:
    """Makes copies, and counts them."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self.made = 0
        self._make = make

    def __call__(self) -> nn.Module:
        """One more."""
        self.made += 1
        return self._make()


def answers(reference: FilledReference) -> list[list[float]]:
    found = []
    for value in INPUTS:
        reference.fill()
        with torch.no_grad():
            found.append(reference([value.clone()])[0][1].flatten().tolist())
    return found


@pytest.mark.parametrize("place", KEEP)
def test_what_a_reference_keeps_changes_no_later_answer(place: str) -> None:
    assert answers(FilledReference(lambda: Keeping(place), ())) == [[1.0] * 6, [5.0] * 6, [2.0] * 6]


@pytest.mark.parametrize(("place", "made"), [("nowhere", 1), ("a buffer", 1), ("a counter", 3)])
def test_only_a_reference_that_changed_is_copied_again(place: str, made: int) -> None:
    copies = Copies(lambda: Keeping(place))
    answers(FilledReference(copies, ()))
    assert copies.made == made


def test_a_reference_that_holds_too_much_is_copied_for_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled_reference, "MOST_HELD", 5)
    copies = Copies(lambda: Keeping("nowhere"))
    answers(FilledReference(copies, ()))
    assert copies.made == 3


def test_a_reference_that_holds_a_list_without_end_is_copied_for_every_call() -> None:
    def nested() -> Keeping:
        model = Keeping("nowhere")
        for _ in range(5000):
            model.by_name["deep"]["deeper"] = [0.0, model.by_name["deep"]["deeper"]]
        return model

    copies = Copies(nested)
    answers(FilledReference(copies, ()))
    assert copies.made == 3


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_reference_is_copied_for_every_call() -> None:
    copies = Copies(lambda: nn.Sequential(torch.jit.trace(nn.ReLU(), torch.ones(2))))
    answers(FilledReference(copies, ()))
    assert copies.made == 3


def test_a_call_that_fails_halfway_leaves_nothing_to_the_next() -> None:
    class Failing(Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            KEEP["a counter"](self)
            if x[0, 0] < 0:
                raise ValueError("negative")
            return x + self.total()

    reference = FilledReference(lambda: Failing("nowhere"), ())
    for value, right in ((1.0, 2.0), (-1.0, None), (3.0, 4.0)):
        reference.fill()
        if right is None:
            with pytest.raises(ValueError, match="negative"):
                reference([torch.full((1, 1), value)])
        else:
            assert reference([torch.full((1, 1), value)])[0][1].item() == right


def test_updated_buffers_are_those_of_each_call_alone() -> None:
    """The running mean moves from 0 by a tenth of the batch's mean, every time; what was returned stays."""
    reference = FilledReference(lambda: nn.BatchNorm1d(1, affine=False), ("running_mean", "num_batches_tracked"))
    returned = []
    for mean in (10.0, 30.0, 20.0):
        reference.fill()
        returned.append(dict(reference([torch.tensor([[mean - 1], [mean + 1]])])))
    assert [float(each["state running_mean"]) for each in returned] == pytest.approx([1.0, 3.0, 2.0])
    assert [int(each["state num_batches_tracked"]) for each in returned] == [1, 1, 1]


def test_an_output_that_is_a_buffer_stays_as_it_was_returned() -> None:
    class Its(Keeping):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kept.add_(x[0, 0])

    assert answers(FilledReference(lambda: Its("nowhere"), ())) == [[1.0], [5.0], [2.0]]
    reference = FilledReference(lambda: Its("nowhere"), ())
    reference.fill()
    first = reference([INPUTS[1]])[0][1]
    reference.fill()
    reference([INPUTS[2]])
    assert first.item() == 5.0
