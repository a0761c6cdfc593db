# The two commands are `make run` and `make test`; each sets up all that it needs in .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Idle OpenMP threads must not spin on a core that another one needs.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: run test test-all lint browser bench bench-methods peers escnn test-escnn clean

run: .venv/installed-compare
	$(BIN)/ringconv compare

test: lint browser
	$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: lint browser
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -n 2

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Tests of pages use Debian's chromium; where it cannot be installed they are skipped and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && [ -f /etc/debian_version ] && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
		echo "No chromium: tests in a browser are skipped."

# The authors' package beside ours, so that `make bench` measures it too.
peers: .venv/installed-peers

# The steerable networks of escnn need an older numpy, so they have an environment of their own. It
# can train, but has no scikit-learn (see the constraints), which the figure of embeddings needs.
escnn: .venv-escnn/installed

test-escnn: .venv-escnn/installed
	.venv-escnn/bin/python -m pytest -q tests/baselines/test_escnn.py

bench: .venv/installed-bench
	for suite in speed forms kernel rings channels pixels batch 3d models auto; do $(BIN)/ringconv bench --suite $$suite; done

# The paper's speed table with its rows of group and E(2) convolutions: half an hour.
bench-methods: .venv-escnn/installed
	.venv-escnn/bin/ringconv bench --suite methods --rounds 3 --budget 1

# torch alone comes first, so that nothing else can choose a version of it.
.venv/installed-torch: constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch numpy
	touch $@

.venv/installed-%: .venv/installed-torch pyproject.toml setup.py $(wildcard src/ringconv/ops/native/*.[ch])
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[$*]'
	touch $@

.venv-escnn/installed: constraints-escnn.txt pyproject.toml setup.py
	$(PYTHON) -m venv .venv-escnn
	.venv-escnn/bin/python -m pip install --quiet -c constraints-escnn.txt torch numpy
	.venv-escnn/bin/python -m pip install --quiet -c constraints-escnn.txt lie_learn joblib scipy pymanopt autograd \
		matplotlib rich tyro hypothesis pytest pytest-timeout \
		h5py imagecodecs lightning-fabric nibabel pillow safetensors tensorboard tifffile timm torchmetrics torchvision trimesh
	.venv-escnn/bin/python -m pip install --quiet -c constraints-escnn.txt --no-deps escnn
	.venv-escnn/bin/python -m pip install --quiet -c constraints-escnn.txt -e .
	touch $@

clean:
	rm -rf .venv .venv-escnn build .mypy_cache .pytest_cache .ruff_cache .hypothesis
