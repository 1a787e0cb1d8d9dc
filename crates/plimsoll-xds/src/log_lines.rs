//! Log lines of the xDS and LRS streams.

plimsoll_core::log_lines! {
    /// The current management server does not answer; the next one of the list is dialed.
    /// Servers earlier in the list are used again as soon as one answers.
    SERVER_FALLBACK = Warn, "management server does not answer; falling back to the next one",
        "Check the servers that come earlier in the list.";
    /// The xDS stream ended. Resources received before stay in use; the stream is opened again
    /// after a back-off.
    ADS_STREAM_CLOSED = Warn, "xDS stream closed; keeping the resources and reconnecting",
        "If it stays closed, check the management server and the network.";
    /// The load reporting stream ended. Counts are kept and reported after the reconnect.
    LRS_STREAM_CLOSED = Warn, "LRS stream closed; keeping the counts and reconnecting",
        "If it stays closed, check the management server and the network.";
    /// A resource was decoded.
    RESOURCE_DECODED = Trace, "decoding a resource", "";
}
