# Entry point for developers and CI. `make` without a target lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Where rustup installs cargo, in case the shell's PATH does not have it.
export PATH := $(PATH):$(HOME)/.cargo/bin
.PHONY: help test test-kubernetes test-package matrix api reference msrv demo replicas release soak chaos silent-reports bench bench-loop bench-control bench-kubernetes bench-proxy attack-proxy fuzz mutants fmt clean

# Steps of `make test`; all if empty: make test STEPS="fmt clippy"
STEPS ?=
# Arguments of `make demo`: --auto runs through all steps, --help lists all options.
ARGS ?=
# Minutes of `make soak`, and the seed for the order of events (any number).
SOAK_MINUTES ?= 10
SOAK_SEED ?=
# Minutes per target of `make fuzz`.
FUZZ_MINUTES ?= 2
# Minutes of random faults in `make chaos`, their seed (any number), and another version to upgrade to and from.
CHAOS_MINUTES ?= 10
CHAOS_SEED ?=
CHAOS_PREVIOUS ?=
# Cells of `make matrix` whose name contains this; all if empty.
MATRIX_CELLS ?=
# Targets of `make fuzz`; all if empty.
FUZZ_TARGETS ?=
# Mutants that `make mutants` tests, the crates they are drawn from, the seed of the draw (any number; random
# if empty), and the percentage that tests must kill.
MUTANTS_SAMPLE ?= 60
MUTANTS_CRATES ?= $(notdir $(wildcard crates/*))
MUTANTS_SEED ?=
MUTANTS_KILL ?= 90

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Run all checks: format, dependencies, deployments, lints, tests, real peers, a real browser, vectors, benches once, docs, public APIs, features, packages
	@scripts/deps.sh test
	@scripts/test.sh $(STEPS)

test-kubernetes: ## Run control plane and Envoys against the API machinery of Kubernetes, or a kube-apiserver in KUBEBUILDER_ASSETS
	@scripts/deps.sh test-kubernetes
	@cargo test --workspace --all-features --test e2e -- --test-threads=2 --ignored real_kubernetes::

test-package: ## Install, start, upgrade and remove the Debian package in a clean Debian with its systemd, under load (root)
	@scripts/deps.sh test-package
	@cargo build
	@scripts/test-package.sh "$${CARGO_TARGET_DIR:-target}/debug/plimsoll"

matrix: ## Take every signal, zone and link away from every data plane, and compare it with routing by host counts: make matrix MATRIX_CELLS=grpc
	@scripts/deps.sh test
	@MATRIX_CELLS="$(MATRIX_CELLS)" cargo test --workspace --all-features --test e2e -- --ignored --nocapture --test-threads=1 real_peers::losses

api: ## Accept the public API of the libraries as it is now (crates/*/public-api.txt)
	@scripts/api.sh accept

reference: ## Write docs/reference from the code
	@PLIMSOLL_REFERENCE_ACCEPT=1 cargo test --quiet -p plimsoll --all-features --bin plimsoll -- reference::the_pages

msrv: ## Compile the libraries with the oldest supported Rust (needs rustup)
	@scripts/msrv.sh

demo: ## Run three zones of proxies and backends and a control plane here, with a dashboard: make demo ARGS=--auto
	@scripts/deps.sh demo
	@cargo run --release -- demo $(ARGS)

replicas: ## Run three replicas of the control plane and an etcd with three members here
	@scripts/deps.sh replicas
	@cargo build --release
	@scripts/replicas.sh

release: ## Build the release in target/dist: Debian package, archive, image, bill of materials, checksums; program and debug symbols
	@scripts/deps.sh release
	@scripts/release.sh

soak: ## Send requests through a proxy for SOAK_MINUTES (default 10) while everything around it changes
	@scripts/deps.sh test
	@scripts/soak.sh $(SOAK_MINUTES) $(SOAK_SEED)

chaos: ## Run replicas and etcd with faults between them for CHAOS_MINUTES (default 10), a flood and an outage; needs root: make chaos CHAOS_SEED=7
	@scripts/deps.sh test
	@scripts/deps.sh chaos
	@cargo build --release
	@scripts/chaos.sh "$(CHAOS_MINUTES)" "$(CHAOS_SEED)" $(CHAOS_PREVIOUS)

silent-reports: ## Run proxies, clients and modules in Envoys for five minutes without load reports (14 minutes in all)
	@scripts/deps.sh test
	@cargo test --workspace --all-features --test e2e -- --test-threads=2 --nocapture --ignored real_peers::silent_reports::

bench-loop: ## Assert what we promise of closed loops, replicas and a control plane under attack, one after the other (40 minutes, nothing else running)
	@scripts/deps.sh test
	@PLIMSOLL_PROMISED_LIMITS=1 cargo test --workspace --all-features --test attacks -- --test-threads=1
	@PLIMSOLL_PROMISED_LIMITS=1 cargo test --workspace --all-features --test e2e -- --test-threads=1 --nocapture real_peers::closed_loop:: real_peers::capacity:: real_peers::replicas::

bench: ## Measure picks and rebuilds, compared with other load balancers (slow to build)
	@scripts/deps.sh bench
	@scripts/bench.sh

bench-control: ## Measure the control plane with 5,000 synthetic proxies: make bench-control ARGS=--delta
	@cargo bench --profile release -p plimsoll --bench fleet -- $(ARGS)
	@cargo bench -p plimsoll-control --bench one_service

bench-kubernetes: ## Measure the control plane with 1,000 Services of Kubernetes: make bench-kubernetes ARGS=--sotw
	@cargo bench --profile release -p plimsoll --bench kubernetes -- $(ARGS)

bench-proxy: ## Measure the proxy compared with Envoy, HAProxy and nginx
	@scripts/deps.sh bench-proxy
	@cargo build --release
	@scripts/bench-proxy.sh

attack-proxy: ## Attack the proxy (and Envoy) with slow and silent clients, and measure honest clients beside
	@scripts/deps.sh attack-proxy
	@cargo build --release
	@scripts/attack-proxy.sh $(ARGS)

fuzz: ## Fuzz for FUZZ_MINUTES (default 2) per target; uses cargo-fuzz if it is installed
	@scripts/deps.sh fuzz
	@scripts/fuzz.sh $(FUZZ_MINUTES) $(FUZZ_TARGETS)

mutants: ## Run the tests of a crate on MUTANTS_SAMPLE (default 60) random mutants of MUTANTS_CRATES (default all); fails if fewer than MUTANTS_KILL (90) % are killed
	@scripts/deps.sh mutants
	@scripts/mutants.sh $(MUTANTS_SAMPLE) "$(MUTANTS_SEED)" $(MUTANTS_KILL) $(MUTANTS_CRATES)

fmt: ## Format all Rust files
	@cargo fmt --all

clean: ## Remove all build output
	@cargo clean
	@rm -rf bench/target fuzz/target
