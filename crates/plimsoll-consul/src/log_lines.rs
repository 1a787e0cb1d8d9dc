//! Log lines of the Consul client.

plimsoll_core::log_lines! {
    /// All services have been read since the start: `services` services were found.
    SYNCED = Info, "Consul services read", "";
    /// The services of a datacenter could not be read within a minute of the start. Services of the
    /// others are used without them.
    DATACENTER_MISSING = Warn, "Consul datacenter cannot be read; starting without it",
        "Look at the servers of the datacenter and at the WAN to it; see `reason` of other lines.";
    /// Services or health of a datacenter cannot be read. The last known state stays in force.
    AGENT_LOST = Warn, "Consul does not answer; last known state stays",
        "Look at the agent, its servers and the ACL token of this process; see `reason`.";
    /// Services and health of a datacenter can be read again.
    AGENT_BACK = Info, "Consul answers again", "";
    /// The index of Consul became smaller: a server was restored or replaced. All is read again.
    INDEX_RESET = Info, "Consul index reset; reading all again", "";
    /// The first answer after an outage lacks many instances that were known. They stay for
    /// `removal_delay`.
    INSTANCES_HELD = Warn, "Consul lacks many instances that were known; keeping them",
        "Look at Consul: did it lose its data? Instances removed on purpose go after a while.";
    /// An instance has a host name in place of an IP address, or no port. It is left out.
    INSTANCE_INVALID = Warn, "Consul instance is no endpoint; ignored",
        "Register the instance with an IP address and a port; `reason` names it.";
}
