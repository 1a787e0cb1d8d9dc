//! Results of a measurement with their limits, as a table or JSON.

use std::fmt::Write as _;
use std::time::Duration;

use plimsoll_xds::ads::Variant;
use serde::Serialize;

use super::spread::Outcome;
use crate::measure::{Plan, Window};

/// Number of proxies that the limits of CPU and memory are for; more may use more, in proportion.
const PROXIES: f64 = 5000.0;
/// Limit of the CPU usage of the control planes.
const MAX_CORES: f64 = 0.3;
/// Limit of the memory of a control plane, in MiB.
const MAX_MEMORY: f64 = 350.0;
/// Limit of the time to connect all proxies.
const MAX_CONNECT: Duration = Duration::from_secs(10);
/// Limit of the time from the first to the last proxy that has an update.
const MAX_SPREAD: Duration = Duration::from_secs(1);
const MIB: f64 = 1_048_576.0;

/// Results and the machine they were measured on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    nodes: usize,
    interval_s: f64,
    duration_s: f64,
    variant: &'static str,
    replicas: usize,
    rows: Vec<Row>,
}

/// One measured value and its limit.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// Upper limit, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<bool>,
}

/// Machine of the measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    memory_mib: u64,
}

/// Raw results of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) connect_time: Duration,
    pub(crate) steady: Window,
    pub(crate) stepped: Window,
    pub(crate) updates: Outcome,
    pub(crate) peak_memory: u64,
    pub(crate) lost: u64,
}

impl Machine {
    pub(crate) fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = field(&memory, "MemTotal").unwrap_or_default();
        let kilobytes = memory.split(' ').next().and_then(|kb| kb.parse().ok());
        Self {
            cpu: field(&cpu, "model name").unwrap_or_else(|| "unknown CPU".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            memory_mib: kilobytes.unwrap_or(0_u64) >> 10,
        }
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, plan: &Plan, figures: Figures) -> Self {
        Self {
            machine,
            nodes: plan.nodes,
            interval_s: plan.interval.as_secs_f64(),
            duration_s: plan.duration.as_secs_f64(),
            variant: match plan.variant {
                Variant::Sotw => "state of the world",
                Variant::Delta => "incremental",
            },
            replicas: plan.replicas,
            rows: rows(plan, &figures),
        }
    }

    /// Whether all limits hold.
    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed != Some(false))
    }

    /// Returns a value by name; NaN if there is none.
    pub(crate) fn value(&self, name: &str) -> f64 {
        let row = self.rows.iter().find(|row| row.name == name);
        row.map_or(f64::NAN, |row| row.value)
    }

    /// Formats the results as an aligned table.
    pub(crate) fn table(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{} proxies ({}), a report of 61 KB each every {} s, measured for {} s\n\
             on {} cores of {}, {} MiB; the proxies run on them too\n\n",
            self.nodes,
            self.variant,
            self.interval_s,
            self.duration_s,
            machine.cores,
            machine.cpu,
            machine.memory_mib,
        );
        if self.replicas > 1 {
            let _ = writeln!(
                text,
                "{} replicas: CPU of all, memory of the largest\n",
                self.replicas
            );
        }
        for row in &self.rows {
            let value = match row.value {
                value if value.fract() == 0.0 => format!("{value:.0}"),
                value => format!("{value:.2}"),
            };
            let verdict = match (row.bar, row.passed) {
                (Some(bar), Some(true)) => format!("ok, below {bar}"),
                (Some(bar), _) => format!("MISSED, not below {bar}"),
                (None, Some(false)) => "MISSED".to_owned(),
                (None, _) => String::new(),
            };
            let line = format!("{:<58} {value:>9} {:<5} {verdict}", row.name, row.unit);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

fn rows(plan: &Plan, figures: &Figures) -> Vec<Row> {
    let Figures {
        connect_time,
        steady,
        stepped,
        updates,
        peak_memory,
        lost,
    } = figures;
    let arrived = updates.updates > 0 && updates.incomplete == 0;
    let slowest = updates.slowest.as_secs_f64();
    let mut slow = below(
        "slowest update, first proxy to last",
        slowest,
        "s",
        MAX_SPREAD.as_secs_f64(),
    );
    slow.passed = Some(arrived && updates.slowest < MAX_SPREAD);
    #[expect(clippy::cast_precision_loss, reason = "sizes and counts for people")]
    let number = |count: u64| count as f64;
    let scale = (number(plan.nodes as u64) / PROXIES).max(1.0);
    let mut gone = plain("proxies lost on the way", number(*lost), "");
    gone.passed = Some(*lost == 0);
    vec![
        below(
            "all proxies connected and served after",
            connect_time.as_secs_f64(),
            "s",
            MAX_CONNECT.as_secs_f64(),
        ),
        below("CPU, steady", steady.cores, "cores", scale * MAX_CORES),
        plain(
            "memory, steady (resident)",
            number(steady.memory) / MIB,
            "MiB",
        ),
        plain("reports taken, steady", steady.reports_per_second, "/s"),
        below(
            "memory, most ever (resident)",
            number(*peak_memory) / MIB,
            "MiB",
            scale * MAX_MEMORY,
        ),
        plain("CPU while demand moves", stepped.cores, "cores"),
        plain(
            "updates sent while demand moves",
            stepped.responses_per_second,
            "/s",
        ),
        plain("different updates", number(updates.updates as u64), ""),
        plain(
            "first update after the step",
            updates.first_after.unwrap_or_default().as_secs_f64(),
            "s",
        ),
        plain(
            "median update, first proxy to last",
            updates.median.as_secs_f64(),
            "s",
        ),
        slow,
        gone,
    ]
}

fn plain(name: &'static str, value: f64, unit: &'static str) -> Row {
    Row {
        name,
        value,
        unit,
        bar: None,
        passed: None,
    }
}

fn below(name: &'static str, value: f64, unit: &'static str, bar: f64) -> Row {
    Row {
        bar: Some(bar),
        passed: Some(value < bar),
        ..plain(name, value, unit)
    }
}
