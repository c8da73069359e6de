"""What every estimator promises of its input: a failure loses nothing, precisions and names mix as they should."""

import sys
import warnings
from pathlib import Path

import numpy
import pytest
import torch

from cartograd.embedding.estimator import loses_nothing
from cartograd.errors import InputError, OptionError, UnsupportedError

sys.path.insert(0, str(Path(__file__).parent))

from awkward_inputs import ORDINARY, D
from estimators import LAYOUTS, METHODS, NAMES

NEW = ORDINARY[::5] + numpy.float32(0.1)
REFUSED = [
    (None, UnsupportedError, "X is None"),
    (ORDINARY[:1, :3], InputError, "1 sample"),
    (numpy.where(ORDINARY[4, 6] == ORDINARY, numpy.nan, ORDINARY), InputError, "row 4, column 6"),
    (ORDINARY.astype(str)[:, :3], InputError, "must hold numbers"),
]
by_name = pytest.mark.parametrize("name", NAMES)


def near(Z, other, tolerance):
    return numpy.abs(Z - other).max() <= tolerance * numpy.abs(other).max()


@by_name
def test_a_refused_fit_loses_nothing(name):
    model = METHODS[name].make().fit(ORDINARY)
    before, placed = dict(vars(model)), model.transform(NEW)
    for data, error, words in REFUSED:
        for fit in (model.fit, model.fit_transform, getattr(model, "partial_fit", model.fit)):
            if fit.__name__ == "partial_fit" and words == "1 sample":
                words = "features"
            with pytest.raises(error, match=words):
                fit(data)
            assert vars(model) == before
    assert numpy.array_equal(model.transform(NEW), placed)


@by_name
def test_a_refused_transform_loses_nothing(name):
    model = METHODS[name].make().fit(ORDINARY)
    before, placed = dict(vars(model)), model.transform(NEW)
    for data in (None, ORDINARY[:, :3], ORDINARY * numpy.nan, "x", ORDINARY[0]):
        with pytest.raises((InputError, UnsupportedError)):
            model.transform(data)
        assert vars(model) == before
    assert numpy.array_equal(model.transform(NEW), placed)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_fit_that_breaks_in_the_middle_loses_nothing(name):
    def broken(step, embedding, loss):
        raise KeyError("in the middle")

    fresh = METHODS[name].make().fit(ORDINARY[:40])
    model = METHODS[name].make().fit(ORDINARY)
    placed = model.transform(NEW)
    model.set_params(callbacks=[broken], check_interval=2)
    with pytest.raises(KeyError, match="in the middle"):
        model.fit(ORDINARY[:40])
    assert numpy.array_equal(model.transform(NEW), placed)
    model.set_params(callbacks=None, check_interval=50)
    assert numpy.array_equal(model.fit_transform(ORDINARY[:40]), fresh.embedding_)  # and nothing is left over


@by_name
def test_too_many_components_lose_nothing(name):
    model = METHODS[name].make().fit(ORDINARY)
    placed = model.transform(NEW)
    with pytest.raises((OptionError, UnsupportedError)):
        model.set_params(n_components=-1).fit(ORDINARY[:, :3])
    if not METHODS[name].is_layout:
        with pytest.raises(OptionError, match="the largest that fits is"):
            model.set_params(n_components=1000).fit(ORDINARY[:, :3])
    model.set_params(n_components=2)
    assert model.n_features_in_ == D
    assert numpy.array_equal(model.transform(NEW), placed)


@by_name
def test_what_becomes_of_the_array_later_does_not_change_the_map(name):
    rows = ORDINARY.copy()
    model = METHODS[name].make().fit(rows)
    placed = model.transform(NEW)
    rows[:] = 0
    assert numpy.array_equal(model.transform(NEW), placed)
    tensor = torch.tensor(ORDINARY)
    model.fit(tensor)
    tensor.zero_()
    assert numpy.array_equal(model.transform(NEW), placed)


def test_loses_nothing_keeps_what_the_method_says():
    class Model:
        kept = 1

        @loses_nothing
        def fit(self, value, *, fails=False):
            """Documented."""
            self.kept, self.new = value, value
            if fails:
                raise ValueError("no")
            return self

    model = Model()
    with pytest.raises(ValueError, match="no"):
        model.fit(2, fails=True)
    assert vars(model) == {}
    assert model.fit(3) is model
    assert vars(model) == {"kept": 3, "new": 3}
    assert (Model.fit.__name__, Model.fit.__doc__) == ("fit", "Documented.")


@by_name
@pytest.mark.parametrize(("fitted", "given"), [("float32", "float64"), ("float64", "float32")])
def test_rows_of_another_precision_find_the_same_places(name, fitted, given):
    model = METHODS[name].make().fit(ORDINARY.astype(fitted))
    Z = model.transform(NEW.astype(given))
    assert Z.dtype == given
    same = model.transform(NEW.astype(fitted))
    print(name, numpy.abs(Z - same).max() / numpy.abs(same).max())
    assert near(Z, same, 0.02 if name == "UMAP" else 1e-5)  # its repulsion makes much of the last digit
    assert numpy.array_equal(model.transform(torch.tensor(NEW.astype(given))).numpy(), Z)


@by_name
def test_rows_far_out_do_not_move_those_given_with_them(name):
    model = METHODS[name].make().fit(ORDINARY)
    rows = NEW.astype("float64")
    alone = model.transform(rows)
    for scale in (1e12, 1e150, 1e300):
        together = model.transform(numpy.concatenate([rows, -rows[:3] * scale]))
        assert numpy.isfinite(together).all()
        assert near(together[: len(rows)], alone, 1e-12)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_is_placed_alone_whatever_its_position(name, dtype):
    """Groups of all sizes: vector instructions round otherwise than scalar ones at an odd end."""
    model = METHODS[name].make().fit(ORDINARY.astype(dtype))
    rows = NEW.astype(dtype)
    whole = model.transform(rows)
    for size in range(1, len(rows)):
        assert near(model.transform(rows[:size]), whole[:size], 1e-13)


@pytest.mark.parametrize("name", ["PCA", "IncrementalPCA", "ExactIncrementalPCA"])
def test_scores_that_have_no_number_are_refused(name):
    model = METHODS[name].make().fit(ORDINARY.astype("float64") * 1e300)
    with pytest.raises(
        InputError, match=r"as large as .*e\+\d+, beyond the range of float32; give the rows in float64"
    ):
        model.transform(ORDINARY)
    assert numpy.isfinite(model.transform(ORDINARY.astype("float64"))).all()


@by_name
def test_names_of_columns(name):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ORDINARY, columns=[f"c{i}" for i in range(D)])
    model = METHODS[name].make().fit(frame)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert near(model.transform(frame), METHODS[name].make().fit_transform(ORDINARY), 1e-5)
    with pytest.raises(InputError, match="feature names should match those that were passed during fit"):
        model.transform(frame[frame.columns[::-1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(model.set_output(transform="pandas").transform(frame).columns) == [
            f"{name.lower()}{i}" for i in "01"
        ]


@pytest.mark.parametrize("name", [name for name in LAYOUTS if METHODS[name].has("perplexity")])
def test_a_perplexity_that_was_chosen_is_refused_and_the_default_fitted_to_the_rows(name):
    few, method = ORDINARY[::8], METHODS[name]
    with pytest.raises(OptionError, match=r"perplexity=9 is too large for 8 rows: .* the largest that fits is 7"):
        method.make(perplexity=9).fit(few)
    assert method.make(perplexity=7).fit(few).perplexity_ == 7
    with pytest.warns(UserWarning, match="perplexity=30 is too large for 8 different rows: 2.33 used"):
        assert method.make().fit(few).perplexity_ == pytest.approx(7 / 3)
    with pytest.warns(UserWarning, match="perplexity=9 is too large for 8 different rows: 2.33 used"):
        method.make(perplexity=9).fit(numpy.repeat(few, 4, axis=0))  # it fits the rows, but not those that differ


@by_name
@pytest.mark.parametrize("device", ["nonsense", "meta", 3.5])
def test_devices_that_are_none_are_refused(name, device):
    with pytest.raises(OptionError, match=r"device .* use 'auto' or 'cpu'"):
        METHODS[name].make(device=device).fit(ORDINARY)
