# Two commands do everything on a fresh machine: `make analyze TARGET=llama` and `make test`.
# Each sets up .venv with the pinned versions of constraints.txt first; afterwards neither needs the network.
PYTHON ?= python3
TARGET ?= llama
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# without bytecode each of the many processes that tests start would compile the code anew
unexport PYTHONDONTWRITEBYTECODE
# a process of tests, with those that it starts, takes about two gigabytes; one more than cores, as each waits for others now and then
PARALLEL := -n $(shell expr $$(nproc 2>/dev/null || echo 1) + 1) --maxprocesses 4 --dist worksteal
CHECKED := tests/test_architecture.py tests/schemas tests/cache tests/conformance/test_workflows.py tests/tools/report tests/tools/pictures tests/tools/hardware tests/tools/kernels/test_kernel_corpus.py tests/tools/kernels/test_read_kernels.py tests/tools/test_import_rules.py

.PHONY: analyze test profile check slow lint package setup docs samples golden fuzz mutants mutants-drawn gallery screenshots conformance second faults readme clients bench-load bench-server bench-tools bench-agent bench-calls bench-index bench-cost bench-kernels bench-reports bench-silicon bench-served calibrate bench-map bench-gpu bench-roofline bench-peers security sweep sweep-checkpoints sweep-cost sweep-reports sweep-index sweep-kernels sweep-instances sweep-prose sweep-configs sweep-answers sweep-names clean

analyze: $(STAMP)
	$(BIN)/opscope analyze $(TARGET)

test: $(STAMP)
	$(BIN)/pytest $(PARALLEL)

# the same, and what each file of tests takes of the processor
profile: $(STAMP)
	PYTHONPATH=tests/support $(BIN)/pytest $(PARALLEL) -p cpu_seconds

# a few minutes, for every change: linters, types, import contracts, and the tests that trace no model
check: lint
	$(BIN)/pytest $(PARALLEL) $(CHECKED)

# wheel and sdist, checked and used from an empty environment of PYTHON; STATIC=--static without torch
package:
	PYTHON=$(PYTHON) .ci/package $(STATIC)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# what takes long: samples of transformers against what it builds, loads, every command's screen
slow: $(STAMP)
	$(BIN)/pytest $(PARALLEL) -m 'slow and not faults and not second'

# kills at random moments, full and broken disks, attacks and loads: what takes minutes; prints what was tried and what came of it
faults: $(STAMP)
	$(BIN)/pytest -n 0 -s -m 'faults or not faults' tests/faults tests/security tests/server

# the documentation as a site, in site/; it opens from files
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

# what the commands of README and the pages print now, where they show something else
samples: $(STAMP)
	$(BIN)/python tests/support/samples.py README.md $$(find docs -name '*.md')

# the shell commands of docs/how-to/shell.md in its order, from an empty folder
readme: $(STAMP)
	$(BIN)/pytest -n 0 -m readme tests/clients/test_readme.py

# what is derived from the code and kept in the tree: tool definitions, JSON Schemas, pages of reference
golden: $(STAMP)
	$(BIN)/python tests/golden/refresh.py

# odd inputs for SECONDS in all, split over the readers; what fails is kept in tests/corpus/fuzz/ and tested from then on
SECONDS ?= 1200
fuzz: $(STAMP)
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(SECONDS)

# takes one guard after another away and sees whether a test notices; GUARDS='words' for some of them
mutants: $(STAMP)
	$(BIN)/python tests/mutants/run.py $(GUARDS)

# changes operators, comparisons and numbers of formulas, keys, checks, names and occupancy at random; DRAWN='--count 50 --seed 1 formula'
mutants-drawn: $(STAMP)
	$(BIN)/python tests/mutants/drawn.py $(DRAWN)

# the reports under reports/; VLLM=PATH of its unpacked source for that one too
gallery: $(STAMP)
	$(BIN)/python tests/golden/gallery.py $(if $(VLLM),vllm=$(VLLM))

# the page of a report as a browser shows it, for the documentation; needs chromium
screenshots: $(STAMP)
	$(BIN)/python tests/golden/screenshots.py

# the official suites against the real server, Mermaid's parser on the gallery; installs Node and all of them from npm first
conformance: $(STAMP)
	.ci/install-node
	$(BIN)/pytest -m nodejs tests/conformance

# `--python`: makes the interpreters with other transformers versions, and traces in them
second: $(STAMP)
	PYTHON=$(PYTHON) .ci/second-interpreter
	$(BIN)/pytest $(PARALLEL) -m second tests/tools/trace/test_second_interpreter.py

# attempts to run code and to read foreign files through everything that takes a name or a path; prints how many were made
security: $(STAMP)
	$(BIN)/pytest $(PARALLEL) tests/security

# names of planted code in every field of every model type's configuration, in every form
sweep-names: $(STAMP)
	HF_HUB_OFFLINE=1 $(BIN)/python tests/support/sentinels.py --every-form $$(mktemp -d)

# time to the first listing of tools, beside a bare server of the SDK
bench-server: $(STAMP)
	$(BIN)/python benchmarks/server.py

# what the list of tools costs on the wire, and what of it hosts hand to a model
bench-tools: $(STAMP)
	$(BIN)/python benchmarks/tools.py

# what questions cost an agent: calls and characters of the shortest route, and whether it answers right
bench-agent: $(STAMP)
	$(BIN)/python benchmarks/agent.py

# kept answers alone and under load, beside a bare server of the SDK
bench-load: $(STAMP)
	$(BIN)/python benchmarks/load.py

# how long calls take: cold, warm, cached
bench-calls: $(STAMP)
	$(BIN)/python benchmarks/calls.py

# the index beside ctags, ripgrep, griffe, jedi, Serena and an import; the first two come from apt-get
bench-index: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	PYTHON=$(PYTHON) .ci/peer-environments serena
	$(BIN)/python benchmarks/index.py

# new traces by depth and beside torch's own counter, and cached answers
bench-cost: $(STAMP)
	$(BIN)/python benchmarks/cost.py

# SOURCES=path/to/csrc: another folder than torch's own CUDA headers
bench-kernels: $(STAMP)
	$(BIN)/python benchmarks/kernels.py $(SOURCES)

# what ships as calibration of measured devices, fitted anew from public tables of measured kernels
calibrate: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[silicon]'
	$(BIN)/python benchmarks/silicon/calibrate.py
	$(BIN)/python benchmarks/silicon/leave_one_out.py

# calibrated times and bounds against measured kernels of shapes that no fit has seen; SYSTEMS='h100_sxm l40s': other devices
bench-silicon: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[silicon]'
	$(BIN)/python benchmarks/silicon/measured_kernels.py $(SYSTEMS)

# predicted serving beside measured runs of engines; MODELS='Llama-3.1-8B': only these; FINAL=--final: the half that is looked at once
bench-served: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[silicon]'
	$(BIN)/python benchmarks/silicon/served_runs.py $(MODELS) $(FINAL)

bench-reports: $(STAMP)
	$(BIN)/python benchmarks/reports.py

# the map of a repository beside the index build; MAPS='NAME=PATH ...': other repositories too
bench-map: $(STAMP)
	$(BIN)/python benchmarks/map.py $(MAPS)

# what compiling says beside what a GPU's driver and ncu say; says so where there is no GPU
bench-gpu: $(STAMP)
	$(BIN)/python benchmarks/gpu.py

# bounds and calibrated times beside products, attention and whole passes on the GPU at hand; ON=--cpu: on the processor
bench-roofline: $(STAMP)
	$(BIN)/python benchmarks/gpu_roofline.py $(ON)

# counts of the same models by opscope and other counters beside a reference, into docs/benchmarks.md; makes their environments;
# TOOLS='--tool DeepSpeed': these anew, the others from their records
bench-peers: $(STAMP)
	PYTHON=$(PYTHON) .ci/peer-environments
	$(BIN)/python benchmarks/peers/compare.py $(TOOLS)

# every published checkpoint of the table, traced in prefill and decode
sweep-checkpoints: $(STAMP)
	$(BIN)/python tests/sweep/checkpoints.py

# every model type of transformers against concrete runs, and docs/coverage.md; takes hours, goes on where it was stopped;
# COSTS='--part 0/4 --scheduler ADDRESS': what else tests/sweep/costs.py takes
sweep-cost: $(STAMP)
	$(BIN)/python tests/sweep/costs.py $(COSTS)

# every model type analysed once, each report held against its own checks: the end of docs/coverage.md; takes hours, goes on
# where it was stopped; REPORTS='--part 0/4 --scheduler ADDRESS'
sweep-reports: $(STAMP)
	$(BIN)/python tests/sweep/reports.py $(REPORTS)

# kernels of real packages against counts by text search; SOURCES=path ...: other folders than the small wheels and torch
sweep-kernels: $(STAMP)
	$(BIN)/python tests/sweep/kernels.py --compile 10 $(SOURCES)

# 30 CUDA instances against nvcc and 30 Triton launches against Triton's own compilation
sweep-instances: $(STAMP)
	$(BIN)/python tests/sweep/instances.py

# rules of wording and form over prose that is no report: what they say of it
sweep-prose: $(STAMP)
	$(BIN)/python tests/sweep/report_prose.py

# every model type's default configuration: what the tool reads against what transformers makes
sweep-configs: $(STAMP)
	$(BIN)/python tests/sweep/configs.py

# other projects' MCP clients, Claude Code's command line and headless agents against the real server
clients: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[agent]'
	PYTHON=$(PYTHON) .ci/client-environments
	$(BIN)/pytest $(PARALLEL) -m 'clients or agents' tests/clients

# how long each tool's default answers are
sweep-answers: $(STAMP)
	$(BIN)/python tests/sweep/answer_sizes.py

sweep: sweep-cost sweep-reports sweep-index sweep-kernels sweep-instances sweep-prose sweep-configs sweep-answers

# every module class of transformers and torch, and every public name: the index against an import
sweep-index: $(STAMP)
	$(BIN)/python tests/sweep/index_classes.py
	$(BIN)/python tests/sweep/index_submodules.py
	$(BIN)/python tests/sweep/index_lines.py

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tests/kernel-sources.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(addprefix $(VENV)/lib/*/site-packages/,torch transformers sympy) || true # on all cores, where pip takes one; a template that is no Python fails, and nothing imports it
	$(BIN)/pip download --quiet --no-deps --only-binary :all: --dest $(VENV)/sources --requirement tests/kernel-sources.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-second .venv-clients .venv-peers site .mypy_cache .pytest_cache .ruff_cache
