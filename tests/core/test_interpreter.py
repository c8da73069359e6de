"""A subinterpreter is refused with a reason, where importing torch would wait forever or end the process."""

import subprocess
import sys

import pytest

SCRIPT = """
import importlib
for name in ("_xxsubinterpreters", "_interpreters"):
    try:
        interpreters = importlib.import_module(name)
    except ImportError:
        continue
    lines = ["import sys", "sys.path[:] = {path!r}", "try:", "    import cartograd", "except TypeError as error:"]
    interpreters.run_string(interpreters.create(), "\\n".join([*lines, "    print(error)"]))
    print("over", flush=True)
    break
"""


@pytest.mark.skipif(sys.version_info < (3, 10), reason="other names of the module")
@pytest.mark.parametrize("first", ["", "import cartograd\ncartograd.UMAP\n"])
def test_a_subinterpreter_is_refused(first):
    script = first + SCRIPT.replace("{path!r}", repr(sys.path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    said, over = done.stdout.splitlines()
    assert said.startswith("cartograd cannot be used in a subinterpreter")
    assert "ProcessPoolExecutor" in said
    assert over == "over"
