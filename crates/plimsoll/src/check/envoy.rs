//! Bootstraps of Envoys: checks what zone-aware routing by measured demand needs. Everything else
//! is Envoy's to check.

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::{ConfigError, Document};
use serde_json::Value;

/// Name of the cluster that `plimsoll bootstrap envoy` gives to the control plane.
const CONTROL_CLUSTER: &str = "plimsoll_control";

/// Whether a file is the output of `plimsoll bootstrap envoy`, rather than the file of a proxy.
pub(super) fn is_ours(bootstrap: &Value) -> bool {
    let service = "/dynamic_resources/ads_config/grpc_services/0/envoy_grpc";
    let service = bootstrap.pointer(service);
    let field = |name: &str| service.and_then(|service| service.get(name));
    field("cluster_name").is_some_and(|name| name == CONTROL_CLUSTER)
        && field("authority").is_some()
}

/// Checks identity, locality, local cluster, discovery and load reporting. Returns a summary.
pub(super) fn check(document: &Document) -> Result<String, ConfigError> {
    let bootstrap: Value = document.read()?;
    summary(&bootstrap).map_err(|error| document.locate(error))
}

fn summary(bootstrap: &Value) -> Result<String, FieldError> {
    let text = |path: &str, why: &str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        let found = bootstrap.pointer(&pointer).and_then(Value::as_str);
        found
            .filter(|text| !text.is_empty())
            .ok_or_else(|| FieldError::new(path, format!("must be set: {why}")))
    };
    let id = text("node.id", "load is summed by node id")?;
    let fleet = text("node.cluster", "it is the name of the fleet")?;
    let zone = text("node.locality.zone", "requests are counted by zone")?;
    let local = text(
        "cluster_manager.local_cluster_name",
        "zone-aware routing needs the list of the fleet's proxies",
    )?;
    if !has_cluster(bootstrap, local) {
        let reason = format!("no cluster {local:?} in static_resources.clusters");
        return Err(FieldError::new(
            "cluster_manager.local_cluster_name",
            reason,
        ));
    }
    for (path, why) in [
        (
            "dynamic_resources.ads_config",
            "clusters and endpoints come from the control plane",
        ),
        (
            "cluster_manager.load_stats_config",
            "demand is measured from load reports",
        ),
    ] {
        check_service(bootstrap, path, why)?;
    }
    Ok(format!("node {id} of fleet {fleet} in zone {zone}"))
}

/// Checks that a gRPC service names a cluster of the file.
fn check_service(bootstrap: &Value, path: &str, why: &str) -> Result<(), FieldError> {
    let name = format!("{path}.grpc_services[0].envoy_grpc.cluster_name");
    let pointer = format!("/{}", path.replace('.', "/"));
    let service = bootstrap.pointer(&pointer);
    let found = service.and_then(|service| {
        let name = service.pointer("/grpc_services/0/envoy_grpc/cluster_name")?;
        name.as_str()
    });
    match (service, found) {
        (None, _) => Err(FieldError::new(path, format!("must be set: {why}"))),
        (Some(_), None) => Err(FieldError::new(name, "must be set")),
        (Some(_), Some(cluster)) if !has_cluster(bootstrap, cluster) => {
            let reason = format!("no cluster {cluster:?} in static_resources.clusters");
            Err(FieldError::new(name, reason))
        }
        _ => Ok(()),
    }
}

fn has_cluster(bootstrap: &Value, name: &str) -> bool {
    let clusters = bootstrap.pointer("/static_resources/clusters");
    let mut clusters = clusters.and_then(Value::as_array).into_iter().flatten();
    clusters.any(|cluster| cluster.get("name").is_some_and(|found| found == name))
}

#[cfg(test)]
mod tests {
    use plimsoll_control::bootstrap::{Bootstrap, EnvoyOptions};

    use super::*;

    fn printed() -> Value {
        let bootstrap = Bootstrap {
            replicas: Vec::new(),
            id: "gateway-1".to_owned(),
            fleet: "gateway".to_owned(),
            region: String::new(),
            zone: "zone-a".to_owned(),
            sub_zone: String::new(),
            control_host: "127.0.0.1".to_owned(),
            control_port: 18000,
            tls: None,
        };
        bootstrap.envoy(&EnvoyOptions {
            delta: false,
            admin_port: None,
            local_cluster_name: "local_cluster".to_owned(),
            module: false,
            module_admin_port: None,
        })
    }

    #[test]
    fn our_own_bootstrap_is_recognized_and_valid() {
        let bootstrap = printed();
        assert!(is_ours(&bootstrap));
        let summary = summary(&bootstrap).unwrap();
        assert_eq!(summary, "node gateway-1 of fleet gateway in zone zone-a");
    }

    #[test]
    fn what_measured_demand_needs_is_required() {
        for (pointer, field) in [
            ("/node/id", "node.id"),
            ("/node/locality/zone", "node.locality.zone"),
            (
                "/cluster_manager/local_cluster_name",
                "cluster_manager.local_cluster_name",
            ),
        ] {
            let mut bootstrap = printed();
            *bootstrap.pointer_mut(pointer).unwrap() = "".into();
            assert_eq!(summary(&bootstrap).unwrap_err().path(), field);
        }
        let mut bootstrap = printed();
        bootstrap["cluster_manager"]["load_stats_config"] = Value::Null;
        let error = summary(&bootstrap).unwrap_err();
        assert!(
            error
                .path()
                .starts_with("cluster_manager.load_stats_config"),
            "{error}"
        );
        let mut bootstrap = printed();
        bootstrap["static_resources"]["clusters"][1]["name"] = "other".into();
        let error = summary(&bootstrap).unwrap_err();
        assert!(error.reason().contains("no cluster"), "{error}");
    }
}
