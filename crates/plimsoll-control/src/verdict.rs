//! [`Verdict`]: one sentence about everything: what is wrong, why, and what to do.
//!
//! The one computation behind the dashboard, `plimsoll top` and `/api/v1/status`, so that all say
//! the same. A pure function of load lines and [`Signs`]: `zones` judges load lines, `fleets`
//! proxies, `inputs` what the control plane itself depends on, `signs` reads the state.

mod fleets;
mod inputs;
mod signs;
#[cfg(test)]
mod tests;
mod zones;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;

use crate::load_line::{LoadLine, LoadLines};
use crate::run::Context;
use crate::server::Stopped;

pub use signs::{Observed, Signs};
pub use zones::not_planned;

/// What is worst, as one sentence in three parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub severity: Severity,
    /// Stable name of the kind of problem, for scripts: one of [`Verdict::KINDS`].
    pub kind: &'static str,
    /// What is wrong, as a clause.
    pub what: String,
    /// Why, as a clause.
    pub why: Option<String>,
    /// What an operator should do, as a clause.
    pub remedy: Option<String>,
    /// What an operator should look at next.
    pub look_at: LookAt,
    /// Number of other problems that are errors or warnings.
    pub others: usize,
}

/// How bad a problem is; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An operator must act.
    Error,
    /// It works, but not as intended.
    Warning,
    /// It needs time, or a first proxy.
    Info,
    Fine,
}

/// What a verdict is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LookAt {
    #[default]
    Nothing,
    /// How the proxies of a zone route to a service, and why.
    Zone(Arc<str>, Arc<str>, Locality),
    Nodes,
    Replicas,
    Events,
}

impl Verdict {
    /// The kinds in order of precedence within a severity.
    pub const KINDS: [&'static str; 26] = [
        "zone_fails",
        "source_not_listed",
        "store_not_read",
        "edit_rejected",
        "update_rejected",
        "zone_above_line",
        "zone_above_target",
        "source_silent",
        "certificate_expires",
        "objects_held",
        "store_lost",
        "other_configuration",
        "relay_lost",
        "clients_refused",
        "handshakes_fail",
        "duplicate_id",
        "shared_id",
        "unknown_locality",
        "zone_unseen",
        "demand_withheld",
        "no_load_reports",
        "warming_up",
        "not_settled",
        "no_proxies",
        "no_demand",
        "fine",
    ];

    /// Judges what is known.
    pub fn new(signs: &Signs, lines: &LoadLines) -> Self {
        let mut all: Vec<Self> = inputs::findings(signs)
            .chain(lines.iter().flat_map(zones::findings))
            .chain(fleets::findings(signs, lines))
            .collect();
        let rank = |verdict: &Self| {
            let place = Self::KINDS.iter().position(|kind| *kind == verdict.kind);
            (verdict.severity, place)
        };
        // Stable: of several zones the one that was found first, which is the worst of its service.
        all.sort_by_key(rank);
        let is_problem = |verdict: &&Self| verdict.severity <= Severity::Warning;
        let problems = all.iter().filter(is_problem).count();
        let mut worst = all.into_iter().next().unwrap_or_else(|| zones::fine(lines));
        worst.others = problems.saturating_sub(usize::from(is_problem(&&worst)));
        worst
    }

    fn finding(severity: Severity, kind: &'static str, what: String) -> Self {
        Self {
            severity,
            kind,
            what,
            why: None,
            remedy: None,
            look_at: LookAt::Nothing,
            others: 0,
        }
    }

    fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    fn so(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn look(mut self, look_at: LookAt) -> Self {
        self.look_at = look_at;
        self
    }

    /// Returns the whole as one sentence.
    pub fn text(&self) -> String {
        let mut text = self.what.clone();
        if let Some(why) = &self.why {
            text = format!("{text}: {why}");
        }
        if let Some(remedy) = &self.remedy {
            text = format!("{text}; {remedy}");
        }
        text
    }
}

impl Severity {
    /// Returns the name for the admin API and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
            Self::Fine => "fine",
        }
    }
}

impl LookAt {
    fn zone(line: &LoadLine, zone: &Locality) -> Self {
        Self::Zone(
            Arc::clone(&line.fleet),
            Arc::clone(&line.cluster),
            zone.clone(),
        )
    }

    /// Returns fleet, cluster and zone, as far as the verdict is about some.
    pub const fn parts(&self) -> (Option<&Arc<str>>, Option<&Arc<str>>, Option<&Locality>) {
        match self {
            Self::Zone(fleet, cluster, zone) => (Some(fleet), Some(cluster), Some(zone)),
            Self::Nothing | Self::Nodes | Self::Replicas | Self::Events => (None, None, None),
        }
    }
}

impl Context {
    /// Judges the state. Routing shares of load lines are computed for at most `budget`.
    pub async fn verdict(&self, budget: Duration) -> Result<Verdict, Stopped> {
        let lines = self.load_lines(budget).await?;
        let observed = Observed::of(self);
        let signs = self
            .handle
            .inspect(move |state, now| Signs::new(observed, state, now));
        Ok(Verdict::new(&signs.await?, &lines))
    }
}

/// Formats a share in whole percent.
#[expect(
    clippy::cast_possible_truncation,
    reason = "percentages of loads are small"
)]
fn percent(share: f64) -> String {
    format!("{} %", (100.0 * share).round() as i64)
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
