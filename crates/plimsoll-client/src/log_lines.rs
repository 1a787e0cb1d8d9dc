//! Log lines of the client, besides those of events (`plimsoll_core::event::log_lines`).

plimsoll_core::log_lines! {
    /// A host name of a STRICT_DNS or LOGICAL_DNS cluster could not be resolved. The addresses of
    /// the last successful lookup stay in use. Logged again when the reason changes.
    DNS_LOOKUP_FAILED = Warn, "DNS lookup failed; keeping the previous addresses",
        "Check the name in the cluster's endpoints and the resolver of the machine.";
    /// A further lookup failed for the reason that was logged before.
    DNS_LOOKUP_STILL_FAILING = Debug, "DNS lookup still fails", "";
    /// A host name resolves again after failed lookups.
    DNS_LOOKUP_RECOVERED = Info, "DNS lookup succeeds again", "";
    /// The resolved addresses do not make a valid assignment. The previous endpoints stay in use.
    DNS_ADDRESSES_REJECTED = Warn, "resolved addresses rejected; keeping the previous endpoints",
        "Correct the cluster as `error` says.";
    /// A cluster asks for zone-aware routing, but lists no host in the zone of this process. All
    /// its requests go to other zones.
    OWN_ZONE_WITHOUT_HOSTS = Warn, "no host of the cluster is in the own zone",
        "Correct the zone of this process (`ClientBuilder::zone`, PLIMSOLL_ZONE) if it is wrong.";
    /// A static cluster lists endpoints that cannot be used. The cluster has no hosts.
    STATIC_ENDPOINTS_REJECTED = Warn, "endpoints of a static cluster rejected",
        "Correct `load_assignment` as `error` says.";
    /// A response carried an ORCA load report that cannot be decoded. The request is not affected.
    LOAD_REPORT_MALFORMED = Debug, "load report in a response cannot be decoded",
        "If the counter `orca_report_errors` grows, correct the backend that reports.";
    /// An upstream connection ended with an error. Its requests fail or are retried.
    UPSTREAM_CONNECTION_CLOSED = Debug, "upstream connection closed with an error", "";
    /// A response of the management server is invalid. It was answered with a NACK, and the
    /// previous resources stay in use.
    RESPONSE_REJECTED = Warn, "xDS response rejected (NACK); keeping the previous resources",
        "Correct the resource at the management server as `error` says.";
    /// A resource sets fields that this build accepts and ignores. Logged once per
    /// version of the resource.
    FIELDS_IGNORED = Warn, "resource has fields without effect",
        "Remove the listed fields, or check that nothing relies on them.";
    /// A resource that others refer to does not exist at the management server or did not arrive
    /// within the initial fetch timeout.
    RESOURCE_MISSING = Warn, "resource is missing",
        "Add the resource at the management server, or correct the reference.";
    /// The endpoints of a cluster or the routes of a target did not arrive within
    /// `initial_fetch_timeout`. Its requests go to the fallback cluster until they do.
    FALLBACK_CLUSTER_USED = Warn, "initial fetch timed out; requests go to the fallback cluster",
        "Check the connection to the management server, as `reason` says.";
    /// What was missing has arrived: requests no longer go to the fallback cluster.
    FALLBACK_CLUSTER_LEFT = Info, "initial fetch complete; leaving the fallback cluster", "";
    /// `node.id` is empty, so load reports of this process cannot be attributed.
    NODE_ID_EMPTY = Warn, "node.id is empty; plimsoll control ignores load reports without it",
        "Set a unique `node.id`.";
    /// `endpoint_stale_after` passed without a new assignment of the fleet (`local_cluster_name`).
    /// Zone-aware routing is off until one arrives.
    FLEET_STALE = Warn, "endpoints of the local cluster are stale; zone-aware routing is off",
        "Check the connection to the management server.";
    /// `endpoint_stale_after` passed without a new assignment. The cluster has no hosts until one
    /// arrives.
    ENDPOINTS_STALE = Warn, "endpoints are stale; the cluster is empty until the next assignment",
        "Check the connection to the management server.";
    /// A health check or outlier detection changed its verdict on a host.
    HOST_HEALTH_CHANGED = Debug, "host health changed", "";
    /// A health check got no response: the connection failed or was closed.
    HEALTH_CHECK_FAILED = Debug, "health check failed", "";
    /// A certificate, key or CA file of a cluster changed and cannot be used. New connections use
    /// the previous ones.
    UPSTREAM_CERTIFICATES_REJECTED = Warn,
        "changed upstream certificates cannot be used; keeping the previous ones",
        "Correct the file that `error` names.";
}
