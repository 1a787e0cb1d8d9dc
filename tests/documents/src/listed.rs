//! Lists for the tests of documents: pages, commands that tests cannot run, and servers.

/// Page with commands to run.
pub struct Page {
    pub path: &'static str,
    /// Statements to run before the page.
    pub given: &'static [&'static str],
    /// Whether it needs an Envoy; such pages are run by the e2e tests.
    pub envoy: bool,
}

/// Command that is not run.
pub struct NotRun {
    /// Start of the command.
    pub command: &'static str,
    pub reason: &'static str,
    /// File that tests the same as far as possible.
    pub instead: &'static str,
}

/// Server and its readiness check.
pub(crate) struct Server {
    /// Part of the statement that starts it.
    pub command: &'static str,
    pub(crate) ready: Ready,
}

pub(crate) enum Ready {
    /// These ports accept connections.
    Ports(&'static [u16]),
    /// The control plane knows a node.
    Node,
}

const CONTROL: &str = "plimsoll control -c examples/control/control.yaml &";
const SIDECAR: &str = "plimsoll proxy -c examples/proxy/sidecar/proxy.yaml &";

/// All pages with commands.
pub const PAGES: [Page; 32] = [
    with_envoy("README.md"),
    page("RELEASING.md"),
    given("docs/admin-api.md", &[CONTROL, SIDECAR]),
    page("docs/benchmarks.md"),
    page("docs/choose.md"),
    page("docs/cli.md"),
    page("docs/client.md"),
    page("docs/dashboard.md"),
    page("docs/demo.md"),
    page("docs/envoy-module.md"),
    page("docs/explain.md"),
    given("docs/game-days.md", &[CONTROL, SIDECAR]),
    page("docs/guides/axum-reqwest.md"),
    page("docs/guides/hyper.md"),
    page("docs/guides/orca.md"),
    page("docs/guides/own-proxy.md"),
    page("docs/guides/tonic.md"),
    page("docs/how-it-works.md"),
    page("docs/kubernetes.md"),
    page("docs/migrating.md"),
    with_envoy("docs/mtls.md"),
    given("docs/operations.md", &[CONTROL, SIDECAR]),
    page("docs/orca-backend.md"),
    page("docs/proxy.md"),
    page("docs/relay.md"),
    page("docs/replicas.md"),
    page("docs/results.md"),
    page("docs/simulator.md"),
    with_envoy("docs/tutorial-envoy.md"),
    page("examples/control/README.md"),
    page("examples/envoy-module/README.md"),
    page("fuzz/README.md"),
];

/// Commands that no test inside `make test` can run.
pub const NOT_RUN: [NotRun; 12] = [
    NotRun {
        command: "make bench",
        reason: "builds and measures for minutes",
        instead: "scripts/test.sh", // the step `benches` runs each bench once
    },
    NotRun {
        command: "make demo",
        reason: "builds a release and runs until Ctrl-C",
        instead: "tests/e2e/demo.rs",
    },
    NotRun {
        command: "make replicas",
        reason: "builds a release and runs until Ctrl-C",
        instead: "tests/e2e/real_peers/replicas.rs",
    },
    NotRun {
        command: "cargo install",
        reason: "builds a release and installs it",
        instead: "crates/plimsoll/tests/cli.rs", // the same program, as the tests have built it
    },
    NotRun {
        command: "cargo build --release -p plimsoll-envoy",
        reason: "builds a release",
        instead: "crates/plimsoll-envoy/tests/e2e/main.rs", // the same library, built for tests
    },
    NotRun {
        command: "cargo publish",
        reason: "uploads to crates.io",
        instead: "scripts/package.sh", // the step `package`
    },
    NotRun {
        command: "kubectl",
        reason: "needs a Kubernetes cluster",
        instead: "tests/e2e/real_kubernetes/quick_start.rs", // without kubelet
    },
    NotRun {
        command: "docker build",
        reason: "needs Docker and builds a release",
        instead: "tests/documents/src/deployed.rs",
    },
    NotRun {
        command: "cargo test --workspace --all-features --test e2e -- --ignored",
        reason: "measures for half an hour",
        instead: "tests/e2e/real_peers/closed_loop.rs",
    },
    NotRun {
        command: "RUSTFLAGS=\"--cfg fuzzing\" cargo build --manifest-path fuzz/Cargo.toml",
        reason: "builds a release",
        instead: "crates/plimsoll-core/tests/suite/ops.rs", // the same interpreter
    },
    NotRun {
        command: "fuzz/target/release/balancer_ops",
        reason: "needs that build",
        instead: "crates/plimsoll-core/tests/suite/ops.rs",
    },
    NotRun {
        command: "cargo test --release -p plimsoll-sim --test suite -- \
                  loop_quality --ignored --nocapture",
        reason: "needs a release build and minutes",
        instead: "crates/plimsoll-sim/tests/suite/loop_quality.rs",
    },
];

/// All servers that documents start.
pub(crate) const SERVERS: [Server; 19] = [
    Server {
        command: "plimsoll control -c examples/control/control.yaml",
        ready: Ready::Ports(&[18000, 18001]),
    },
    Server {
        command: "plimsoll control -c examples/control/mtls.yaml",
        ready: Ready::Ports(&[18000, 18001]),
    },
    Server {
        command: "plimsoll proxy -c examples/proxy/sidecar/proxy.yaml",
        ready: Ready::Ports(&[8080, 9901]),
    },
    Server {
        command: "plimsoll proxy -c examples/proxy/gateway/proxy.yaml",
        ready: Ready::Ports(&[8080, 9901]),
    },
    Server {
        command: "plimsoll proxy -c target/$zone.yaml",
        ready: Ready::Ports(&[10001, 10002, 10003]),
    },
    Server {
        command: "plimsoll control -c examples/relay/control.yaml",
        ready: Ready::Ports(&[18100, 18101]),
    },
    Server {
        command: "envoy -c examples/control/envoy-backends.yaml",
        ready: Ready::Ports(&[19000, 19005, 19009]),
    },
    Server {
        command: "envoy -c target/$zone.json",
        ready: Ready::Ports(&[10001, 10002, 10003]),
    },
    Server {
        command: "envoy -c $z.json",
        ready: Ready::Node,
    },
    Server {
        command: "envoy -c envoy.json",
        ready: Ready::Node,
    },
    Server {
        command: "for port in 19000 19001 19002; do cargo run -q -p plimsoll-orca --example axum",
        ready: Ready::Ports(&[19000, 19001, 19002]),
    },
    Server {
        command: "cargo run -q -p plimsoll-orca --example axum -- 127.0.0.1:$port",
        ready: Ready::Ports(&[
            19000, 19001, 19002, 19003, 19004, 19005, 19006, 19007, 19008, 19009,
        ]),
    },
    Server {
        command: "cargo run -q -p plimsoll-orca --example axum -- 127.0.0.1:19000",
        ready: Ready::Ports(&[19000]),
    },
    Server {
        command: "cargo run -p plimsoll-orca --example axum",
        ready: Ready::Ports(&[8080]),
    },
    Server {
        command: "cargo run -q -p plimsoll-orca --example hyper -- 127.0.0.1:19001",
        ready: Ready::Ports(&[19001]),
    },
    Server {
        command: "cargo run -q -p plimsoll-orca --example plain -- 127.0.0.1:19002",
        ready: Ready::Ports(&[19002]),
    },
    Server {
        command: "cargo run -q -p plimsoll-orca --example tonic -- 127.0.0.1:19000",
        ready: Ready::Ports(&[19000]),
    },
    Server {
        command: "--features reqwest --example axum_reqwest -- 127.0.0.1:8080",
        ready: Ready::Ports(&[8080]),
    },
    Server {
        command: "cargo run -q -p plimsoll-core --example own_proxy -- 127.0.0.1:8080",
        ready: Ready::Ports(&[8080]),
    },
];

const fn page(path: &'static str) -> Page {
    given(path, &[])
}

const fn given(path: &'static str, given: &'static [&'static str]) -> Page {
    Page {
        path,
        given,
        envoy: false,
    }
}

const fn with_envoy(path: &'static str) -> Page {
    Page {
        path,
        given: &[],
        envoy: true,
    }
}

/// Returns the entry of a statement that is not run.
pub(crate) fn not_run(statement: &str) -> Option<&'static NotRun> {
    NOT_RUN
        .iter()
        .find(|one| statement.starts_with(one.command))
}
