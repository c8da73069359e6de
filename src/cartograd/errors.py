"""Every error cartograd raises on purpose.

Each class derives from `CartogradError` and from the built-in a caller would catch, so both
``except cartograd.CartogradError`` and ``except ValueError`` do what they say.
"""


class CartogradError(Exception):
    """The root of all of cartograd's own errors."""


class GradientShapeError(CartogradError, ValueError):
    """A gradient was given whose shape, dtype or device is not its tensor's."""


class GradientTypeError(CartogradError, TypeError):
    """Something that is no tensor was given as a gradient."""


class NonScalarRootError(CartogradError, RuntimeError):
    """``backward()`` was called without a gradient on a root of more than one element."""


class NoGradientError(CartogradError, RuntimeError):
    """A gradient was asked of something that no differentiable input leads to."""


class GraphFreedError(CartogradError, RuntimeError):
    """A graph was walked a second time after its saved values had been freed."""


class InplaceError(CartogradError, RuntimeError):
    """A value the backward pass needs was changed in place."""


class NotTwiceDifferentiableError(CartogradError, RuntimeError):
    """``create_graph=True`` met a gradient rule that cannot be differentiated again."""


class VjpError(CartogradError, RuntimeError):
    """A gradient rule returned a value that does not fit the input it is for."""


class CheckpointError(CartogradError, RuntimeError):
    """A checkpointed function did something else when it was run again."""


class BudgetError(CartogradError, MemoryError):
    """A memory budget is too small for a computation; `smallest` is the least number of bytes that would do."""

    def __init__(self, message: str, smallest: int = 0) -> None:
        super().__init__(message)
        self.smallest = smallest


class CaptureError(CartogradError, RuntimeError):
    """A step cannot be captured: what it does depends on the values it computes, or on something that changed."""


class AnomalyError(CartogradError, RuntimeError):
    """A NaN or an Inf appeared while `detect_anomaly` was on."""


class GradcheckError(CartogradError, AssertionError):
    """An analytic gradient and its numeric estimate disagree."""


class LeafError(CartogradError, RuntimeError):
    """A leaf-only or non-leaf-only request was made of the other kind of tensor."""


class UnsupportedError(CartogradError, TypeError):
    """The arguments are of a kind this function does not take."""


class OptionError(CartogradError, ValueError):
    """An option has a value that this function does not know."""


class InputError(CartogradError, ValueError):
    """The data cannot be used as they are: wrong shape, wrong kind of numbers, NaN or infinity."""


class MissingExtraError(CartogradError, ImportError):
    """An optional package is needed, and an extra of cartograd that brings it is not installed."""


class DivergedError(CartogradError, RuntimeError):
    """A layout met NaN or infinity; ``embedding`` is the last finite map, or None."""

    def __init__(self, message: str, embedding: object = None) -> None:
        super().__init__(message)
        self.embedding = embedding


class DistributedError(CartogradError, RuntimeError):
    """Another process of the same job failed, ended, or did not answer in time."""


class LostProcessError(DistributedError):
    """Another process of the same job has ended, or did not answer in time: all must be started again."""


class MemoryBudgetError(CartogradError, MemoryError):
    """What was asked for needs more memory than the machine has free."""


class FileAbsentError(CartogradError, FileNotFoundError):
    """A file or folder that was named does not exist."""


class FileAccessError(CartogradError, OSError):
    """A file could not be opened, read or written: permissions, a full disk, a folder in the way."""


class DataFileError(CartogradError, ValueError):
    """A file is not the table, array or image it should be."""


class ModelFileError(CartogradError, ValueError):
    """A model cannot be saved, or a file is not a whole model that this version can load."""


class KernelError(CartogradError, RuntimeError):
    """A kernel cannot be compiled on this machine."""
