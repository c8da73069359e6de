"""What `import cartograd` brings, and what only comes when it is asked for."""

import subprocess
import sys

import pytest

import cartograd

HEAVY = ("torch", "numpy", "sklearn", "scipy", "numba", "faiss", "pynndescent", "matplotlib", "pyarrow", "click")
SHOWN = f"print([name for name in {HEAVY} if name in sys.modules])"


def run(code):
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("code", ["import cartograd", "import cartograd\ndir(cartograd)\ncartograd.CartogradError"])
def test_the_package_alone_imports_nothing_heavy(code):
    assert run(f"{code}\n{SHOWN}") == "[]"


def test_the_program_shows_its_help_without_torch():
    code = "from cartograd.cli import main\ntry:\n    main(['map', '--help'])\nexcept SystemExit:\n    pass"
    assert run(f"{code}\n{SHOWN}").splitlines()[-1] == "['click']"


def test_the_engine_alone_needs_no_estimator():
    assert run(f"import cartograd\ncartograd.tensor\n{SHOWN}") == "['torch', 'numpy']"


@pytest.mark.parametrize(
    "first",
    [
        "from cartograd.engine import Tensor, tensor",
        "import cartograd.engine.tensor\nfrom cartograd import tensor",
        "import cartograd.ops.softmax\nfrom cartograd import tensor",
        "from cartograd import tensor",
        "import cartograd.embedding.base\nfrom cartograd.engine.tensor import tensor",
    ],
)
def test_gradients_are_there_whatever_is_imported_first(first):
    """Silu's gradient rule is an op's; the engine itself has none."""
    code = "import torch\nx = tensor([1.0, -2.0], requires_grad=True)\ntorch.nn.functional.silu(x).sum().backward()"
    assert run(f"{first}\n{code}\nprint([round(float(g), 4) for g in x.grad])") == "[0.9277, -0.0908]"


@pytest.mark.parametrize("name", sorted(cartograd.__all__))
def test_every_public_name_is_there(name):
    assert getattr(cartograd, name) is getattr(cartograd, name)
    assert name in dir(cartograd)


def test_all_names_can_be_imported_at_once():
    names = {}
    exec("from cartograd import *", names)
    assert set(cartograd.__all__) <= set(names)
    assert names["UMAP"] is cartograd.embedding.UMAP
    assert names["load"] is cartograd.io.load_model


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cartograd' has no attribute 'UMPA'"):
        cartograd.UMPA
