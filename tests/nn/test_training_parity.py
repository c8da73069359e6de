"""Twenty steps of training with our engine and with torch's, from the same seed: the same parameters to 1e-10."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cartograd

STEPS = 20


class Residual(nn.Module):
    """A small ResNet: a stem, two blocks, one of them with a stride, and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.blocks = nn.ModuleList([self.block(4, 4, 1), self.block(4, 8, 2)])
        self.shortcuts = nn.ModuleList([nn.Identity(), nn.Conv2d(4, 8, 1, stride=2)])
        self.head = nn.Linear(8, 3)

    @staticmethod
    def block(inside, outside, stride):
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )

    def forward(self, x):
        x = self.stem(x)
        for block, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            x = F.relu(block(x) + shortcut(x))
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM of two layers that reads token indices, and a head on its last step."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.lstm = nn.LSTM(3, 5, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0][:, -1])


class Attentive(nn.Module):
    """A causal transformer layer and a head on the mean over time."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.1, activation="gelu", batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        return self.head(self.layer(x, src_mask=mask, is_causal=True).mean(1))


def perceptron():
    return nn.Sequential(
        nn.Linear(5, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    )


MODELS = {
    "mlp": (perceptron, lambda: torch.randn(6, 5, dtype=torch.float64)),
    "resnet": (Residual, lambda: torch.randn(4, 2, 6, 6, dtype=torch.float64)),
    "transformer": (Attentive, lambda: torch.randn(3, 4, 6, dtype=torch.float64)),
    "lstm": (Recurrent, lambda: torch.randint(0, 7, (4, 5))),
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3),
    # The true gradient of an attention's key bias is 0; with a smaller eps Adam would blow up its rounding errors.
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-6),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1, eps=1e-6),
}


def batches(make, seed=3):
    print("seed", seed)
    torch.manual_seed(seed)
    made = [make() for _ in range(STEPS)]
    return [(batch, torch.randint(0, 3, (len(batch),))) for batch in made]


def train(model, optimizer, data, lift, kind=cartograd.Tensor, clip=None):
    """The losses of all steps; the model is changed."""
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS)
    losses = []
    torch.manual_seed(4)
    for batch, target in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(lift(batch)), target)
        assert type(loss) is kind
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def twin_models(name):
    torch.manual_seed(0)
    ours = MODELS[name][0]().double()
    return ours, copy.deepcopy(ours)


def assert_same(ours, theirs, start):
    for (name, mine), (_, other) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10, msg=lambda text: f"{name}: {text}")
    moved = [not torch.equal(one, start[name]) for name, one in ours.named_parameters()]
    assert all(moved), "a parameter was not trained"


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_the_same_parameters_after_twenty_steps(model, optimizer):
    ours, theirs = twin_models(model)
    start = {name: one.detach().clone() for name, one in ours.named_parameters()}
    data = batches(MODELS[model][1])
    expected = train(theirs, OPTIMIZERS[optimizer](theirs.parameters()), data, lambda batch: batch, torch.Tensor)
    losses = train(ours, OPTIMIZERS[optimizer](ours.parameters()), data, cartograd.tensor)
    torch.testing.assert_close(losses, expected, rtol=0, atol=1e-10)
    assert_same(ours, theirs, start)


@pytest.mark.parametrize("model", MODELS)
def test_plain_batches_while_recording(model):
    ours, theirs = twin_models(model)
    start = {name: one.detach().clone() for name, one in ours.named_parameters()}
    data = batches(MODELS[model][1])
    train(theirs, OPTIMIZERS["sgd"](theirs.parameters()), data, lambda batch: batch, torch.Tensor)
    with cartograd.recording():
        train(ours, OPTIMIZERS["sgd"](ours.parameters()), data, lambda batch: batch)
    assert_same(ours, theirs, start)


def test_clipped_gradients_and_frozen_parameters():
    ours, theirs = twin_models("mlp")
    for model in (ours, theirs):
        model[0].weight.requires_grad_(False)
    data = batches(MODELS["mlp"][1])
    train(theirs, OPTIMIZERS["adam"](theirs.parameters()), data, lambda batch: batch, torch.Tensor, clip=0.1)
    frozen = ours[0].weight.clone()
    train(ours, OPTIMIZERS["adam"](ours.parameters()), data, cartograd.tensor, clip=0.1)
    assert torch.equal(ours[0].weight, frozen)
    assert ours[0].weight.grad is None
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)


def test_gradients_accumulate_over_two_backward_passes():
    ours, theirs = twin_models("mlp")
    for model, lift in ((ours, cartograd.tensor), (theirs, lambda batch: batch)):
        torch.manual_seed(5)
        for batch, target in batches(MODELS["mlp"][1])[:2]:
            (F.cross_entropy(model(lift(batch)), target) / 2).backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-13)


def test_a_closure_optimizer_converges_to_the_same_point():
    ours, theirs = twin_models("mlp")
    batch, target = batches(MODELS["mlp"][1])[0]
    for model, given in ((ours, cartograd.tensor(batch)), (theirs, batch)):
        optimizer = torch.optim.LBFGS(model.eval().parameters(), lr=0.5, max_iter=5)

        def closure(model=model, given=given, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.mse_loss(model(given), F.one_hot(target, 3).double())
            loss.backward()
            return loss.item()

        optimizer.step(closure)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-10)
