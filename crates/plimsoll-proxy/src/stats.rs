//! Counters and gauges under Envoy's names.
//!
//! [`HttpStats`] is kept per `stat_prefix` of a listener and worker, so that workers never write to
//! the same cache line; the admin interface sums it over the workers. [`RouteStats`] and
//! [`ServerStats`] are computed on request. docs/reference/metrics.md is generated from this file.

use plimsoll_core::counters;
use plimsoll_core::stats::SharedCounter;

counters! {
    /// Statistics of the connections with one `stat_prefix` of a listener on one worker.
    pub struct HttpStats("", ["plimsoll_http_conn_manager_prefix"]): SharedCounter {
        /// Connections that clients have opened.
        downstream_cx_total,
        /// Connections that are open now.
        downstream_cx_active: gauge,
        /// Connections accepted by listeners with TLS.
        downstream_cx_ssl_total,
        /// Connections on which the client used HTTP/1.1.
        downstream_cx_http1_total,
        /// Connections on which the client used HTTP/2.
        downstream_cx_http2_total,
        /// Connections closed because they were idle for longer than `idle_timeout`.
        downstream_cx_idle_timeout,
        /// Connections drained because they were open for longer than `max_connection_duration`.
        downstream_cx_max_duration_reached,
        /// Connections closed at once because the limit of connections was reached, or because of
        /// `reject_incoming_connections`.
        downstream_cx_overload_reject,
        /// Connections drained because they had as many requests as `max_requests_per_connection`.
        downstream_cx_max_requests_reached,
        /// Connections drained with a response because of `disable_http_keepalive`.
        downstream_cx_overload_disable_keepalive,
        /// Connections closed at once because their client address has too many open (not in
        /// Envoy).
        downstream_cx_address_reject,
        /// Connections closed by an HTTP protocol error or an I/O error.
        downstream_cx_protocol_error,
        /// TLS handshakes with clients that failed.
        downstream_cx_ssl_fail,
        /// Connections that were asked to close because the proxy or their listener drains.
        downstream_cx_drain_close,
        /// Requests that have been received.
        downstream_rq_total,
        /// Requests that are active now.
        downstream_rq_active: gauge,
        /// Requests received over HTTP/1.1.
        downstream_rq_http1_total,
        /// Requests received over HTTP/2.
        downstream_rq_http2_total,
        /// Responses with a 1xx status.
        downstream_rq_1xx,
        /// Responses with a 2xx status.
        downstream_rq_2xx,
        /// Responses with a 3xx status.
        downstream_rq_3xx,
        /// Responses with a 4xx status.
        downstream_rq_4xx,
        /// Responses with a 5xx status.
        downstream_rq_5xx,
        /// Requests answered with 503 because of `stop_accepting_requests`.
        downstream_rq_overload_close,
        /// Requests whose header did not arrive within `request_headers_timeout`.
        downstream_rq_header_timeout,
        /// Requests ended because they made no progress within `stream_idle_timeout`, or the
        /// `idle_timeout` of their route.
        downstream_rq_idle_timeout,
        /// Requests ended because they were not received within `request_timeout`.
        downstream_rq_timeout,
        /// Requests ended because they exceeded `max_stream_duration`.
        downstream_rq_max_duration_reached,
        /// Requests rejected with 413 because their body exceeds `max_request_bytes`.
        downstream_rq_too_large,
        /// Requests rejected with 429 by the local rate limit.
        rate_limited,
        /// Requests whose origin the CORS policy of their route allows.
        origin_valid = "cors.origin_valid",
        /// Requests whose origin the CORS policy of their route does not allow.
        origin_invalid = "cors.origin_invalid",
        /// Copies of requests that were sent to clusters of `request_mirror_policies`.
        rq_mirrored,
        /// Copies of requests that were aborted because they lagged too far behind.
        rq_mirror_aborted,
        /// Copies of requests that were not sent because too many are active on the worker.
        rq_mirror_overflow,
        /// Requests that ended before there was a response: canceled, or connection lost.
        downstream_rq_rx_reset,
        /// Requests answered with 404 because no route matches.
        no_route,
        /// Requests answered with 503 because their route selects no cluster.
        no_cluster,
        /// Requests answered with a redirect.
        rq_redirect,
        /// Requests answered with the `direct_response` of their route.
        rq_direct_response,
        /// Connections that were upgraded, such as to WebSocket.
        downstream_cx_upgrades_total,
        /// Upgraded connections that are open now.
        downstream_cx_upgrades_active: gauge,
    }
}

counters! {
    /// Statistics of a listener, for connections that have no filter chain. Rare, so that all
    /// workers share them.
    pub struct ListenerStats("", ["plimsoll_listener_address"]): SharedCounter {
        /// Connections closed because they match no filter chain.
        no_filter_chain_match,
        /// Connections closed because the first bytes, which select a filter chain, did not arrive
        /// in time.
        downstream_pre_cx_timeout,
    }
}

counters! {
    /// Statistics of a route configuration that the management server sends, by its name and the
    /// stat prefix of the listener.
    pub struct RouteStats(
        "",
        ["plimsoll_rds_route_config", "plimsoll_http_conn_manager_prefix"]
    ): u64 {
        /// How often changed routes were activated.
        config_reload,
        /// Time at which routes were last activated, in milliseconds since 1970.
        config_reload_time_ms: gauge,
        /// Responses rejected (NACK), even if another route configuration was invalid.
        update_rejected,
        /// Responses whose routes were accepted (ACK), changed or not.
        update_success,
        /// Hash of the version that was accepted last, as in Envoy; `/stats` has the text.
        version: gauge,
    }
}

counters! {
    /// Statistics of the proxy process.
    pub struct ServerStats("", []): u64 {
        /// Number of worker threads.
        concurrency = "server.concurrency": gauge,
        /// Seconds since the proxy started.
        uptime = "server.uptime": gauge,
        /// 1 while requests are served; 0 during startup and draining.
        live = "server.live": gauge,
        /// Accepted resource versions of the management server that set fields without effect here.
        dynamic_unknown_fields = "server.dynamic_unknown_fields",
        /// Edits of the configuration file that were applied.
        reload_success = "config.reload_success",
        /// Edits of the configuration file that were rejected.
        reload_failure = "config.reload_failure",
        /// Lines written to access logs.
        write_completed = "access_log_file.write_completed",
        /// Access log lines dropped because the disk was slower than the traffic, or full.
        write_dropped = "access_log_file.write_dropped",
        /// Failed writes to access logs; each is tried again.
        write_failed = "access_log_file.write_failed",
        /// Failed attempts to open an access log again.
        reopen_failed = "access_log_file.reopen_failed",
        /// Spans that a collector has accepted.
        spans_sent = "tracing.opentelemetry.spans_sent",
        /// Spans dropped because the queue was full, or because the collector could not be reached
        /// or rejected them.
        spans_dropped = "tracing.opentelemetry.spans_dropped",
        /// Actions of the overload manager that are in force (not in Envoy).
        overload_actions_active = "overload.actions_active": gauge,
        /// Listeners that accept connections.
        total_listeners_active = "listener_manager.total_listeners_active": gauge,
    }
}

impl HttpStats {
    /// Counts a response by its status class (1xx to 5xx).
    pub fn response(&self, status: u16) {
        match status / 100 {
            1 => self.downstream_rq_1xx.increment(),
            2 => self.downstream_rq_2xx.increment(),
            3 => self.downstream_rq_3xx.increment(),
            4 => self.downstream_rq_4xx.increment(),
            5 => self.downstream_rq_5xx.increment(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_class() {
        let stats = HttpStats::default();
        stats.response(503);
        stats.response(101);
        let counted: Vec<_> = stats.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(
            counted,
            [("downstream_rq_1xx", 1), ("downstream_rq_5xx", 1)]
        );
    }
}
