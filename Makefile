# One entry for people and for CI. `make` alone lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Where rustup puts cargo, for shells that were not told.
export PATH := $(PATH):$(HOME)/.cargo/bin
.PHONY: help test demo soak bench bench-proxy fuzz fmt clean

# Steps of `make test`, all of them when empty: make test STEPS="fmt clippy"
STEPS ?=
# For `make demo`: --auto walks through it, --help has the rest.
ARGS ?=
# Minutes of `make soak`, and what decides the order of events (any number).
SOAK_MINUTES ?= 10
SOAK_SEED ?=
# Minutes per target of `make fuzz`.
FUZZ_MINUTES ?= 2
# Targets of `make fuzz`, all of them when empty.
FUZZ_TARGETS ?=

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Everything that must hold: format, deployments, lints, tests, real peers, a real browser, docs, features, vectors, benches once
	@scripts/deps.sh test
	@scripts/test.sh $(STEPS)

demo: ## Three zones, proxies, backends and a control plane on this machine, with a dashboard: make demo ARGS=--auto
	@scripts/deps.sh demo
	@cargo run --release -- demo $(ARGS)

soak: ## Requests through a proxy for SOAK_MINUTES (default 10) while everything around it changes
	@scripts/deps.sh test
	@scripts/soak.sh $(SOAK_MINUTES) $(SOAK_SEED)

bench: ## Nanoseconds per pick and microseconds per rebuild, beside other balancers (slow to build)
	@scripts/deps.sh bench
	@scripts/bench.sh

bench-proxy: ## Requests per second, CPU per request, latency and memory beside Envoy, HAProxy and nginx
	@scripts/deps.sh bench-proxy
	@cargo build --release -p plimsoll
	@scripts/bench-proxy.sh

fuzz: ## Fuzz for FUZZ_MINUTES (default 2) per target; uses cargo-fuzz if it is installed
	@scripts/deps.sh fuzz
	@scripts/fuzz.sh $(FUZZ_MINUTES) $(FUZZ_TARGETS)

fmt: ## Format all Rust files
	@cargo fmt --all

clean: ## Remove everything that was built
	@cargo clean
	@rm -rf bench/target fuzz/target
