"""The random numbers of kernels are those of the counter."""

import numba
import numpy
import torch

from cartograd.affinity.counter import hashed, stream
from cartograd.kernels import cpu


def test_the_same_bits_as_the_counters():
    counting = cpu.load("counting")

    @numba.njit("void(u8,i8[::1],u8[::1])")
    def fill(key, places, bits):
        for i in range(len(places)):
            bits[i] = counting.hashed(key, places[i])

    places = torch.cat([torch.arange(1000), torch.tensor([2**31, 2**40, 2**62])])
    key = stream(7, "negatives", 3)
    bits = numpy.empty(len(places), dtype=numpy.uint64)
    fill(numpy.uint64(key), places.numpy(), bits)
    assert numpy.array_equal(bits.view(numpy.int64), hashed(key, places).numpy())
