"""Rows turned pair by pair, as complex numbers: what the library's rotation is compared with."""

import torch


def by_complex_numbers(rows, bias, theta, pairing):
    """The same as products with exp(i theta)."""
    heads, r, count = bias.shape[0], rows.shape[-1], theta.shape[-1]
    each = rows.repeat_interleave(heads // rows.shape[3], 3) + bias.transpose(0, 1)
    order = torch.arange(r).view(2, -1).T if pairing == "halves" else torch.arange(r).view(-1, 2)
    pairs = torch.view_as_complex(each[..., order].contiguous())
    full = torch.nn.functional.pad(theta, (0, r // 2 - count)).unsqueeze(2)
    turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(full), full)).flatten(-2)
    return turned[..., torch.argsort(order.flatten())]
