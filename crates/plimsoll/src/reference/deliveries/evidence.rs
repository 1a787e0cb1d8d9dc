//! Tests that show what the cells of the page say: [`EVERY_CELL`] compares cells with the encoded
//! resources, [`WIRE`] with what real streams receive, and [`LIVE_TESTS`] run a form of demand with
//! real data planes.

use plimsoll_control::config::Delivery;
use plimsoll_control::delivery::{NodeClass, Steering};

/// File and function name of a test.
pub(super) type Test = (&'static str, &'static str);

const MATRIX: &str = "crates/plimsoll-control/src/matrix/tests.rs";
const CONDITIONS: &str = "crates/plimsoll-control/src/kubernetes/report/tests/every_cell.rs";
/// Tests that compare every cell with what is said about it, by source.
pub(super) const EVERY_CELL: [Test; 9] = [
    (MATRIX, "what_a_file_says_is_what_is_sent"),
    (MATRIX, "what_a_policy_of_kubernetes_says_is_what_is_sent"),
    (MATRIX, "what_a_relay_says_is_what_is_sent"),
    (MATRIX, "what_the_file_of_a_relay_says_is_what_is_sent"),
    (MATRIX, "demand_is_sent_in_the_same_form_from_every_source"),
    (
        MATRIX,
        "a_steered_service_does_not_change_how_another_is_routed",
    ),
    (MATRIX, "the_first_percent_of_a_ramp_moves_a_percent"),
    (
        CONDITIONS,
        "the_condition_says_what_the_resources_of_every_cell_do",
    ),
    (
        CONDITIONS,
        "the_condition_names_a_delivery_that_no_connected_node_gets",
    ),
];

/// Test that compares every cell of a file, ramps included, with what real streams receive.
pub(super) const WIRE: Test = (
    "crates/plimsoll-control/tests/suite/every_cell.rs",
    "every_cell_is_received_over_real_streams",
);
/// What cells call [`WIRE`].
pub(super) const WIRE_NAME: &str = "W";

const CLIENTS: &str = "tests/e2e/real_peers/clients.rs";
const CLOSED_LOOP: &str = "tests/e2e/real_peers/closed_loop.rs";
const ENVOYS: &str = "tests/e2e/real_peers/envoys.rs";
const SUBSETS: &str = "tests/e2e/real_peers/subsets.rs";
const RELAY: &str = "tests/e2e/real_peers/relay.rs";
const GRPC: &str = "tests/e2e/real_peers/grpc.rs";
const CLIENT: &str = "crates/plimsoll-client/tests/suite/xds_fleet.rs";
const CONVERGENT: &str = "`load_aware_locality`, `CONVERGENT`";
const ORCA: &str = "client-side weighted round robin";
/// Title of the policy of tests that are about a form alone.
pub(super) const SIMPLE: &str = "round robin";

/// A test that runs a form of demand with real data planes, or over real connections.
pub(super) struct LiveTest {
    pub(super) plane: &'static str,
    pub(super) classes: &'static [NodeClass],
    pub(super) form: Option<Steering>,
    /// Title of the policy that it is about; `None` for [`SIMPLE`].
    pub(super) policy: Option<&'static str>,
    pub(super) test: Test,
}

const fn live(
    plane: &'static str,
    classes: &'static [NodeClass],
    delivery: Delivery,
    policy: Option<&'static str>,
    test: Test,
) -> LiveTest {
    LiveTest {
        plane,
        classes,
        form: Some(Steering::Demand(delivery)),
        policy,
        test,
    }
}

const fn led(
    plane: &'static str,
    classes: &'static [NodeClass],
    delivery: Delivery,
    test: Test,
) -> LiveTest {
    LiveTest {
        plane,
        classes,
        form: Some(Steering::FeedForward(delivery)),
        policy: Some(CONVERGENT),
        test,
    }
}

const OURS: &[NodeClass] = &[NodeClass::Plimsoll];
const MODULE: &[NodeClass] = &[NodeClass::EnvoyModule];
const ENVOY: &[NodeClass] = &[NodeClass::Envoy];
const OF_GRPC: &[NodeClass] = &[NodeClass::Grpc];

/// Tests with real data planes.
pub(super) const LIVE_TESTS: [LiveTest; 20] = [
    live(
        "client",
        OURS,
        Delivery::EdsField,
        None,
        (CLIENTS, "demand_delivered_by_eds_field"),
    ),
    live(
        "client",
        OURS,
        Delivery::LocalityMetadata,
        None,
        (CLIENTS, "demand_delivered_by_locality_metadata"),
    ),
    live(
        "client",
        OURS,
        Delivery::LrsResponse,
        None,
        (CLIENTS, "demand_delivered_by_lrs_response"),
    ),
    live(
        "client",
        OURS,
        Delivery::LocalityWeights,
        None,
        (CLIENTS, "demand_delivered_by_locality_weights"),
    ),
    live(
        "client",
        OURS,
        Delivery::EdsField,
        Some(ORCA),
        (
            CLOSED_LOOP,
            "embedded_clients_even_out_zones_by_demand_and_hosts_by_orca",
        ),
    ),
    live(
        "proxy",
        OURS,
        Delivery::EdsField,
        None,
        (CLOSED_LOOP, "measured_demand_evens_out_zones"),
    ),
    live(
        "proxy",
        OURS,
        Delivery::EdsField,
        Some(ORCA),
        (
            CLOSED_LOOP,
            "proxies_even_out_zones_by_demand_and_hosts_by_orca",
        ),
    ),
    LiveTest {
        plane: "proxy",
        classes: OURS,
        form: None,
        policy: Some(CONVERGENT),
        test: (
            CLOSED_LOOP,
            "convergent_evens_out_zones_without_oscillation",
        ),
    },
    led(
        "proxy",
        OURS,
        Delivery::LrsResponse,
        (CLOSED_LOOP, "demand_feed_forward_speeds_up_convergent"),
    ),
    led(
        "client, over its protocols",
        OURS,
        Delivery::EdsField,
        (
            CLIENT,
            "measured_demand_reaches_a_convergent_cluster_by_eds_and_lrs",
        ),
    ),
    LiveTest {
        plane: "proxy and Envoy",
        classes: &[NodeClass::Plimsoll, NodeClass::Envoy],
        form: None,
        policy: Some("`subset`"),
        test: (SUBSETS, "envoy_and_the_proxy_send_to_the_same_subsets"),
    },
    live(
        "Envoy with the module",
        MODULE,
        Delivery::LrsResponse,
        None,
        (
            CLOSED_LOOP,
            "the_control_plane_steers_modules_inside_envoys",
        ),
    ),
    led(
        "Envoy with the module",
        MODULE,
        Delivery::LrsResponse,
        (CLOSED_LOOP, "demand_feed_forward_speeds_up_modules"),
    ),
    live(
        "Envoy",
        ENVOY,
        Delivery::FleetWeights,
        None,
        (ENVOYS, "fleet_weights_even_out_zones_of_envoys"),
    ),
    live(
        "Envoy",
        ENVOY,
        Delivery::LocalityWeights,
        None,
        (ENVOYS, "locality_weights_even_out_zones_of_envoys"),
    ),
    live(
        "Envoy with the module",
        MODULE,
        Delivery::LocalityWeights,
        None,
        (
            CLOSED_LOOP,
            "locality_weights_even_out_zones_of_envoys_with_the_module",
        ),
    ),
    live(
        "gRPC C-core",
        OF_GRPC,
        Delivery::LocalityWeights,
        None,
        (
            GRPC,
            "c_core_clients_follow_locality_weights_and_report_load",
        ),
    ),
    live(
        "grpc-js",
        OF_GRPC,
        Delivery::LocalityWeights,
        None,
        (GRPC, "grpc_js_clients_report_load_and_fractions_follow"),
    ),
    live(
        "Envoy behind a relay",
        ENVOY,
        Delivery::FleetWeights,
        None,
        (RELAY, "envoys_behind_a_relay_balance_by_demand"),
    ),
    live(
        "Envoy behind a relay",
        ENVOY,
        Delivery::LocalityWeights,
        None,
        (RELAY, "envoys_behind_a_relay_balance_by_demand"),
    ),
];
