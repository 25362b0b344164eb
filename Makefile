# One command each, the same here and in CI. Every target installs what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# Tests start hundreds of processes: each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run demo crash sim simhomes simnumbered clusters fuzz sanitize schemathesis interop scenarios test heavy simgateway check docs installs release dist deb format reference man reconnecting peers kafka kafka-stop cluster chaos kafka-failures kafka-spec bench sparkbench soak scale flat attack mixed mutants connections groups clean browser vendored

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

# pyspark has no wheel. Its archive of 450 MB is copied several times, on one core: the other core installs the rest
# meanwhile. A wheel that is installed at once need not be compressed (build.cfg). The last pip installs what the pins
# lack.
# pip compiles all modules, 190 MB, on one core. COMPILE uses all cores, and leaves out what is hardly ever imported: tests
# of other packages, sources of libraries, and the client of Kubernetes, which imports a module when it is used. Some
# packages have files that this Python cannot compile.
# setuptools says for each build that two of its tables are experimental.
PIP := PYTHONWARNINGS='ignore:`[tool.' DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/build.cfg $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x 'site-packages/(fontTools|kubernetes|mypyc?|.*/tests)/' $(VENV)/lib

$(VENV)/.done: pyproject.toml constraints.txt amqp_streams/proton/_loops.c amqp_streams/kafka/brokers/_records.c
	@command -v $(PYTHON) >/dev/null || { echo "needs Python 3.11 or newer: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer, found $$($(PYTHON) --version): name one with PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "needs Python's venv: apt-get install python3-venv"; exit 1; }
	@command -v cc >/dev/null || { echo "needs a C compiler for Qpid Proton: apt-get install gcc python3-dev"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || { echo "needs Python's headers to build Qpid Proton: apt-get install python3-dev"; exit 1; }
	@command -v git >/dev/null || { echo "needs git: apt-get install git"; exit 1; }
	@echo "setup: 1 of 4: make the environment $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@date +%s >$(VENV)/.began
	@printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/build.cfg
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "setup: 2 of 4: install PySpark (450 MB); at the same time 3 of 4: install $$(grep -c == constraints.txt) other packages"
	@$(PIP) --no-deps pyspark & spark=$$!; \
	$(PIP) --no-deps --requirement <(sed '/^#/,$$d; /^pyspark=/d' constraints.txt) --editable . \
	  || { kill $$spark; exit 1; }; \
	echo "setup: 3 of 4: done after $$(( $$(date +%s) - $$(<$(VENV)/.began) )) s; waiting for PySpark"; $(COMPILE); wait $$spark
	@echo "setup: 4 of 4: check that nothing is missing"
	@$(PIP) 'amqp-event-streams[dev]'
	@$(COMPILE) || true
	@echo "setup: installed in $$(( $$(date +%s) - $$(<$(VENV)/.began) )) s"
	@touch $@

setup: $(VENV)/.done  ## install everything into .venv; takes one to five minutes

run: setup  ## start a node on 127.0.0.1:5672 with its data in ./data
	$(BIN)/amqp-streams serve --data-dir data --listen 127.0.0.1:5672 --admin-listen 127.0.0.1:8672 --log events:4

demo: setup  ## send a year of temperatures to a log, kill the node meanwhile, read with two clients and a Spark job; then the same through the gateway
	$(BIN)/python -m examples.temperatures.demo

scenarios: setup  ## play the transcripts of the specification over the wire, with clients of other projects (CLIENTS="rhea proton")
	$(BIN)/python -m tests.scenarios wire $(CLIENTS)

# Half of the time, a test waits for a disk or for another process.
FORKS ?= $(shell expr 3 \* $$(nproc))
TESTS := $(BIN)/python -m pytest -p tests.forks --forks $(FORKS)
HEAVY ?=
test: setup  ## run the unit, property, specification, acceptance and short crash tests (HEAVY=yes: together with those of make heavy, as CI does)
	$(TESTS) $(if $(HEAVY),--hypothesis-profile=half -m 'not slow',--hypothesis-profile=quick -m 'not heavy and not slow')

heavy: setup  ## run the tests that make test leaves out: Spark, Kafka brokers, browser, attacks; each property with all its examples
	$(TESTS) -m '(heavy or hypothesis) and not slow'

check: setup  ## check format, style, types and layers of the code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

ROUNDS ?= 50
SEED ?=
GATEWAY_ROUNDS ?= 30
SPARK_KILLS ?= 4
SOAK_MINUTES ?= 10
crash: setup  ## kill a node and backups of it ROUNDS times, a gateway or its node GATEWAY_ROUNDS times, a Spark job SPARK_KILLS times, at random moments; then make mixed for SOAK_MINUTES (SEED=n repeats the kills)
	CRASH_ROUNDS=$(ROUNDS) CRASH_GATEWAY_ROUNDS=$(GATEWAY_ROUNDS) CRASH_SPARK_KILLS=$(SPARK_KILLS) CRASH_SEED=$(SEED) $(BIN)/python -m pytest tests/crash tests/amqp_streams/storage/backups/test_interleaved.py -p no:xdist --timeout 1800 -s
	$(BIN)/python -m bench.scale.mixed --minutes $(SOAK_MINUTES) --brokers 50 --groups 200 --trouble-s 30

SECONDS ?= 600
FUZZ_ARGS ?=
fuzz: setup  ## send random and invalid input to everything that takes input, for SECONDS (FUZZ_ARGS="texts --seed 7")
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --only-binary :all: --constraint constraints.txt atheris \
	  || echo "atheris has no wheel for this machine: the pure targets go without coverage"
	$(BIN)/python -m tools.sanitize
	$(BIN)/python -m fuzz run --seconds $(SECONDS) $(FUZZ_ARGS)

sanitize: setup  ## build the compiled loops with sanitizers for memory errors and undefined behaviour, and run their tests
	$(BIN)/python -m tools.sanitize

EXAMPLES ?= 30
schemathesis: setup  ## send EXAMPLES generated requests to every operation of the gateway's OpenAPI document, and check that each answer is documented
	@$(BIN)/python -c 'import schemathesis' 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m fuzz.conformance --examples $(EXAMPLES)

clusters: setup  ## run Spark on a standalone cluster whose processes are killed, and over Spark Connect
	$(BIN)/python -m pytest tests/spark_connector/test_clusters.py -p no:xdist

SEEDS ?= 200
sim: setup  ## simulate SEEDS whole nodes with clients and faults, and their groups (SEED=n repeats one run and prints what happens; STATE=FILE continues a run that was stopped)
	$(BIN)/python -m tests.simulation.runner $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(or $(FIRST),0) $(if $(STATE),--state $(STATE)) --jobs $(JOBS))
	$(if $(SEED)$(STATE),,SIM_SEEDS=$(SEEDS) $(BIN)/python -m pytest tests/simulation/groups -n $(JOBS) --timeout 600)

simhomes: setup  ## simulate SEEDS times several nodes on Kafka that share consumer groups, while Kafka, networks and processes fail (SEED=n repeats one run and prints what happens; STATE=FILE continues)
	$(BIN)/python -m tests.simulation.runner --homes $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(or $(FIRST),0) $(if $(STATE),--state $(STATE)) --jobs $(JOBS))

MUTANTS ?=
MUTANT_ARGS ?=
simnumbered: setup  ## simulate SEEDS times idempotent producers on several nodes on Kafka, while Kafka, networks and processes fail (SEED=n repeats one run and prints what happens; STATE=FILE continues)
	$(BIN)/python -m tests.simulation.runner --numbered $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(or $(FIRST),0) $(if $(STATE),--state $(STATE)) --jobs $(JOBS))

mutants: setup  ## bring back each fixed fault, one at a time, and show which suite finds it (MUTANTS="name name" MUTANT_ARGS="--suite sim --cheapest --missing")
	$(BIN)/python -m mutants run $(MUTANTS) $(MUTANT_ARGS)

simgateway: setup  ## simulate SEEDS whole gateways while everything around them fails (SEED=n repeats one run)
	PYTHONHASHSEED=0 SIM_GATEWAY_SEEDS=$(SEEDS) SIM_GATEWAY_SEED=$(SEED) $(BIN)/python -m pytest tests/simulation_gateway -n $(JOBS) --dist load --timeout 600

CLIENTS ?=
interop: setup  ## test a node with AMQP clients of other projects (CLIENTS="rhea proton")
	interop/run.sh $(CLIENTS)

reconnecting: setup  ## test that AMQP clients of other projects continue by themselves after a restart of the node (rhea from npm, Qpid JMS from Maven)
	INSTALL_CLIENTS=1 $(BIN)/python -m pytest tests/acceptance/test_reconnecting.py -p no:xdist

browser: setup  ## test the console in a headless Chromium (Debian: apt-get install chromium), and write the screenshots of docs/console.md
	SCREENSHOTS=docs/images/console $(BIN)/python -m pytest tests/web_console/browser -p no:xdist

vendored: setup  ## compare the scripts of other projects in the console with their packages in the npm registry; needs npm
	$(BIN)/python -m tools.vendored

docs: setup  ## build the documentation as a site with search in build/site; a broken link is an error
	$(BIN)/python -m tools.site

reference: setup  ## generate the pages of docs/reference/ that list settings and commands, and the dashboards of Grafana
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.dashboards

man: setup  ## write a man page for each command of both programs into build/man/man1
	$(BIN)/python -m tools.commands

installs: setup  ## install each extra into an environment of its own, try it, and print its number of packages and MB
	$(BIN)/python -m pytest tests/test_installs.py -p no:xdist
	$(BIN)/python -m tools.installs

VERSION ?=
release: setup  ## cut the changelog, and build, check and try the distributions of VERSION=1.2.0 in release/1.2.0 (TAG=yes commits and tags)
	@[[ -n "$(VERSION)" ]] || { echo "which version? make release VERSION=1.2.0"; exit 2; }
	$(BIN)/python -m tools.release cut $(VERSION) $(if $(TAG),--tag)

dist: setup  ## build the distributions of the last commit into build/dist, with a wheel of Qpid Proton
	$(BIN)/python -m tools.release build

deb: setup  ## build a Debian package of the last commit, with the services of node and gateway, into build/dist
	$(BIN)/python -m tools.debian

format: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

PEERS ?= kafka,kafka-load,artemis,qpid-j,rabbitmq,knative
peers: setup  ## install the products that make bench compares with into build/peers or PEERS_DIR (PEERS=artemis); some need root and 10 minutes
	$(BIN)/python -m bench.products.install --only $(PEERS)

kafka: setup  ## install Kafka from Maven Central and start three brokers on loopback, with data and logs in build/kafka
	$(BIN)/python -m bench.products.kafka_cluster start

kafka-stop: setup  ## stop the brokers of make kafka; their logs stay in build/kafka
	$(BIN)/python -m bench.products.kafka_cluster stop

cluster: setup  ## run three Kafka brokers, three nodes with consumer groups, PostgreSQL and two gateways on loopback, and print where they are; Ctrl-C stops them
	$(BIN)/python -m bench.products.cluster

kafka-spec: setup  ## run the tests and the scenarios of the specification with nodes on Kafka, and the suite of stores on topics that exist; make heavy has a sample of them
	$(BIN)/python -m pytest tests/kafka_spec -p no:xdist

CHAOS_ARGS ?=
chaos: SECONDS = 1200
chaos: setup  ## kill, stop, cut off and restart Kafka brokers, nodes and clients for SECONDS=1200, and check producers, readers and consumer groups (SEED=n repeats the choice of disturbances; CHAOS_ARGS="--with gateway,spark --json")
	$(BIN)/python -m bench.brokers.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

FAILURE_ARGS ?=
kafka-failures: setup  ## print the table of what clients see of each failure of Kafka and of nodes, from runs (FAILURE_ARGS="--only broker-killed --json")
	$(BIN)/python -m bench.brokers.failures $(FAILURE_ARGS)

BENCH_ARGS ?=
bench: setup  ## measure the speed of engine and gateway, next to the products of make peers (BENCH_ARGS="--parts batched --sizes 100")
	$(BIN)/python -m bench.run $(BENCH_ARGS)

sparkbench: setup  ## measure the speed of the Spark connector, next to Parquet, JSON and Spark's own source (BENCH_ARGS="--memory 10000000")
	$(BIN)/python -m bench.spark $(BENCH_ARGS)

SCALE_ARGS ?=
scale: setup  ## test large numbers of objects: memory, CPU of an idle process, time until objects are Ready, response time of /readyz (SCALE_ARGS="--case brokers")
	$(BIN)/python -m bench.scale $(SCALE_ARGS)

FLAT_ARGS ?=
flat: setup  ## show that the cost of an event does not grow with links, partitions and Triggers, and how long opening takes (FLAT_ARGS="--axis links")
	$(BIN)/python -m bench.scale.flat $(FLAT_ARGS)

ATTACK_ARGS ?=
attack: setup  ## attack a node and a gateway, and measure how this affects another client; needs an idle machine (ATTACK_ARGS="--table timers")
	$(BIN)/python -m attack --out build/attack.txt $(ATTACK_ARGS)

MINUTES ?= 120
mixed: setup  ## run 200 Brokers and 1,000 groups for MINUTES=120 with load, invalid input, restarts, kills, reloads and full disks, and check that no event is lost
	$(BIN)/python -m bench.scale.mixed --minutes $(MINUTES)

MESSAGES ?= 5000000
soak: setup  ## send and receive MESSAGES events with bounded retention, and measure the memory of the node
	$(BIN)/python -m bench.soak --messages $(MESSAGES)

CONNECTIONS ?= 1000
connections: setup  ## open CONNECTIONS connections with two links each, and measure the memory of a connection
	$(BIN)/python -m bench.connections --connections $(CONNECTIONS)

groups: SECONDS = 120
groups: setup  ## kill the members of a group, one after another, for SECONDS=120: order, one owner, time of a handover
	$(BIN)/python -m bench.groups --seconds $(SECONDS)

clean:  ## remove .venv, build and the results of measurements; data stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis bench/amqp/bin bench/results
