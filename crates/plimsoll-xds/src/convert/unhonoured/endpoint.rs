//! Tables of `envoy.config.endpoint.v3`.

use super::Class::{Host, Request};
use super::Inside::{Many, One, Value};
use super::Kind;

/// `ClusterLoadAssignment` of EDS.
pub(in super::super) static ASSIGNMENT: Kind = Kind {
    read: &[
        (1, "cluster_name", Value),
        (2, "endpoints", Many(&LOCALITY_LB_ENDPOINTS)),
        (4, "policy", One(&POLICY)),
    ],
    // Endpoints that name one of them are refused.
    unread: &[(5, "named_endpoints")],
    ..Kind::EMPTY
};

/// The same as `load_assignment` of a cluster. Nobody sends it again, so it does not become stale.
pub(super) static INLINE_ASSIGNMENT: Kind = Kind {
    read: &[
        (1, "cluster_name", Value),
        (2, "endpoints", Many(&LOCALITY_LB_ENDPOINTS)),
        (4, "policy", One(&INLINE_POLICY)),
    ],
    unread: &[(5, "named_endpoints")],
    ..Kind::EMPTY
};

static INLINE_POLICY: Kind = Kind {
    read: &[
        (2, "drop_overloads", Many(&DROP_OVERLOAD)),
        (3, "overprovisioning_factor", Value),
        (6, "weighted_priority_health", Value),
    ],
    unread: &[(4, "endpoint_stale_after")],
    ..Kind::EMPTY
};

pub(super) static POLICY: Kind = Kind {
    read: &[
        (2, "drop_overloads", Many(&DROP_OVERLOAD)),
        (3, "overprovisioning_factor", Value),
        (4, "endpoint_stale_after", Value),
        (6, "weighted_priority_health", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static DROP_OVERLOAD: Kind = Kind {
    read: &[(1, "category", Value), (2, "drop_percentage", Value)],
    ..Kind::EMPTY
};

pub(super) static LOCALITY_LB_ENDPOINTS: Kind = Kind {
    read: &[
        (1, "locality", Value),
        (2, "lb_endpoints", Many(&LB_ENDPOINT)),
        (3, "load_balancing_weight", Value),
        (5, "priority", Value),
        (9, "metadata", Value),
        (10, "observed_traffic_fraction", Value),
    ],
    // Envoy does not read it either.
    unread: &[(6, "proximity")],
    refused: &[
        (7, "load_balancer_endpoints", Host),
        (8, "leds_cluster_locality_config", Host),
    ],
};

pub(super) static LB_ENDPOINT: Kind = Kind {
    read: &[
        (1, "endpoint", One(&ENDPOINT)),
        (2, "health_status", Value),
        (3, "metadata", Value),
        (4, "load_balancing_weight", Value),
    ],
    refused: &[(5, "endpoint_name", Host)],
    ..Kind::EMPTY
};

pub(super) static ENDPOINT: Kind = Kind {
    read: &[
        (1, "address", One(&ADDRESS)),
        (2, "health_check_config", One(&HEALTH_CHECK_CONFIG)),
        (3, "hostname", Value),
        (4, "additional_addresses", Many(&ADDITIONAL_ADDRESS)),
    ],
    unread: &[(5, "observability_name")],
    ..Kind::EMPTY
};

pub(super) static HEALTH_CHECK_CONFIG: Kind = Kind {
    read: &[
        (1, "port_value", Value),
        (2, "hostname", Value),
        (4, "disable_active_health_check", Value),
    ],
    refused: &[(3, "address", Request)],
    ..Kind::EMPTY
};

pub(super) static ADDITIONAL_ADDRESS: Kind = Kind {
    read: &[(1, "address", One(&ADDRESS))],
    ..Kind::EMPTY
};

/// `envoy.config.core.v3.Address`: an address of another kind is an error of its own.
pub(super) static ADDRESS: Kind = Kind {
    read: &[
        (1, "socket_address", One(&SOCKET_ADDRESS)),
        (2, "pipe", Value),
        (3, "envoy_internal_address", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static SOCKET_ADDRESS: Kind = Kind {
    read: &[
        (1, "protocol", Value),
        (2, "address", Value),
        (3, "port_value", Value),
        // Without a number the port is missing, which is an error of its own.
        (4, "named_port", Value),
    ],
    unread: &[(6, "ipv4_compat")],
    refused: &[
        (5, "resolver_name", Host),
        (7, "network_namespace_filepath", Request),
    ],
};
