//! Two datacenters that are joined: a service of both is one, and one that is away keeps its last
//! state.

use plimsoll_consul::Datacenter;
use plimsoll_testing::Consul;
use serde_json::json;

use crate::watched::{Watched, host, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datacenters_are_regions_and_one_that_is_away_keeps_its_endpoints() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = Consul::start(directories[0].path(), &json!({"node_name": "n1"}));
    let wan = one.address("serf_wan").to_string();
    let settings = json!({"datacenter": "dc2", "node_name": "n2", "retry_join_wan": [wan]});
    let mut two = Consul::start(directories[1].path(), &settings);
    one.wait_for_datacenter("dc2");
    one.register("orders", "o1", host(1), json!({"Meta": {"zone": "a"}}));
    two.register("orders", "o2", host(2), json!({"Meta": {"zone": "a"}}));
    let datacenter = |name: &str, region: Option<&str>| Datacenter {
        name: Some(name.to_owned()),
        region: region.map(str::to_owned),
    };
    let mut options = options(one.http());
    options.datacenters = vec![datacenter("dc1", None), datacenter("dc2", Some("eu"))];
    let mut watched = Watched::start(options);
    let both = "1 dc1/a ready 1, 2 eu/a ready 1";
    watched.wait_for("orders", Some(both)).await;
    assert_eq!(watched.batches, 1);

    two.kill();
    let reason = watched.wait_failing(true).await;
    assert!(reason.starts_with("500"), "{reason}");
    one.register("orders", "o3", host(3), json!({}));
    let both = "1 dc1/a ready 1, 2 eu/a ready 1, 3 dc1/- ready 1";
    watched.wait_for("orders", Some(both)).await;
}
