# make demo   set up, then map scikit-learn's handwritten digits: map.html, map.png
# make test   set up, then every check and test
# make test-torch TORCH=2.11.0   the tests of what meets torch, with another torch, in an environment of its own
# make check  format, lint, types, import layers, file sizes, docs; make bench: the benchmarks
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

# Threads that wait must sleep: spinning, on a machine with a busy neighbour, made small ops a hundred times slower.
export OMP_WAIT_POLICY := passive

.PHONY: demo test test-torch check chromium bench fuzz format clean

demo: $(READY)
	$(BIN)/cartograd map digits -o map.html --seed 0 --n-neighbors 15 --max-iter 200

test: check chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

# Not part of `make test`: another torch is a download of its own. The lowest one that pyproject.toml allows, by default.
TORCH ?= 2.11.0
OTHER := .venv-torch-$(TORCH)

test-torch: $(OTHER)/ready
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -n auto --maxprocesses 8 --dist worksteal \
	tests/test_first.py tests/conformance
	$(OTHER)/bin/cartograd map digits -o $(OTHER)/digits.html --seed 0 --n-neighbors 15 --max-iter 200

$(OTHER)/ready: pyproject.toml
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	$(OTHER)/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH) -e ".[dev]"
	touch $(OTHER)/ready

# The viewer is tested in a browser; where none can be installed those tests are skipped, with the reason.
chromium:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 || \
	echo "no Chromium here: the tests of the viewer in a browser will be skipped"

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/check_layers.py
	$(BIN)/python scripts/check_sizes.py
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python -W ignore scripts/check_house.py

# the bits that tests/golden compares, for this machine
golden: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore scripts/make_golden.py

# fuzzing led by coverage, where atheris can be installed; what runs in `make test` needs nothing but pytest
SECONDS ?= 60
fuzz: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check atheris || \
	{ echo "atheris cannot be installed here: only the fuzzing of make test is left"; exit 1; }
	$(BIN)/python -W ignore tests/fuzz/coverage_guided.py tables $(SECONDS)
	$(BIN)/python -W ignore tests/fuzz/coverage_guided.py models $(SECONDS)

bench: $(READY)
	$(BIN)/python benchmarks/engine.py

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# torch first, at its pinned version, so that nothing that follows pulls another build of it
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf .venv .venv-torch-* build dist .mypy_cache .ruff_cache
