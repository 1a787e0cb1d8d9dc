//! Services of Kubernetes in, services of the control plane out.

use plimsoll_core::time::Instant;
use plimsoll_kubernetes::inventory::Inventory;
use plimsoll_kubernetes::objects::ZoneRoutingPolicy;
use plimsoll_kubernetes::objects::{EndpointSlice, Resource, Service as KubernetesService};
use plimsoll_kubernetes::reflector::Change;
use serde_json::json;

use super::*;
use crate::config::{ConfigFile, ControlConfig, Mode};

fn settings(text: &str) -> Kubernetes {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: format!("kubernetes: {text}"),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    config.sources.kubernetes.expect("there is a section")
}

struct Cluster {
    inventory: Inventory,
    translator: Translator,
}

impl Cluster {
    fn new(text: &str) -> Self {
        Self {
            inventory: Inventory::default(),
            translator: Translator::new(settings(text)),
        }
    }

    fn service(&mut self, name: &str, annotations: &Value, ports: &Value) {
        let json = json!({"metadata": {"namespace": "shop", "name": name,
                "resourceVersion": "7", "annotations": annotations}, "spec": {"ports": ports}});
        let json = serde_json::from_value(json).unwrap();
        let service = Arc::new(KubernetesService::from_json(json));
        self.inventory
            .handle_service(Change::Applied(service), Instant::ORIGIN);
    }

    fn slice(&mut self, service: &str, hosts: &[(&str, &str)]) {
        let endpoints: Vec<Value> = hosts
            .iter()
            .map(|(address, zone)| json!({"addresses": [address], "zone": zone}))
            .collect();
        let json = json!({"metadata": {"namespace": "shop", "name": format!("{service}-1"),
                "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints});
        let slice = EndpointSlice::from_json(serde_json::from_value(json).unwrap());
        let now = Instant::ORIGIN;
        self.inventory
            .handle_slice(Change::Applied(Arc::new(slice)), now);
    }

    fn policy(&mut self, spec: &Value) {
        let json = json!({"metadata": {"namespace": "shop", "name": "p"}, "spec": spec});
        let policy = ZoneRoutingPolicy::from_json(serde_json::from_value(json).unwrap());
        self.inventory
            .handle_policy(Change::Applied(Arc::new(policy)));
    }

    fn batch(&mut self) -> (BTreeMap<String, Option<Arc<Service>>>, Vec<String>) {
        let mut batch = Batch::default();
        while let Some((key, found)) = self.inventory.poll_changed() {
            batch.services.insert(key, found);
        }
        let (changes, refused) = self.translator.handle_batch(batch);
        let services = changes.services.into_iter();
        let named = services.map(|(name, one)| (name.to_string(), one.map(|one| one.service)));
        let texts = refused
            .into_iter()
            .map(|one| format!("{} {}", one.object, one.reason));
        (named.collect(), texts.collect())
    }
}

fn http() -> Value {
    json!([{"name": "http", "port": 80}])
}

#[test]
fn endpoints_are_localities_and_settings_come_from_the_file() {
    let mut cluster = Cluster::new("{region: eu, mode: ENFORCE, ramp: 40}");
    cluster.service("orders", &json!({}), &http());
    cluster.slice(
        "orders",
        &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "a")],
    );
    let (services, refused) = cluster.batch();
    assert!(refused.is_empty(), "{refused:?}");
    let service = services["orders.shop:80"].as_ref().unwrap();
    assert_eq!((service.mode, service.ramp), (Mode::Enforce, 40));
    let localities = service.assignment.endpoints();
    let zones: Vec<_> = localities
        .iter()
        .map(|one| one.locality.to_string())
        .collect();
    assert_eq!(zones, ["eu/a", "eu/b"]);
    assert_eq!(localities[0].lb_endpoints.len(), 2);
    let address = localities[1].lb_endpoints[0].address.to_string();
    assert_eq!(address, "10.0.0.2:8080");
}

/// An owner who reads that `FLEET_WEIGHTS` is expected and writes that is refused at admission.
#[test]
fn refused_words_are_spelled_as_in_annotations() {
    let mut cluster = Cluster::new("{}");
    let annotations = json!({"plimsoll.dev/mode": "Enforced", "plimsoll.dev/delivery": "Fleet"});
    cluster.service("orders", &annotations, &http());
    let refused = cluster.batch().1.join("\n");
    for word in [
        "Enforce",
        "Shadow",
        "Off",
        "FleetWeights",
        "EdsField",
        "LrsResponse",
    ] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    for word in ["ENFORCE", "FLEET", "_"] {
        assert!(!refused.contains(word), "{word}: {refused}");
    }
}

#[test]
fn a_change_of_endpoints_keeps_the_settings_as_they_are() {
    let mut cluster = Cluster::new("{}");
    cluster.service(
        "orders",
        &json!({"plimsoll.dev/policy": "LeastRequest"}),
        &http(),
    );
    cluster.slice("orders", &[("10.0.0.1", "a")]);
    let before = cluster.batch().0["orders.shop:80"].clone().unwrap();
    cluster.slice("orders", &[("10.0.0.2", "a")]);
    let after = cluster.batch().0["orders.shop:80"].clone().unwrap();
    assert!(
        Arc::ptr_eq(&before.config, &after.config),
        "not parsed again"
    );
    assert!(before.has_same_settings(&after) && before != after);
    assert_eq!(after.config.endpoint_policy().name(), "least_request");
    cluster.slice("orders", &[("10.0.0.2", "a")]);
    let same = cluster.batch().0["orders.shop:80"].clone().unwrap();
    assert!(Arc::ptr_eq(&same, &after), "nothing changed");
}

#[test]
fn invalid_settings_are_refused_once_and_the_service_keeps_its_own() {
    let mut cluster = Cluster::new("{}");
    cluster.service("orders", &json!({"plimsoll.dev/ramp": "20"}), &http());
    assert_eq!(cluster.batch().1, [""; 0]);
    cluster.service("orders", &json!({"plimsoll.dev/ramp": "120"}), &http());
    let (services, refused) = cluster.batch();
    let expected = "Service shop/orders metadata.annotations[plimsoll.dev/ramp]: 120";
    assert!(refused[0].starts_with(expected), "{refused:?}");
    assert_eq!(services["orders.shop:80"].as_ref().unwrap().ramp, 20);
    cluster.slice("orders", &[("10.0.0.1", "a")]);
    let (services, refused) = cluster.batch();
    assert!(refused.is_empty(), "reported once: {refused:?}");
    let service = services["orders.shop:80"].as_ref().unwrap();
    assert_eq!(
        (service.ramp, service.assignment.endpoints().len()),
        (20, 1)
    );
    cluster.service("orders", &json!({"plimsoll.dev/ramp": "60"}), &http());
    assert_eq!(
        cluster.batch().0["orders.shop:80"].as_ref().unwrap().ramp,
        60
    );
}

#[test]
fn a_service_that_was_never_valid_has_the_defaults() {
    let mut cluster = Cluster::new("{ramp: 5}");
    cluster.service("orders", &json!({"plimsoll.dev/mode": "Always"}), &http());
    let (services, refused) = cluster.batch();
    let service = services["orders.shop:80"].as_ref().unwrap();
    assert_eq!((service.mode, service.ramp), (Mode::Shadow, 5));
    assert!(refused[0].contains("plimsoll.dev/mode"), "{refused:?}");
}

#[test]
fn errors_in_the_cluster_of_a_policy_name_its_field() {
    let mut cluster = Cluster::new("{}");
    cluster.service("orders", &json!({}), &http());
    cluster.policy(
        &json!({"targetRefs": [{"kind": "Service", "name": "orders"}],
        "cluster": {"connect_timeout": "soon"}}),
    );
    let (_, refused) = cluster.batch();
    let expected = "ZoneRoutingPolicy shop/p spec.cluster.connect_timeout: ";
    assert!(refused[0].starts_with(expected), "{refused:?}");
}

#[test]
fn prices_of_a_policy_arrive_and_errors_name_their_field() {
    let priced = |to: &Value| {
        let mut cluster = Cluster::new("{region: eu}");
        cluster.service("orders", &json!({}), &http());
        let pair = json!({"from": {"region": "eu"}, "to": to, "usdPerGigabyte": 0.09});
        cluster.policy(
            &json!({"targetRefs": [{"kind": "Service", "name": "orders"}],
            "cost": {"usdPerGigabyteBetweenRegions": 0.05, "between": [pair]}}),
        );
        cluster.batch()
    };
    let (services, refused) = priced(&json!({"region": "us"}));
    assert!(refused.is_empty(), "{refused:?}");
    let service = services["orders.shop:80"].as_ref().unwrap();
    let cost = &service.goal.cost;
    assert_eq!(cost.usd_per_gigabyte_between_regions(), 0.05);
    assert_eq!(cost.pairs()[0].usd_per_gigabyte, 0.09);
    assert!(service.has_own_plan);
    let (_, refused) = priced(&json!({}));
    let expected = "ZoneRoutingPolicy shop/p spec.cost";
    assert!(refused[0].starts_with(expected), "{refused:?}");
}

#[test]
fn outlier_detection_of_a_policy_arrives_and_health_checks_of_the_defaults_stay() {
    let mut cluster = Cluster::new(
        "{cluster: {health_checks: [{timeout: 1s, interval: 2s, unhealthy_threshold: 2, \
         healthy_threshold: 1, tcp_health_check: {}}]}}",
    );
    cluster.service("orders", &json!({}), &http());
    cluster.policy(
        &json!({"targetRefs": [{"kind": "Service", "name": "orders"}],
        "cluster": {"outlier_detection": {"consecutive_5xx": 3}}}),
    );
    let (services, refused) = cluster.batch();
    assert!(refused.is_empty(), "{refused:?}");
    let service = services["orders.shop:80"].clone().unwrap();
    let written = service.settings.written();
    let outliers = written.outlier_detection.clone().unwrap();
    assert_eq!(outliers.consecutive_5xx, Some(3));
    assert_eq!(written.health_checks.len(), 1);
    cluster.policy(
        &json!({"targetRefs": [{"kind": "Service", "name": "orders"}],
        "cluster": {"health_checks": [{"timeout": "1s"}]}}),
    );
    let (services, refused) = cluster.batch();
    let expected = "ZoneRoutingPolicy shop/p spec.cluster.health_checks[0]: must have exactly";
    assert!(refused[0].starts_with(expected), "{refused:?}");
    // What was valid stays in force.
    let service = services["orders.shop:80"].clone().unwrap_or(service);
    assert!(service.settings.written().outlier_detection.is_some());
}

#[test]
fn ports_are_clusters_that_come_and_go() {
    let mut cluster = Cluster::new("{}");
    let two = json!([{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]);
    cluster.service("orders", &json!({}), &two);
    let (services, _) = cluster.batch();
    assert!(
        services["orders.shop:81"]
            .as_ref()
            .unwrap()
            .settings
            .is_http2()
    );
    cluster.service("orders", &json!({}), &http());
    let (services, _) = cluster.batch();
    assert!(services["orders.shop:81"].is_none() && services["orders.shop:80"].is_some());
    cluster.inventory.handle_service(
        Change::Deleted(ObjectKey::new("shop", "orders")),
        Instant::ORIGIN,
    );
    assert!(cluster.batch().0["orders.shop:80"].is_none());
}

#[test]
fn of_two_ports_with_one_name_the_first_is_used() {
    let mut cluster = Cluster::new("{cluster_name: '{service}.{namespace}:{port_name}'}");
    cluster.service("orders", &json!({}), &http());
    cluster.service("order", &json!({}), &json!([{"name": "http", "port": 80}]));
    assert_eq!(cluster.batch().1, [""; 0]);
    let unnamed = json!([{"name": "a", "port": 1}, {"name": "a", "port": 2}]);
    cluster.service("users", &json!({}), &unnamed);
    let (services, refused) = cluster.batch();
    assert_eq!(services.len(), 1);
    assert!(
        refused[0].contains("is already that of another port"),
        "{refused:?}"
    );
}

#[test]
fn a_policy_shows_the_clusters_that_it_applies_to() {
    let mut cluster = Cluster::new("{}");
    let two = json!([{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]);
    cluster.service("orders", &json!({}), &two);
    cluster.service("search", &json!({}), &http());
    let spec = |name: &str, target: &str| {
        let json = json!({"metadata": {"namespace": "shop", "name": name}, "spec": {
            "targetRefs": [{"kind": "Service", "name": target}],
            "istio": {"distribute": "DryRun"}, "mode": "Enforce"}});
        Arc::new(ZoneRoutingPolicy::from_json(
            serde_json::from_value(json).unwrap(),
        ))
    };
    let own = spec("p", "orders");
    let change = Change::Applied(Arc::clone(&own));
    cluster.inventory.handle_policy(change);
    assert_eq!(cluster.batch().1, [""; 0]);
    let key = ObjectKey::new("shop", "orders");
    let view = cluster.translator.view(&own);
    let expected = ["orders.shop:80", "orders.shop:81"].map(|name| (key.clone(), name.into()));
    assert_eq!(view.clusters, expected);
    assert_eq!((view.missing.len(), view.error), (0, None));
    assert_eq!(view.distribute, Distribute::DryRun);
    // A policy that is not in force, and one without target.
    for (target, missing) in [("orders", None), ("lost", Some("Service lost"))] {
        let view = cluster.translator.view(&spec("other", target));
        assert_eq!(view.clusters, vec![]);
        assert_eq!(view.missing.first().map(String::as_str), missing);
        let others = view.preferred.iter().map(ToString::to_string);
        let expected = missing.is_none().then(|| "shop/p".to_owned());
        assert_eq!(others.collect::<Vec<_>>(), Vec::from_iter(expected));
        assert_eq!(view.distribute, Distribute::Off);
    }
}

#[test]
fn endpoints_that_terminate_are_draining_and_a_first_batch_is_complete() {
    let mut cluster = Cluster::new("{}");
    cluster.service("orders", &json!({}), &http());
    let conditions = json!({"ready": false, "serving": true, "terminating": true});
    let json = json!({"metadata": {"namespace": "shop", "name": "orders-1",
            "labels": {"kubernetes.io/service-name": "orders"}}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": conditions}, {"addresses": ["10.0.0.2"]}]});
    let slice = EndpointSlice::from_json(serde_json::from_value(json).unwrap());
    let applied = Change::Applied(Arc::new(slice));
    cluster.inventory.handle_slice(applied, Instant::ORIGIN);
    let (services, _) = cluster.batch();
    let localities = services["orders.shop:80"].as_ref().unwrap();
    let [locality] = localities.assignment.endpoints() else {
        panic!("one locality: {localities:?}");
    };
    assert_eq!(locality.locality, Locality::default());
    let health = locality.lb_endpoints.iter().map(|one| one.health_status);
    let expected = [HealthStatus::Draining, HealthStatus::Unknown];
    assert_eq!(health.collect::<Vec<_>>(), expected);
    for is_complete in [true, false] {
        let batch = Batch {
            is_complete,
            ..Batch::default()
        };
        let (changes, _) = cluster.translator.handle_batch(batch);
        assert_eq!(changes.is_complete, is_complete);
    }
}

#[test]
fn an_annotation_without_effect_is_told_once_with_its_service() {
    let mut cluster = Cluster::new("{mode: ENFORCE}");
    let told = |cluster: &mut Cluster, annotations: Value| {
        cluster.service("orders", &annotations, &http());
        let (services, refused) = cluster.batch();
        assert!(refused.is_empty(), "it is in force: {refused:?}");
        let service = services["orders.shop:80"].clone().unwrap();
        (cluster.translator.poll_without_effect(), service)
    };
    let hash = json!({"plimsoll.dev/policy": "RingHash"});
    assert_eq!(told(&mut cluster, hash.clone()).0, None, "nobody asks");
    let asks = json!({"plimsoll.dev/policy": "RingHash", "plimsoll.dev/mode": "Enforce"});
    let (first, service) = told(&mut cluster, asks.clone());
    let first = first.unwrap();
    assert!(service.config.endpoint_policy().is_hash());
    assert_eq!(
        (first.event, &*first.object),
        ("NotSteered", "Service shop/orders")
    );
    assert!(
        first
            .reason
            .contains("[plimsoll.dev/mode]: requests measured demand, but consistent"),
        "{}",
        first.reason
    );
    assert_eq!(first.service.unwrap().0, ObjectKey::new("shop", "orders"));
    cluster.slice("orders", &[("10.0.0.1", "a")]);
    cluster.batch();
    assert_eq!(cluster.translator.poll_without_effect(), None, "told once");
    assert_eq!(told(&mut cluster, hash).0, None);
    assert!(told(&mut cluster, asks.clone()).0.is_some(), "again");
    // The condition of a policy says it.
    cluster.policy(&json!({
        "targetRefs": [{"group": "", "kind": "Service", "name": "orders"}], "mode": "Enforce"
    }));
    assert_eq!(told(&mut cluster, asks).0, None);
}

#[test]
fn each_valid_setting_is_in_force_beside_one_that_is_not_also_after_a_restart() {
    let half = json!({"plimsoll.dev/mode": "Enforce", "plimsoll.dev/ramp": "150",
        "plimsoll.dev/policy": "LeastRequest", "plimsoll.dev/client": "x"});
    // A control plane that has just started knows no last valid value.
    let mut cluster = Cluster::new("{ramp: 60}");
    cluster.service("orders", &half, &http());
    let (services, refused) = cluster.batch();
    let service = services["orders.shop:80"].clone().unwrap();
    assert_eq!((service.mode, service.ramp), (Mode::Enforce, 60));
    assert_eq!(service.config.endpoint_policy().name(), "least_request");
    let object = "Service shop/orders metadata.annotations[plimsoll.dev/";
    let named = |name: &str| {
        refused
            .iter()
            .any(|one| one.starts_with(&format!("{object}{name}]")))
    };
    assert!(named("ramp") && named("client"), "{refused:?}");
    assert_eq!(refused.len(), 2, "{refused:?}");
    // One that knows the last value keeps it, and takes the new mode.
    let mut cluster = Cluster::new("{}");
    cluster.service("orders", &json!({"plimsoll.dev/ramp": "20"}), &http());
    cluster.batch();
    cluster.service("orders", &half, &http());
    let (services, _) = cluster.batch();
    let service = services["orders.shop:80"].clone().unwrap();
    assert_eq!((service.mode, service.ramp), (Mode::Enforce, 20));
    // Not beyond what is written now: without the annotation it is the default.
    cluster.service("orders", &json!({"plimsoll.dev/mode": "Enforce"}), &http());
    let service = cluster.batch().0["orders.shop:80"].clone().unwrap();
    assert_eq!((service.mode, service.ramp), (Mode::Enforce, 100));
}

#[test]
fn a_last_value_that_is_invalid_beside_new_ones_is_left_out() {
    let mut cluster = Cluster::new("{}");
    let with_ramp = |ramp: &str, mode: &str| {
        json!({"plimsoll.dev/mode": mode, "plimsoll.dev/ramp": ramp,
            "plimsoll.dev/target-utilization": "0.8"})
    };
    cluster.service("orders", &with_ramp("20", "Enforce"), &http());
    cluster.batch();
    cluster.service("orders", &with_ramp("x", "Never"), &http());
    let (services, refused) = cluster.batch();
    let service = services["orders.shop:80"].clone().unwrap();
    assert_eq!(
        (service.mode, service.ramp),
        (Mode::Enforce, 20),
        "{refused:?}"
    );
}

#[test]
fn the_fleets_that_get_a_service_are_those_of_its_annotation_or_of_the_file() {
    let fleets = |text: &str, annotations: &Value| {
        let mut cluster = Cluster::new(text);
        cluster.service("orders", annotations, &http());
        let (services, refused) = cluster.batch();
        let service = services["orders.shop:80"].clone().unwrap();
        let fleets = service.visible_to.as_deref().cloned();
        (fleets.map(Vec::from_iter), refused)
    };
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
    let none = json!({});
    assert_eq!(
        fleets("{}", &none),
        (None, vec![]),
        "a small cluster needs no setting"
    );
    let own = "{visible_to: ['{namespace}', gateway]}";
    assert_eq!(fleets(own, &none), (names(&["gateway", "shop"]), vec![]));
    let annotated = json!({"plimsoll.dev/visible-to": "web, batch"});
    for text in [own, "{}"] {
        assert_eq!(fleets(text, &annotated), (names(&["batch", "web"]), vec![]));
    }
    let all = json!({"plimsoll.dev/visible-to": "*"});
    assert_eq!(fleets(own, &all), (None, vec![]));
    let (wrong, refused) = fleets(own, &json!({"plimsoll.dev/visible-to": "web,"}));
    assert_eq!(wrong, names(&["gateway", "shop"]));
    assert!(
        refused[0].contains("[plimsoll.dev/visible-to]: needs names"),
        "{refused:?}"
    );
}

#[test]
fn a_bad_annotation_does_not_end_a_policy() {
    let mut cluster = Cluster::new("{}");
    let unknown = json!({"plimsoll.dev/client": "x"});
    cluster.service("orders", &unknown, &http());
    let spec = json!({"targetRefs": [{"kind": "Service", "name": "orders", "sectionName": "http"},
        {"kind": "Service", "name": "orders", "sectionName": "web"},
        {"kind": "Service", "name": "users"}], "mode": "Enforce", "ramp": 20});
    cluster.policy(&spec);
    let (services, _) = cluster.batch();
    let service = services["orders.shop:80"].clone().unwrap();
    assert_eq!((service.mode, service.ramp), (Mode::Enforce, 20));
    let policy = cluster.inventory.policies().next().unwrap();
    let view = cluster.translator.view(policy);
    assert_eq!(view.clusters.len(), 1);
    assert_eq!(view.error, None);
    assert_eq!(
        view.missing,
        ["port web of Service orders", "Service users"]
    );
    let notes: Vec<_> = view.notes.iter().collect();
    assert!(
        notes.len() == 1 && notes[0].contains("[plimsoll.dev/client]"),
        "{notes:?}"
    );
}

#[test]
fn a_service_beyond_a_limit_stays_as_it_was_and_its_owner_is_told_once() {
    let mut cluster = Cluster::new("{}");
    cluster.service("orders", &json!({}), &http());
    cluster.slice("orders", &[("10.0.0.1", "a")]);
    cluster.service("users", &json!({}), &http());
    cluster.batch();
    let many: Vec<Value> = (1..=500)
        .map(|port| json!({"name": format!("p{port}"), "port": port}))
        .collect();
    for expected in [1, 0] {
        cluster.service("orders", &json!({}), &json!(many));
        let (services, refused) = cluster.batch();
        assert!(services.is_empty(), "what was accepted stays: {services:?}");
        assert_eq!(refused.len(), expected, "{refused:?}");
    }
    let over = &cluster.translator.over_limit[&ObjectKey::new("shop", "orders")];
    assert_eq!(
        (over.event, over.limit),
        ("LimitExceeded", Some("ports_per_service"))
    );
    cluster.policy(&json!({"targetRefs": [{"kind": "Service", "name": "orders"}]}));
    cluster.batch();
    let policy = cluster.inventory.policies().next().unwrap();
    let notes = cluster.translator.view(policy).notes;
    assert!(
        notes
            .first()
            .is_some_and(|note| note.contains("would be 500")),
        "{notes:?}"
    );
    cluster.service("orders", &json!({}), &http());
    let (services, refused) = cluster.batch();
    assert!(refused.is_empty() && services.contains_key("orders.shop:80"));
    assert!(cluster.translator.over_limit.is_empty());
}
