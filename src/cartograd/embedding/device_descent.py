"""Steps of torch's SGD and Adam by kernels for the GPU, with the state that the optimiser itself goes on with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from cartograd.embedding.replaying import Replayed, send
from cartograd.kernels import gpu

Begin = Callable[[], Callable[[int], torch.Tensor]]
UNUSUAL = (
    "weight_decay", "dampening", "nesterov", "maximize", "amsgrad", "differentiable", "capturable", "fused",
)  # fmt: skip
"""Options that the kernels do not know: with one of them set the optimiser takes its steps itself."""


def served(optimiser: torch.optim.Optimizer) -> bool:
    """Whether kernels can take the steps of this optimiser."""
    if type(optimiser) not in (torch.optim.SGD, torch.optim.Adam) or len(optimiser.param_groups) != 1:
        return False
    group = optimiser.param_groups[0]
    numbers = (group.get("momentum", 0.0), *group.get("betas", ()))
    plain = all(isinstance(number, (int, float)) for number in numbers)
    return plain and not any(group.get(name) for name in UNUSUAL)


class DeviceDescent:
    """Steps of one optimiser, whose learning rates are sent ahead.

    Parameters
    ----------
    optimiser : torch.optim.Optimizer
        One that is `served`, of a map (n, 2) float32; its state is changed in place.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.kernels, self.optimiser = gpu.load("moving"), optimiser
        self.Z: torch.Tensor = optimiser.param_groups[0]["params"][0]
        self.adam = type(optimiser) is torch.optim.Adam
        self.numbers = torch.empty(2, 0, dtype=torch.float32, device=self.Z.device)
        self._velocity = torch.zeros_like(self.Z)  # where the optimiser keeps none

    def of(self) -> tuple[Any, ...]:
        """What launches of steps depend on."""
        addresses = (one.data_ptr() for one in (self.Z, self.numbers, *self._moments()))
        return (self.adam, self._constants(), *addresses)

    def expect(self, rates: Sequence[float]) -> None:
        """Send the learning rates of the next steps; the optimiser counts them as taken."""
        if self.numbers.shape[1] != len(rates):
            self.numbers = torch.empty(2, len(rates), dtype=torch.float32, device=self.Z.device)
        self._moments()
        roots = [1.0] * len(rates)
        if self.adam:
            taken, (first, second) = self.optimiser.state[self.Z]["step"], self._constants()[0]
            steps = range(int(taken) + 1, int(taken) + 1 + len(rates))
            rates = [rate / (1 - first**step) for rate, step in zip(rates, steps, strict=True)]
            roots = [(1 - second**step) ** 0.5 for step in steps]
            taken += len(rates)
        send(self.numbers, [rates, roots])

    def move(self, gradient: torch.Tensor, ahead: int) -> None:
        """Take step number `ahead` of those expected."""
        rate, root = self.numbers[:, ahead : ahead + 1]
        if self.adam:
            self.kernels.by_adam(self.Z, gradient, *self._moments(), rate, root, *self._constants())
        else:
            self.kernels.by_momentum(self.Z, gradient, *self._moments(), rate, *self._constants())

    def _constants(self) -> tuple[Any, ...]:
        group = self.optimiser.param_groups[0]
        return (group["betas"], group["eps"]) if self.adam else (float(group["momentum"]),)

    def _moments(self) -> tuple[torch.Tensor, ...]:
        """The optimiser's memory of gradients; at first as the optimiser itself would begin."""
        if not (self.adam or self._constants()[0]):
            return (self._velocity,)
        state = self.optimiser.state[self.Z]
        if not self.adam:
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = self._velocity
            return (state["momentum_buffer"],)
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(self.Z), torch.zeros_like(self.Z)
        return state["exp_avg"], state["exp_avg_sq"]


class Stretch:
    """The steps of a map between two looks at it, many times over.

    Parameters
    ----------
    device : torch.device
        Where the map is.
    """

    def __init__(self, device: torch.device) -> None:
        self._replayed = Replayed(device)
        self._descent: DeviceDescent | None = None

    def take(self, optimiser: torch.optim.Optimizer, rates: Sequence[float], of: object, begin: Begin) -> None:
        """A step of the optimiser for each of the learning rates; what it moves is changed in place.

        `begin` launches what all the steps need, and gives the function that launches the gradient of each, by its
        number; `of` is what these launches depend on (see `Replayed`).
        """
        if self._descent is None or self._descent.optimiser is not optimiser:
            self._descent = DeviceDescent(optimiser)
        descent = self._descent
        descent.expect(rates)

        def work() -> None:
            gradient = begin()
            for ahead in range(len(rates)):
                descent.move(gradient(ahead), ahead)

        self._replayed.run(work, (of, len(rates), descent.of()), len(rates))
