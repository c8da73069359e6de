"""Attributes computed when they are first read."""

from cartograd.core.lazy import lazy_attribute


class Counted:
    """Counts how often a value is computed."""

    calls = 0

    @lazy_attribute
    def value(self):
        """Return how many times it was computed."""
        self.calls += 1
        return self.calls


def test_a_value_is_computed_once_for_each_object():
    one, other = Counted(), Counted()
    assert (one.value, one.value, one.calls) == (1, 1, 1)
    assert "value" not in vars(other)
    assert other.value == 1
    vars(one).pop("value")
    assert one.value == 2


def test_the_class_shows_the_descriptor():
    assert isinstance(Counted.value, lazy_attribute)
    assert Counted.value.__doc__ == "Return how many times it was computed."
