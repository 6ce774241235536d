# Needs Python 3.11+, pip, make, git and PyPI. Everything is installed into .venv.
# Another interpreter: make PYTHON=python3.12 ...

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Several test processes share the cores: a library that takes all of them for one product only slows the others.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

.PHONY: help demo install quick test check wheel bench robustness soak audit environments format clean

help:
	@echo "make demo        install into .venv, then show what MemGAS does"
	@echo "make test        install into .venv, then run all tests"
	@echo "make quick       format, lint, types of the core, fast unit tests: seconds"
	@echo "make check       format, lint, types, import contracts, the wheel as installed"
	@echo "make bench       timings, as ratios"
	@echo "make robustness  kill, fill, crowd, fuzz and forget: 60 kills and more, with figures; minutes"
	@echo "make soak        the same, with 300 kills and more; long"
	@echo "make audit       known vulnerabilities of what is installed; needs the network"
	@echo "make environments  the adapters' tests on LangChain 0.3, with langmem, on LlamaIndex 0.13"
	@echo "make format      format and mend what ruff can"
	@echo "make clean       remove .venv and everything built"

demo: $(RUNTIME)
	@$(BIN)/memgas demo

install: $(DEV)

quick: $(DEV)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy core
	$(PYTEST) -q -m "not slow and not benchmark" tests/unit

test: $(DEV)
	$(PYTEST) -q -n 2 --dist loadfile -m "not benchmark" --durations 5

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m pip check
	$(MAKE) wheel

wheel: $(DEV)
	.ci/check-wheel $(BIN)/python

bench: $(DEV)
	$(BIN)/python -m pip install --quiet --group bench
	$(PYTEST) -q -s -m benchmark tests/benchmarks

robustness: $(DEV)
	OPENBLAS_NUM_THREADS=1 MEMGAS_SCALE=full MEMGAS_KILLS=18 $(PYTEST) -q -n 2 --dist worksteal --durations 8 tests/robustness

soak: $(DEV)
	OPENBLAS_NUM_THREADS=1 MEMGAS_SCALE=soak MEMGAS_KILLS=90 $(PYTEST) -q -n 2 --dist worksteal --durations 8 tests/robustness

audit: $(DEV)
	test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip install --quiet pip-audit; }
	$(BIN)/python -m pip freeze --exclude-editable > .venv-audit/installed.txt
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement .venv-audit/installed.txt

# The adapters in other environments than the newest, each in a .venv of its own.
environments: .venv-langchain-03/installed .venv-langmem/installed .venv-llama-index-013/installed
	.venv-langchain-03/bin/python -m pytest -q tests/adapters/test_langchain_memory.py \
		tests/adapters/test_langchain_filter.py tests/adapters/test_langchain_models.py tests/adapters/test_langchain_retriever.py
	.venv-langmem/bin/python -m pytest -q tests/adapters/test_langchain_langmem.py
	.venv-llama-index-013/bin/python -m pytest -q -W "ignore:The 'validate_default' attribute" \
		-W "ignore:ServiceManager is deprecated" tests/adapters/test_llama_index_memory.py \
		tests/adapters/test_llama_index_models.py tests/adapters/test_llama_index_once.py tests/adapters/test_llama_index_retriever.py

.venv-langchain-03/installed: PACKAGES = -e ".[local]" "langchain==0.3.30" "langchain-core==0.3.86"
.venv-langmem/installed: PACKAGES = -e . "langmem==0.0.30" "langchain>=1.1,<2"
.venv-llama-index-013/installed: PACKAGES = -e ".[local]" "llama-index-core==0.13.0"

.venv-%/installed: pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(@D)/bin/python -m pip install --quiet $(PACKAGES) "hypothesis>=6.100" "pytest>=9" "pytest-asyncio>=1.3"
	@touch $@

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venv-* dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Stamps: installed anew when pyproject.toml is newer. pip 25.1 is the first that knows --group.
$(RUNTIME): pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'MemGAS needs Python 3.11 or newer, $(PYTHON) is ' + sys.version.split()[0] + ': make PYTHON=python3.12 ...')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[all]"
	@touch $@

$(DEV): $(RUNTIME)
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@
