# One command for each thing a developer does; continuous integration calls only these.
# Everything runs in .venv, which is made once from requirements.lock (hashes checked) and again when that changes.

SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp-setup
PYTHON ?=
EVENTS ?=
FILES ?=
DEDUP ?=
TXN ?=
JSON ?=
PLOT ?=
BENCH_ARGS ?= all
BASE ?= HEAD~1
COMPARE_ARGS ?=
GUARD_ARGS ?=
WALK_ARGS ?=
CLIENT_TESTS ?=
PULSAR ?=
PEERS_ARGS ?=
INTEROP_ARGS ?=
BROWSER_ARGS ?=
IMAGE_ARGS ?=
CHART_ARGS ?=
BOARDS ?=
PYTEST_ARGS ?=
MUTANTS_ARGS ?=
CRASH_ROUNDS ?= 100
HUNG_SECONDS ?= 180
# What passed leaves nothing on the disk: some peers that hang have 8 GB beside them.
KEEP_FAILED := -o tmp_path_retention_policy=failed
LINK ?=
FROM ?= 0
COUNT ?= 100
JOBS ?= 1
SIM_ARGS ?=
SCENARIO ?= transactions
KILLS ?= 200
ROUNDS ?= 50
BOOKIES ?= 5
BROKERS ?=
ZOOKEEPERS ?=
WORKERS ?= 4
LONG_WORKERS ?= 2
MUTATED_FRAMES ?= 100000
PROPERTY_EXAMPLES ?= 200
FUZZ_SECONDS ?= 60
# The seed that was asked for, if any: the draw of `make mutants` is the same without one.
DRAW := $(SEED)
SEED := $(or $(SEED),$(shell echo $$RANDOM))

.PHONY: help image image-files image-test setup spark-extras demo kills chaos hung balance takeover spark-kills test test-ledger test-long search sim boards mutants check fmt tidy bench bench-compare bench-guard bench-start walk conformance interop peers package protos blocking rest-docs lock clean fuzz attack browser api-docs chart compiled test-compiled histories wheels

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from the lock file

$(STAMP): requirements.lock pyproject.toml tools/make_environment.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash tools/make_environment.sh
	@touch $(STAMP)

demo: $(STAMP) ## real events through a broker, then through Spark; both are killed (EVENTS=file.jsonl[.gz] DEDUP=1 PLOT=file.png MODE=update); TXN=1: moved in transactions; BOOKIES=3 BROKERS=2: a broker and a bookie of a cluster are killed, and replaced; CLUSTERS=3: clusters that copy to each other
	@EVENTS="$(EVENTS)" DEDUP="$(DEDUP)" PLOT="$(PLOT)" MODE="$(MODE)" TXN="$(TXN)" JSON="$(JSON)" BOOKIES="$(if $(filter command line environment,$(origin BOOKIES)),$(BOOKIES))" BROKERS="$(BROKERS)" CLUSTERS="$(CLUSTERS)" KILLS="$(if $(filter command line environment,$(origin KILLS)),$(KILLS))" $(BIN)/python -m demo

kills: $(STAMP) ## the example of transactions, killed 200 times with its broker: each result once (KILLS=number SEED=number)
	@$(BIN)/python -m tools.join_kills --kills $(KILLS) --seed $(or $(DRAW),1)

chaos: $(STAMP) ## ZooKeeper, bookies and brokers as processes, killed and paused under official clients by a plan; the history is checked (ROUNDS=50 SEED= BOOKIES=5 BROKERS=1 ZOOKEEPERS=1 SECURITY=1: TLS and authentication on every link; CLUSTERS=3 CUTS=50 KILLED=20: clusters that copy to each other)
	@PYTHONPATH=tests:. $(BIN)/python -m tools.chaos $(if $(CLUSTERS),--clusters $(CLUSTERS) --cuts $(or $(CUTS),50) --kills $(or $(KILLED),20) --seed $(or $(DRAW),1) $(if $(JSON),--json),$(if $(SECURITY),--security) --rounds $(ROUNDS) --seed $(or $(DRAW),1) --bookies $(BOOKIES) --brokers $(or $(BROKERS),1) --zookeepers $(or $(ZOOKEEPERS),1) $(if $(JSON),--json))

hung: $(STAMP) ## each peer hangs under load, by real processes and sockets: memory and rates (HUNG_SECONDS=180 LINK=bookies)
	@HUNG_S=$(HUNG_SECONDS) $(BIN)/python -m pytest -q -rP $(KEEP_FAILED) tests/integration/test_hung_peers.py tests/integration/test_hung_visitors.py $(if $(LINK),-k "$(LINK)") $(PYTEST_ARGS)

boards: $(STAMP) ## every panel of our Grafana boards, and of those in BOARDS=DIRECTORY, on a cluster with a real Prometheus
	@$(BIN)/python -m tools.boards try $(BOARDS)

balance: $(STAMP) ## 64 bundles under uneven load on one broker, two join: how evenly they share it, in rounds of a minute (ROUNDS=10 SEED=)
	@$(BIN)/python -m tools.balance $(if $(JSON),--json) shedding --rounds $(if $(filter command line environment,$(origin ROUNDS)),$(ROUNDS),10) --seed $(or $(DRAW),1)

takeover: $(STAMP) ## one of three brokers is killed under official clients: how soon its topics answer again (TOPICS=500 USED=all)
	@$(BIN)/python -m tools.balance $(if $(JSON),--json) takeover --topics $(or $(TOPICS),500) $(if $(USED),--used $(USED))

spark-kills: $(STAMP) ## Spark's windows over troublesome events, or EVENTS=file; driver, worker, task, broker killed 20 times (KILLS= SEED= ROWS= MODE=update CONTROL=1)
	@$(BIN)/python -m demo.spark_kills --kills $(if $(filter command line environment,$(origin KILLS)),$(KILLS),20) --seed $(or $(DRAW),0) --events "$(EVENTS)" --mode $(or $(MODE),append) $(if $(ROWS),--rows $(ROWS)) $(if $(CONTROL),--control)

# Tests start hundreds of Pythons, each of which would compile all modules again where the environment forbids to keep them.
test test-ledger test-long: export PYTHONDONTWRITEBYTECODE :=

# JVMs of tests that find it start with half the CPU; without it they only take longer.
CLASSES := build/spark-home/classes.jsa
$(CLASSES): $(STAMP)
	@$(BIN)/python -m tools.spark_classes

# Atheris, beside the environment: only `make fuzz` has it, and it has wheels for few Pythons.
FUZZ_EXTRAS := build/fuzz-extras/.stamp
$(FUZZ_EXTRAS): $(STAMP) tools/fuzz.lock
	@rm -rf build/fuzz-extras
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes --target build/fuzz-extras -r tools/fuzz.lock
	@touch $(FUZZ_EXTRAS)

fuzz: $(FUZZ_EXTRAS) ## what reads tokens, certificates, password files and issuers' documents, guided by coverage (FUZZ_SECONDS=60 each, FUZZ_ARGS="--target token --keep")
	@PYTHONPATH=build/fuzz-extras $(BIN)/python -m tools.fuzz --seconds $(FUZZ_SECONDS) --seed $(or $(DRAW),1) $(FUZZ_ARGS)

# Playwright and axe-core, beside the environment: only `make browser` has them. It takes npm, and Debian's package chromium.
BROWSER_EXTRAS := build/browser-extras/.stamp
$(BROWSER_EXTRAS): $(STAMP) tools/browser.lock tools/browser/package-lock.json
	@rm -rf build/browser-extras
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes --target build/browser-extras/python -r tools/browser.lock
	@cp tools/browser/package.json tools/browser/package-lock.json build/browser-extras/
	@cd build/browser-extras && npm ci --ignore-scripts --no-audit --no-fund --silent
	@touch $(BROWSER_EXTRAS)

browser: $(BROWSER_EXTRAS) ## the console in Debian's Chromium: twelve tasks, axe-core, first paint, stress (BROWSER_ARGS="tasks audit paint stress --keep" and what --help tells)
	@PYTHONPATH=build/browser-extras/python:. $(BIN)/python -m tools.browser $(BROWSER_ARGS)

attack: $(STAMP) ## frames, requests, half handshakes and slow clients before anybody is known: a standalone with security on (ATTACK_ARGS="frames --count 1000000")
	@PYTHONPATH=tests:. $(BIN)/python -m tools.attack $(ATTACK_ARGS)

# Pandas and Spark Connect's packages, beside the environment: only the tests of docs/spark-day-one.md have them.
SPARK_EXTRAS := build/spark-extras/.stamp
$(SPARK_EXTRAS): $(STAMP) tools/spark-extras.lock
	@rm -rf build/spark-extras
	@$(BIN)/python -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes --target build/spark-extras -r tools/spark-extras.lock
	@touch $(SPARK_EXTRAS)

spark-extras: $(SPARK_EXTRAS) ## build/spark-extras, for the tests of docs/spark-day-one.md: pandas, and what Spark Connect needs

test: $(STAMP) $(CLASSES) ## everything but the long tests, four at a time (WORKERS=0: one after the other)
	@$(BIN)/python -m pytest -q -m "not long" -n $(WORKERS) $(PYTEST_ARGS)

test-ledger: export PYTHONPATH := tests
test-ledger: $(STAMP) $(CLASSES) ## make test, which writes what each file costs to tests/cpu_ledger.json (FILES="tests/unit/wire ..." for some)
	@$(BIN)/python -m pytest -q -m "not long" -n $(WORKERS) -p support.house.cpu_ledger --file-ledger tests/cpu_ledger.json $(PYTEST_ARGS) $(FILES)

# Clocks, processor time, rates or the memory of a process are what they judge: one after the other, behind the rest.
LONG_ALONE := $(addprefix tests/integration/,test_balance.py test_client_failover.py test_open_transaction_cpu.py test_rotation_under_load.py test_takeover.py test_tls_ports.py rest/test_websocket_memory.py test_hung_peers.py test_hung_visitors.py)
# Of a long test that says nothing else, seconds.
LONG_TIMEOUT ?= 600
# A third of the many seeds, and of connections dropped by the ten thousand, each week; 1: all of them.
LONG_PARTS ?= 3
# How long each peer hangs in `make test-long`; `make hung` is the patient one.
LONG_HUNG_SECONDS ?= 30
# And what must flow meanwhile, MB/s: `make hung` asks for 20.
LONG_HUNG_MB_S ?= 10
# Each failure is told at once, and what passed is noted: RESUME=1 goes on with a run of the same tree.
LONG_PYTEST := $(BIN)/python -m pytest $(KEEP_FAILED) -p support.house.tell_at_once -p support.house.resumed
# A part of which everything has passed before ends with 5: no tests were collected.
LONG_NOTHING_LEFT := $(if $(RESUME),[ $$? -eq 5 ],false)

test-long: export EVENTS := $(EVENTS)
test-long: export CRASH_ROUNDS := $(CRASH_ROUNDS)
test-long: export MUTATED_FRAMES := $(MUTATED_FRAMES)
test-long: export HUNG_S := $(LONG_HUNG_SECONDS)
test-long: export HUNG_MB_S := $(LONG_HUNG_MB_S)
test-long: export LONG_PARTS := $(LONG_PARTS)
test-long: export PYTHONPATH := tests
test-long: $(STAMP) $(CLASSES) $(SPARK_EXTRAS) ## the long tests, two at a time, a line for each: a third of the many seeds (LONG_PARTS=1: all), 100 crash rounds, 100,000 mutated frames, Spark jobs killed, peers that hang (EVENTS=file LONG_WORKERS=2 LONG_HUNG_SECONDS=30 RESUME=1: what passed at the same tree is not run again)
	@$(if $(RESUME),,rm -f build/passed.txt)
	@failed=0; \
	PROPERTY_EXAMPLES=$(PROPERTY_EXAMPLES) $(LONG_PYTEST) -q -m "not long" -n $(LONG_WORKERS) tests/property || $(LONG_NOTHING_LEFT) || failed=1; \
	$(LONG_PYTEST) -v -m long --timeout=$(LONG_TIMEOUT) --durations=60 -n $(LONG_WORKERS) --dist=worksteal $(addprefix --ignore=,$(LONG_ALONE)) $(PYTEST_ARGS) || $(LONG_NOTHING_LEFT) || failed=1; \
	$(LONG_PYTEST) -v -m long --timeout=$(LONG_TIMEOUT) --durations=30 $(PYTEST_ARGS) $(LONG_ALONE) || $(LONG_NOTHING_LEFT) || failed=1; \
	exit $$failed

search: $(STAMP) ## the property tests with new random examples (SEED=number)
	@echo "SEED=$(SEED)"
	@PROPERTY_SEED=$(SEED) PROPERTY_EXAMPLES=$(PROPERTY_EXAMPLES) $(BIN)/python -m pytest -q tests/property --hypothesis-seed=$(SEED) $(PYTEST_ARGS)

sim: $(STAMP) ## a simulation seed by seed, with a log (SCENARIO=transactions|storage|storage-beyond|misfortune|takeover|bundles|brokers|cluster|cluster-deletions|cluster-transactions|cluster-operations|leaks|mesh|migration FROM=0 COUNT=100 JOBS=1 SIM_ARGS=--go-on)
	@PYTHONPATH=tests:. $(BIN)/python -m tools.seeds --scenario $(SCENARIO) --from $(FROM) --count $(COUNT) --jobs $(JOBS) $(SIM_ARGS)

mutants: $(STAMP) ## one-line changes of the product that its short tests must catch (SEED=number, or random, for another draw)
	@$(BIN)/python -m tools.mutants $(if $(filter command line environment,$(origin WORKERS)),--workers $(WORKERS)) $(if $(DRAW),--seed $(DRAW)) $(MUTANTS_ARGS)

check: $(STAMP) ## format, lint, types, generated files, tidiness
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python tools/generate_protos.py --check
	@$(BIN)/python tools/generate_blocking.py --check
	@$(BIN)/python tools/generate_admin.py --check
	@$(BIN)/python tools/generate_rest_docs.py --check
	@$(BIN)/python tools/generate_api_docs.py --check
	@$(BIN)/python -m pytest -q tests/tidy

tidy: $(STAMP) ## the tests whose subject is the code base itself
	@$(BIN)/python -m pytest -q tests/tidy

fmt: $(STAMP) ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP) ## floor against product, one table per claim (BENCH_ARGS="publish --size 100")
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-compare: $(STAMP) ## this tree against another commit, in turns (BASE=commit COMPARE_ARGS="publish --pairs 3")
	@$(BIN)/python -m bench.compare --base "$(BASE)" $(COMPARE_ARGS)

bench-start: $(STAMP) ## CPU and memory of a start and of the command line, against another commit (BASE=commit START_ARGS="--turns 5")
	@$(BIN)/python -m bench.start_cost --base "$(BASE)" $(START_ARGS)

bench-guard: $(STAMP) ## what a message costs, counted, against another commit; needs valgrind (BASE=commit GUARD_ARGS="--row Shared")
	@$(BIN)/python -m bench.guard --base "$(BASE)" $(GUARD_ARGS)

walk: $(STAMP) ## SEND, ACK, commit, policies, statistics and a replicated add through the product, counted: calls, files, rooms, changes of room (BASE=commit JSON=1 WALK_ARGS="--rooms SEND")
	@PYTHONPATH=tests:. $(BIN)/python -m tools.walk $(if $(filter command line environment,$(origin BASE)),--base "$(BASE)") $(if $(JSON),--json) $(WALK_ARGS)

conformance: $(STAMP) ## the official Python client's own tests (CLIENT_TESTS=its tests directory BROKERS=1)
	@$(BIN)/python tests/conformance/run_official_python.py "$(CLIENT_TESTS)" --brokers $(or $(BROKERS),1)

interop: $(STAMP) ## our client and our REST against Apache Pulsar's own broker; needs Java 17 and Maven (PULSAR=version)
	@$(BIN)/python -m tools.interop --pulsar "$(PULSAR)" $(INTEROP_ARGS)

peers: $(STAMP) ## programs of our own on the official Go and Java clients; needs Go, Java 17 and Maven (PEERS_ARGS="go -k seek" SECURITY=token|tls|consume-only)
	@$(BIN)/python -m tools.peers $(if $(SECURITY),--security $(SECURITY)) $(PEERS_ARGS)

image-files: $(STAMP) ## build/image: what container/Dockerfile copies (needs a package index)
	@$(BIN)/python -m tools.image.files

image: $(STAMP) ## the container image localhost/geminga, by podman and debootstrap as root (docs/deploy.md; needs a package index)
	@$(BIN)/python -m tools.image.build

image-test: $(STAMP) ## the image in real containers: testcontainers of Java, Go and Python, Spring Boot, docs/deploy.md block by block (IMAGE_ARGS="--built page")
	@$(BIN)/python -m tools.image.check $(IMAGE_ARGS)

chart: $(STAMP) ## the Helm chart: linted, rendered for five files of values, validated without a network, its commands run by podman (CHART_ARGS="render run:proxy"; Go for the first time)
	@$(BIN)/python -m tools.chart $(CHART_ARGS)

package: $(STAMP) ## wheel and sdist, and compiled wheels of dist/ (make wheels), installed alone, on each Python here, beside other web projects, at both ends of each range (needs a package index)
	@$(BIN)/python -m tools.package_check

compiled: $(STAMP) ## build/compiled/src: the modules of every message compiled by mypyc, to measure and to mend (needs a C compiler; minutes)
	@$(BIN)/python -m tools.compiled

test-compiled: compiled ## unit and property tests, and simulations, on build/compiled/src (COMPILED_TESTS="tests/unit/wire")
	@PYTHONPATH=build/compiled/src:tests $(BIN)/python -m pytest -q -m "not long" -n $(or $(WORKERS),2) $(or $(COMPILED_TESTS),tests/unit tests/property tests/simulation)

histories: compiled ## 200 seeds of all simulations, compiled and pure: the same history of each (HISTORIES_ARGS="--from 200 --count 50")
	@PYTHONPATH=tests:. $(BIN)/python -m tools.seeds.histories $(HISTORIES_ARGS)

wheels: $(STAMP) ## dist/: a compiled wheel for each Python here and a pure one, installed and tried (needs a C compiler and a package index; WHEELS_ARGS="--python 3.12")
	@$(BIN)/python -m tools.wheels $(WHEELS_ARGS)

protos: $(STAMP) ## generate the protobuf modules again
	@$(BIN)/python tools/generate_protos.py

blocking: $(STAMP) ## generate the blocking client again
	@$(BIN)/python tools/generate_blocking.py

rest-docs: $(STAMP) ## generate the tables of docs/rest.md again
	@$(BIN)/python tools/generate_rest_docs.py

api-docs: $(STAMP) ## generate docs/api from the docstrings again
	@$(BIN)/python tools/generate_api_docs.py

lock: ## resolve requirements.lock again from pyproject.toml
	@VENV=build/lock-env PYTHON="$(PYTHON)" bash tools/make_lock.sh

clean: ## remove the environment and everything made
	@rm -rf $(VENV) build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
