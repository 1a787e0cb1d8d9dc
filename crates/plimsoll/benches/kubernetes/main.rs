//! Scale benchmark of services of Kubernetes: a scripted API server with a thousand Services, whose
//! slices change all the time, and synthetic proxies that subscribe to all of them.
//!
//! `make bench-kubernetes` measures the release binary. As a test it measures a small cluster once,
//! so that the benchmark keeps working. `proxy` is a synthetic proxy.
#![expect(clippy::print_stdout, reason = "a bench prints")]
#![expect(clippy::unwrap_used, reason = "the API server is that of tests")]

mod proxy;
#[path = "../fleet/stream.rs"]
mod stream;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;
use plimsoll_testing::api_server::{self, ApiServer};
use plimsoll_xds::ads::Variant;
use serde_json::{Value, json};

use proxy::{Arrivals, Proxy};

/// Limits that the results are compared with.
const MAX_CORES: f64 = 0.2;
const MAX_MIB: f64 = 200.0;
const MAX_LATENCY: Duration = Duration::from_secs(1);
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Time in which everything must be connected, and in which all changes must have arrived.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Measure CPU and memory of the control plane, and how fast a change of a slice reaches proxies
#[derive(Clone, Debug, Parser)]
#[command(name = "kubernetes")]
struct Args {
    #[arg(long, default_value_t = 1000)]
    services: usize,
    /// Endpoints of each Service
    #[arg(long, default_value_t = 20)]
    endpoints: usize,
    /// Changes per second, each of one slice
    #[arg(long, default_value_t = 50)]
    changes: u32,
    /// Synthetic Envoys, each with all Services
    #[arg(long, default_value_t = 10)]
    proxies: usize,
    /// Duration of the changes in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Use state of the world instead of the incremental variant of xDS
    #[arg(long)]
    sotw: bool,
    /// Set by `cargo bench`; without it this runs as a test.
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    quiet: bool,
}

/// Results of a measurement.
struct Report {
    cores: f64,
    mib: f64,
    peak_mib: f64,
    latencies: Vec<Duration>,
    start: Duration,
}

fn main() -> anyhow::Result<ExitCode> {
    let mut args = Args::parse();
    if !args.bench {
        args = Args {
            services: 20,
            endpoints: 3,
            changes: 20,
            proxies: 2,
            seconds: 1,
            ..args
        };
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let report = runtime.block_on(measure(&args))?;
    if !args.bench {
        println!("Success");
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", report.table(&args));
    let passed = report.passed();
    Ok(ExitCode::from(u8::from(!passed)))
}

async fn measure(args: &Args) -> anyhow::Result<Report> {
    let server = ApiServer::start().await;
    for number in 0..args.services {
        server.put("services", api_server::service("bench", &name(number)));
        server.put("endpointslices", slice(args, number, 0));
    }
    let begun = Instant::now();
    let control = Control::start(&server.url())?;
    let arrivals = Arc::new(Arrivals::new(args.proxies));
    let names: Vec<String> = (0..args.services)
        .map(|number| format!("{}.bench:80", name(number)))
        .collect();
    for index in 0..args.proxies {
        let proxy = Proxy {
            index,
            zone: ZONES[index % ZONES.len()],
            names: names.clone(),
            variant: if args.sotw {
                Variant::Sotw
            } else {
                Variant::Delta
            },
            arrivals: Arc::clone(&arrivals),
        };
        tokio::spawn(proxy.run(control.address));
    }
    let all = args.services * args.proxies;
    wait("all proxies have all assignments", || {
        arrivals.known() == all
    })
    .await?;
    let start = begun.elapsed();

    let before = control.usage()?;
    let measured = Instant::now();
    let total = args.changes * args.seconds;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.changes);
    for change in 1..=total {
        ticks.tick().await;
        // Every Service in turn; a prime step spreads them.
        let number = change as usize * 7919 % args.services;
        arrivals.sent(&names[number], change);
        server.put("endpointslices", slice(args, number, change));
    }
    let after = control.usage()?;
    let elapsed = measured.elapsed();
    wait("all changes have arrived", || arrivals.missing() == 0).await?;
    Ok(Report {
        cores: (after.cpu - before.cpu).as_secs_f64() / elapsed.as_secs_f64(),
        mib: after.memory,
        peak_mib: control.usage()?.peak_memory,
        latencies: arrivals.latencies(),
        start,
    })
}

async fn wait(what: &str, condition: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        ensure!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("service-{number}")
}

/// A slice whose first endpoint has the number of the change in its address.
fn slice(args: &Args, number: usize, change: u32) -> Value {
    let [_, high, mid, low] = change.to_be_bytes();
    let mut endpoints = vec![endpoint(&format!("11.{high}.{mid}.{low}"), ZONES[0])];
    for host in 1..args.endpoints {
        let address = format!("10.{}.{}.{host}", number / 256, number % 256);
        endpoints.push(endpoint(&address, ZONES[host % ZONES.len()]));
    }
    json!({"metadata": {"namespace": "bench", "name": format!("{}-x7k2p", name(number)),
                        "labels": {"kubernetes.io/service-name": name(number)}},
           "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
           "endpoints": endpoints})
}

/// An endpoint with all fields that the endpoint slice controller writes.
fn endpoint(address: &str, zone: &str) -> Value {
    json!({"addresses": [address], "zone": zone, "nodeName": format!("node-of-{zone}"),
           "conditions": {"ready": true, "serving": true, "terminating": false},
           "targetRef": {"kind": "Pod", "namespace": "bench", "name": format!("pod-{address}"),
                         "uid": "5f6b1b0e-6c1f-4c1e-9f0a-000000000000"}})
}

/// The measured process; killed when dropped.
struct Control {
    process: Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

struct Usage {
    cpu: Duration,
    memory: f64,
    peak_memory: f64,
}

impl Control {
    fn start(api_server: &str) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("control.yaml");
        let config = format!(
            "admin: ''\nkubernetes: {{api_server: '{api_server}', mode: ENFORCE, region: r1}}\n"
        );
        std::fs::write(&path, config)?;
        let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["control", "--listen", "127.0.0.1:0", "--config"])
            .arg(&path)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the control plane")?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().rsplit(' ').next().unwrap_or_default();
        let address = address
            .parse()
            .with_context(|| format!("the control plane printed {line:?}"))?;
        Ok(Self {
            process,
            address,
            _directory: directory,
        })
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.process.id());
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        let fields = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest)
            .unwrap_or_default();
        let field = |number: usize| -> Option<u64> {
            let mut fields = fields.split_whitespace();
            fields.nth(number - 3)?.parse().ok()
        };
        let ticks = field(14).zip(field(15)).context("the process has exited")?;
        let mib = |name: &str| -> Option<f64> {
            let line = status.lines().find(|line| line.starts_with(name))?;
            let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kib / 1024.0)
        };
        Ok(Usage {
            cpu: Duration::from_millis((ticks.0 + ticks.1) * 10),
            memory: mib("VmRSS:").context("no memory")?,
            peak_memory: mib("VmHWM:").context("no memory")?,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Report {
    fn percentile(&self, percent: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let found = self.latencies.get(last * percent / 100);
        found.copied().unwrap_or_default()
    }

    fn passed(&self) -> bool {
        self.cores < MAX_CORES && self.peak_mib < MAX_MIB && self.percentile(100) < MAX_LATENCY
    }

    fn table(&self, args: &Args) -> String {
        let Args {
            services,
            endpoints,
            changes,
            proxies,
            seconds,
            ..
        } = args;
        let millis = |percent| self.percentile(percent).as_secs_f64() * 1000.0;
        format!(
            "{services} services, {} endpoints, {changes} changes per second for {seconds} s, \
             {proxies} proxies ({})\n\
             CPU                      {:8.3} cores   (limit {MAX_CORES})\n\
             memory                   {:8.1} MiB\n\
             memory, most ever        {:8.1} MiB     (limit {MAX_MIB})\n\
             change at a proxy, p50   {:8.1} ms\n\
             change at a proxy, p99   {:8.1} ms\n\
             change at a proxy, last  {:8.1} ms      (limit {:.0})\n\
             start to all proxies     {:8.1} ms",
            services * endpoints,
            if args.sotw {
                "state of the world"
            } else {
                "delta"
            },
            self.cores,
            self.mib,
            self.peak_mib,
            millis(50),
            millis(99),
            millis(100),
            MAX_LATENCY.as_secs_f64() * 1000.0,
            self.start.as_secs_f64() * 1000.0,
        )
    }
}
