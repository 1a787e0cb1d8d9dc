//! [`HttpStats`]: counters of one listener on one worker. Workers never write to each other's; a
//! page sums them up. Names are Envoy's; docs/reference/metrics.md is made of what stands here.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the counters with their names.
macro_rules! counters {
    ($($(#[doc = $about:literal])+ $name:ident),* $(,)?) => {
        /// Counters of one listener on one worker.
        #[derive(Debug, Default)]
        pub struct HttpStats {
            $($(#[doc = $about])+ pub $name: Counter,)*
        }

        impl HttpStats {
            /// Every name.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// What each of them counts, in the order of the names.
            pub const HELP: &'static [&'static str] =
                &[$(concat!($($about),+).trim_ascii()),*];

            /// Every value, in the order of the names.
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$name.get()),*]
            }
        }
    };
}

counters! {
    /// Connections so far.
    downstream_cx_total,
    /// Connections now.
    downstream_cx_active,
    /// Connections with TLS so far.
    downstream_cx_ssl_total,
    /// Connections over HTTP/1.1 so far.
    downstream_cx_http1_total,
    /// Connections over HTTP/2 so far.
    downstream_cx_http2_total,
    /// Connections closed because nothing happened on them.
    downstream_cx_idle_timeout,
    /// Connections closed because they were old.
    downstream_cx_max_duration_reached,
    /// Connections turned away because there were too many.
    downstream_cx_overload_reject,
    /// Connections on which something that is not HTTP was said, or that failed.
    downstream_cx_protocol_error,
    /// TLS handshakes that failed.
    downstream_cx_ssl_fail,
    /// Connections that were asked to end because we drain.
    downstream_cx_drain_close,
    /// Requests so far.
    downstream_rq_total,
    /// Requests now.
    downstream_rq_active,
    /// Requests over HTTP/1.1.
    downstream_rq_http1_total,
    /// Requests over HTTP/2.
    downstream_rq_http2_total,
    /// Responses 1xx.
    downstream_rq_1xx,
    /// Responses 2xx.
    downstream_rq_2xx,
    /// Responses 3xx.
    downstream_rq_3xx,
    /// Responses 4xx.
    downstream_rq_4xx,
    /// Responses 5xx.
    downstream_rq_5xx,
    /// Requests whose header did not arrive in time.
    downstream_rq_header_timeout,
    /// Requests that stood still for too long.
    downstream_rq_idle_timeout,
    /// Requests whose body was too large.
    downstream_rq_too_large,
    /// Requests that the client gave up, or whose connection broke.
    downstream_rq_rx_reset,
    /// Requests for which there is no route.
    no_route,
    /// Requests whose cluster is not known.
    no_cluster,
    /// Requests that were redirected.
    rq_redirect,
    /// Requests that were answered here.
    rq_direct_response,
    /// Upgrades so far.
    downstream_cx_upgrades_total,
    /// Upgraded connections now.
    downstream_cx_upgrades_active,
}

/// Of routes that a management server sends: name, `counter` or `gauge`, and what it says.
#[rustfmt::skip]
pub const RDS: [(&str, &str, &str); 5] = [
    ("config_reload", "counter", "How often other routes were put in force."),
    ("config_reload_time_ms", "gauge", "When that was last, in milliseconds since 1970."),
    ("update_rejected", "counter",
        "Responses with routes that were refused, whichever of them were bad."),
    ("update_success", "counter",
        "How often the server sent them and they were good, the same again included."),
    ("version", "gauge",
        "A hash of the version that was good last, as Envoy makes it; `/stats` has the text."),
];

/// Of the process: name, `counter` or `gauge`, and what it says.
#[rustfmt::skip]
pub const SERVER: [(&str, &str, &str); 8] = [
    ("server.concurrency", "gauge", "Workers."),
    ("server.uptime", "gauge", "Seconds since the start."),
    ("server.live", "gauge", "1 while requests are served, else 0."),
    ("server.dynamic_unknown_fields", "counter",
        "Versions of resources of the management server with fields that have no effect here."),
    ("config.reload_success", "counter", "Edits of the file that took effect."),
    ("config.reload_failure", "counter", "Edits of the file that were refused."),
    ("access_log_file.write_completed", "counter", "Lines written to access logs."),
    ("access_log_file.write_dropped", "counter",
        "Lines dropped because the disk was slower than the traffic."),
];

/// Type and help of a family on the page for Prometheus; `name` is without `plimsoll_`.
pub(crate) fn describe(name: &str) -> (&'static str, &'static str) {
    if let Some(name) = name.strip_prefix("http_") {
        let mut described = HttpStats::NAMES.iter().zip(HttpStats::HELP);
        let help = described.find(|(one, _)| **one == name);
        return (HttpStats::kind(name), help.map_or("", |(_, help)| help));
    }
    let mut server = SERVER.iter();
    let found = server.find(|(one, _, _)| one.replace('.', "_") == name);
    found.map_or(("counter", ""), |(_, kind, help)| (kind, help))
}

/// One counter or gauge.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl HttpStats {
    /// `gauge` or `counter`, by the name.
    pub fn kind(name: &str) -> &'static str {
        if name.ends_with("_active") {
            "gauge"
        } else {
            "counter"
        }
    }

    /// Counts a response by its class.
    pub fn response(&self, status: u16) {
        match status / 100 {
            1 => self.downstream_rq_1xx.inc(),
            2 => self.downstream_rq_2xx.inc(),
            3 => self.downstream_rq_3xx.inc(),
            4 => self.downstream_rq_4xx.inc(),
            5 => self.downstream_rq_5xx.inc(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_go_together() {
        let stats = HttpStats::default();
        stats.response(503);
        stats.response(101);
        stats.downstream_cx_total.inc();
        let named = |name: &str| {
            let position = HttpStats::NAMES
                .iter()
                .position(|one| *one == name)
                .unwrap();
            stats.values()[position]
        };
        assert_eq!(named("downstream_rq_5xx"), 1);
        assert_eq!(named("downstream_rq_1xx"), 1);
        assert_eq!(named("downstream_cx_total"), 1);
        assert_eq!(HttpStats::NAMES.len(), stats.values().len());
        assert_eq!(HttpStats::NAMES.len(), HttpStats::HELP.len());
    }

    #[test]
    fn families_are_described() {
        let active = describe("http_downstream_cx_active");
        assert_eq!(active, ("gauge", "Connections now."));
        assert_eq!(describe("http_no_route").0, "counter");
        assert_eq!(
            describe("server_uptime"),
            ("gauge", "Seconds since the start.")
        );
        assert_eq!(describe("nothing"), ("counter", ""));
    }
}
