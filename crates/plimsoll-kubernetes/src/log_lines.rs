//! Log lines of the Kubernetes client.

plimsoll_core::log_lines! {
    /// All kinds of objects have been listed since the start: `services` Services were found.
    SYNCED = Info, "Kubernetes objects listed", "";
    /// Objects of a kind cannot be listed or watched. The last known state stays in force.
    API_SERVER_LOST = Warn, "Kubernetes API server does not answer; last known state stays",
        "Look at the API server, the network to it and the RBAC of this process; see `reason`.";
    /// Objects of a kind can be watched again.
    API_SERVER_BACK = Info, "Kubernetes API server answers again", "";
    /// A list lacks many objects that were known. They stay for `removal_delay`.
    REMOVAL_HELD = Warn, "list of Kubernetes objects lacks many that were known; keeping them",
        "Look at the cluster's etcd: was it restored? Objects deleted on purpose go after a while.";
    /// An object cannot be decoded. The previous version of the object stays in use.
    OBJECT_INVALID = Warn, "Kubernetes object cannot be decoded; ignored",
        "Report the object: it passed the API server's schema.";
    /// The CRD of ZoneRoutingPolicy is not installed: only annotations are read.
    CRD_MISSING = Info, "ZoneRoutingPolicy is not installed; reading annotations only", "";
}
