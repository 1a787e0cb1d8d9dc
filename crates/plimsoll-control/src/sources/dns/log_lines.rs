//! Log lines of services from SRV records.

plimsoll_core::log_lines! {
    /// No DNS server answers for the name, or with an error. The last known state stays in force.
    LOOKUP_FAILED = Warn, "SRV records cannot be looked up; last known state stays",
        "Look at the DNS servers in `dns.servers`; `reason` says what they answer.";
    /// The name can be looked up again.
    LOOKUP_BACK = Info, "SRV records can be looked up again", "";
    /// The name has no records any more, or does not exist. Its endpoints stay for `removal_delay`.
    RECORDS_GONE = Warn, "name has no SRV records any more; keeping its endpoints",
        "Look at the zone of the name. Endpoints removed on purpose go after a while.";
}
