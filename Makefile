# One command each, the same here and in CI. Every target makes what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# Tests start hundreds of processes: each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run demo crash clusters fuzz schemathesis interop scenarios test simgateway check docs installs format reference reconnecting bench sparkbench soak scale attack mixed mutants connections groups clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

$(VENV)/.done: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "needs Python 3.11 or newer: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer, found $$($(PYTHON) --version): name one with PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "needs Python's venv: apt-get install python3-venv"; exit 1; }
	@command -v cc >/dev/null || { echo "needs a C compiler for Qpid Proton: apt-get install gcc python3-dev"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || { echo "needs Python's headers to build Qpid Proton: apt-get install python3-dev"; exit 1; }
	@command -v git >/dev/null || { echo "needs git: apt-get install git"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: $(VENV)/.done  ## everything into .venv

run: setup  ## a log node on 127.0.0.1:5672 with its data in ./data
	$(BIN)/amqp-streams serve --data-dir data --listen 127.0.0.1:5672 --admin-listen 127.0.0.1:8672 --log events:4

demo: setup  ## a year of temperatures through a log, killed on the way, read back with two clients and a Spark job; then through the gateway
	$(BIN)/python -m examples.temperatures.demo

scenarios: setup  ## the specification's transcripts over the wire, with clients that are not ours (CLIENTS="rhea proton")
	$(BIN)/python -m tests.scenarios wire $(CLIENTS)

test: setup  ## unit, property, specification and acceptance tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m 'not slow'

check: setup  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

ROUNDS ?= 50
SEED ?=
GATEWAY_ROUNDS ?= 30
SPARK_KILLS ?= 4
SOAK_MINUTES ?= 10
crash: setup  ## ROUNDS kills of a node, GATEWAY_ROUNDS of a gateway or its node, SPARK_KILLS of a Spark job, at random moments, then SOAK_MINUTES of everything mixed: nothing is lost (SEED=n repeats the kills)
	CRASH_ROUNDS=$(ROUNDS) CRASH_GATEWAY_ROUNDS=$(GATEWAY_ROUNDS) CRASH_SPARK_KILLS=$(SPARK_KILLS) CRASH_SEED=$(SEED) $(BIN)/python -m pytest tests/crash -p no:xdist --timeout 1800 -s
	$(BIN)/python -m bench.scale.mixed --minutes $(SOAK_MINUTES) --brokers 50 --groups 200 --trouble-s 30

SECONDS ?= 600
FUZZ_ARGS ?=
fuzz: setup  ## inputs that nobody would send, for SECONDS, against everything that takes input (FUZZ_ARGS="texts --seed 7")
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --only-binary :all: --constraint constraints.txt atheris \
	  || echo "atheris has no wheel for this machine: the pure targets go without coverage"
	$(BIN)/python -m fuzz run --seconds $(SECONDS) $(FUZZ_ARGS)

EXAMPLES ?= 30
schemathesis: setup  ## every operation of the gateway's OpenAPI document with EXAMPLES generated requests, against a gateway and its node: each answer is documented
	@$(BIN)/python -c 'import schemathesis' 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m fuzz.conformance --examples $(EXAMPLES)

clusters: setup  ## Spark on a standalone cluster whose processes are killed, and over Spark Connect: batches and streams
	$(BIN)/python -m pytest tests/spark_connector/test_clusters.py -p no:xdist

SEEDS ?= 200
sim: setup  ## SEEDS runs of a whole node with clients and faults, each from its seed, and of its groups (SEED=n repeats one run and tells its story; STATE=FILE goes on with a run that was stopped)
	$(BIN)/python -m tests.simulation.runner $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(or $(FIRST),0) $(if $(STATE),--state $(STATE)) --jobs $(JOBS))
	$(if $(SEED)$(STATE),,SIM_SEEDS=$(SEEDS) $(BIN)/python -m pytest tests/simulation/groups -n $(JOBS) --timeout 600)

MUTANTS ?=
MUTANT_ARGS ?=
mutants: setup  ## put each fault that was fixed back, one at a time: the suites find it (MUTANTS="name name" MUTANT_ARGS="--suite sim")
	$(BIN)/python -m mutants run $(MUTANTS) $(MUTANT_ARGS)

simgateway: setup  ## SEEDS runs of whole gateways in virtual time while everything around them fails, each from its seed (SEED=n repeats one)
	PYTHONHASHSEED=0 SIM_GATEWAY_SEEDS=$(SEEDS) SIM_GATEWAY_SEED=$(SEED) $(BIN)/python -m pytest tests/simulation_gateway -n $(JOBS) --dist load --timeout 600

CLIENTS ?=
interop: setup  ## other people's AMQP clients against a node (CLIENTS="rhea proton")
	interop/run.sh $(CLIENTS)

reconnecting: setup  ## other people's AMQP clients go on by themselves after a restart of the node (rhea from npm, Qpid JMS through Maven)
	INSTALL_CLIENTS=1 $(BIN)/python -m pytest tests/acceptance/test_reconnecting.py -p no:xdist

docs: setup  ## the documentation as a site with search, in build/site: a broken link is an error
	$(BIN)/python -m tools.site

reference: setup  ## write docs/reference/ anew: the pages that are made from the settings in the code
	$(BIN)/python -m tools.reference

installs: setup  ## each extra in an environment of its own: does it do what it is for, and how much does it add
	$(BIN)/python -m pytest tests/test_installs.py -p no:xdist
	$(BIN)/python -m tools.installs

format: setup  ## rewrite the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

BENCH_ARGS ?=
bench: setup  ## speed beside the installed peers: table, ratios, which wanted figures are met (BENCH_ARGS=--quick)
	$(BIN)/python -m bench.run $(BENCH_ARGS)

sparkbench: setup  ## Spark: rows/s beside Parquet and JSON files, micro-batches beside Spark's own source (BENCH_ARGS="--memory 10000000")
	$(BIN)/python -m bench.spark $(BENCH_ARGS)

SCALE_ARGS ?=
scale: setup  ## 200 Brokers, 1,024 partitions, 1,000 Triggers, links and groups, 5,000 connections: memory, CPU at rest, time to Ready, probes (SCALE_ARGS="--case brokers")
	$(BIN)/python -m bench.scale $(SCALE_ARGS)

ATTACK_ARGS ?=
attack: setup  ## one tenant uses all that it may and breaks what it can, beside a neighbour whose p99 is judged: on a quiet machine (ATTACK_ARGS="--table timers")
	$(BIN)/python -m attack $(ATTACK_ARGS)

MINUTES ?= 120
mixed: setup  ## 200 Brokers and 1,000 groups for MINUTES=120 under load, poison, restarts, kills, reloads and full disks: nothing lost, everything Ready, memory flat
	$(BIN)/python -m bench.scale.mixed --minutes $(MINUTES)

MESSAGES ?= 5000000
soak: setup  ## produce and consume MESSAGES events with bounded retention: memory stays flat
	$(BIN)/python -m bench.soak --messages $(MESSAGES)

CONNECTIONS ?= 1000
connections: setup  ## CONNECTIONS connections with two links each at once: memory of an idle one, and that each answers
	$(BIN)/python -m bench.connections --connections $(CONNECTIONS)

groups: SECONDS = 120
groups: setup  ## consumer processes share a log and are killed one after the other for SECONDS=120: order, one owner, hand-over times
	$(BIN)/python -m bench.groups --seconds $(SECONDS)

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis bench/amqp/bin bench/results
