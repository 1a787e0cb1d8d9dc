//! Log lines of the xDS, LRS and out-of-band streams.

plimsoll_core::log_lines! {
    /// The current management server does not answer; the next one of the list is dialed.
    /// Servers earlier in the list are used again as soon as one answers.
    SERVER_FALLBACK = Warn, "management server does not answer; falling back to the next one",
        "Check the servers that come earlier in the list.";
    /// A management server that comes earlier in the list answers again and is used.
    SERVER_RESTORED = Info, "preferred management server answers again; switching back", "";
    /// The xDS stream ended or could not be opened. Resources that were already received stay in
    /// use, and the client reconnects after `retry_in_ms`. Further failed attempts are logged only
    /// if the reason changes.
    ADS_STREAM_CLOSED = Warn, "xDS stream closed; keeping the resources and reconnecting",
        "If it stays closed, check the management server and the network.";
    /// A further attempt of an outage failed for the reason that was logged before.
    SERVER_STILL_UNREACHABLE = Debug, "management server still cannot be reached", "";
    /// The management server answers again. `failures` are the attempts of the outage.
    ADS_STREAM_RESTORED = Info, "xDS stream restored", "";
    /// The load reporting stream ended or could not be opened. Counts are kept and reported after
    /// the reconnect, which is tried after `retry_in_ms`. Logged again when the reason changes.
    LRS_STREAM_CLOSED = Warn, "LRS stream closed; keeping the counts and reconnecting",
        "If it stays closed, check the management server and the network.";
    /// The management server accepts load reports again.
    LRS_STREAM_RESTORED = Info, "LRS stream restored", "";
    /// A stream of out-of-band load reports ended. It is opened again after a backoff.
    OOB_STREAM_CLOSED = Debug, "out-of-band load report stream closed", "";
    /// The task of a cluster's out-of-band load reports panicked. All its streams start again after
    /// a second.
    OOB_PANICKED = Error, "out-of-band load reports failed; starting them again",
        "Report the `reason`.";
    /// A resource was decoded.
    RESOURCE_DECODED = Trace, "decoding a resource", "";
}
