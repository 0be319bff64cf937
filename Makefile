# `make help` lists what there is.  Every target makes its own virtual environment in .venv: nothing is assumed but
# make, a Python >= 3.11 (tools/find_python.sh finds it) and, for Spark, a Java >= 17 (tools/find_java.sh).

VENV := .venv
BIN := $(VENV)/bin
# The demonstration writes there.
DEMO_OUTPUT := demo
PYTEST_ARGS ?= -n auto --dist loadgroup
BENCH_ARGS ?=
MINUTES ?= 30
# Spark's classes as Java wants them: without the file its virtual machines start as well, in twice the time.
SPARK_CLASSES := $(VENV)/spark-classes.jsa
WITH_JAVA = JAVA_HOME="$$(tools/find_java.sh)" \
    JDK_JAVA_OPTIONS="-XX:SharedArchiveFile='$(CURDIR)/$(SPARK_CLASSES)' -Xlog:disable -Xlog:all=error:stderr"
# Tests start hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-thorough proof spark-versions bench bench-check bench-all lint format docs examples icechunk-tests clean distclean java

help: ## List the targets
	@echo "usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "variables: PYTHON=/path/to/python  PYTEST_ARGS='$(PYTEST_ARGS)'  BENCH_ARGS='--quick'  MINUTES=$(MINUTES)"

demo: $(VENV)/.with-demo java ## Ingest real climate model output with Spark, verify it, plot it
	@JAVA_HOME="$$(tools/find_java.sh)" $(BIN)/python examples/demo.py

test: $(VENV)/.with-dev java ## Run the tests that touch every promise once, some minutes
	@$(WITH_JAVA) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not thorough"

test-all: test test-thorough ## Run these tests, then all the others

test-thorough: $(VENV)/.with-dev $(SPARK_CLASSES) ## Run what "make test" leaves out
	@$(WITH_JAVA) $(BIN)/python -m pytest $(PYTEST_ARGS) -m thorough

proof: $(VENV)/.with-dev ## Search on with fresh seeds, for MINUTES
	@$(BIN)/python -m tests.proof --minutes $(MINUTES)

spark-versions: $(VENV)/.created java ## Run what is promised of Spark on PySpark 4.0, 4.1, 4.2 and 4.3
	@$(BIN)/python tools/run_spark_versions.py $(LINES)

bench: $(VENV)/.with-bench ## Measure users' work against the peers and renew docs/performance.md
	$(BIN)/python -m benchmarks.speed $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.summary

bench-check: $(VENV)/.with-dev ## Check requests, bytes and Python calls of hot paths, without timing anything
	$(BIN)/python -m pytest tests/benchmarks/test_counts.py tests/session/test_region_costs.py $(PYTEST_ARGS)

bench-all: $(VENV)/.with-bench java ## Measure everything else and renew docs/benchmarks.md
	JAVA_HOME="$$(tools/find_java.sh)" $(BIN)/python -m benchmarks $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.summary

icechunk-tests: $(VENV)/.with-dev ## Run a slice of Icechunk's own tests over the compatibility layer
	@$(BIN)/python tools/run_icechunk_tests.py --slice

lint: $(VENV)/.with-dev ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.with-dev ## Format the code
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

docs: $(VENV)/.with-docs ## Build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

examples: $(VENV)/.with-dev $(SPARK_CLASSES) ## Run the code of README.md and docs/, and every example
	@# Programs of seconds are over before what Java's second compiler does for them pays.
	@$(WITH_JAVA) JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" $(BIN)/python tools/run_examples.py

$(SPARK_CLASSES): tools/archive_spark_classes.py | $(VENV)/.with-dev java
	@echo "Archiving Spark's classes for Java (a quarter of a minute) ..."
	@JAVA_HOME="$$(tools/find_java.sh)" $(BIN)/python $< $@

clean: ## Remove what builds, tests and the demonstration leave
	rm -rf build dist site $(DEMO_OUTPUT) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	rm -rf spark-warehouse metastore_db derby.log
	find arraystore benchmarks examples tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environment too
	rm -rf $(VENV) .venv-spark

java:
	@tools/find_java.sh >/dev/null

# One stamp for each set of extras, so that a second call starts at once.

$(VENV)/.with-%: $(VENV)/.created pyproject.toml
	@echo "Installing arraystore[$*] into $(VENV) (the first time takes a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable ".[$*]" || { \
	    echo "The installation failed: the lines above say why.  It needs access to a Python package index;" \
	         "behind a proxy or a mirror, configure pip (PIP_INDEX_URL, PIP_PROXY, PIP_CERT)." >&2; exit 1; }
	@touch $@

$(VENV)/.created:
	@python="$$(tools/find_python.sh)" && echo "Making $(VENV) with $$("$$python" --version)" && \
	"$$python" -m venv $(VENV)
	@touch $@
