//! The first program: needs no other crate than this one.
//!
//! Run it with `cargo run -p plimsoll-client --example first -- 127.0.0.1:8080 127.0.0.1:8081`: the
//! addresses are those of servers in this zone and in another one.
#![expect(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::time::Duration;

use plimsoll_client::{Client, Cluster, Policy, Request, RequestOptions, block_on};

fn main() -> Result<(), Box<dyn Error>> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let [near, far] = addresses.as_slice() else {
        return Err("usage: first ADDRESS_IN_ZONE_A ADDRESS_IN_ZONE_B".into());
    };
    let orders = Cluster::new("orders")
        .zone("zone-a", [near])
        .zone("zone-b", [far])
        .policy(Policy::zone_aware().measured().min_cluster_size(1));
    block_on(async {
        let client = Client::builder()
            .zone("zone-a")
            .demand([("zone-a", 60), ("zone-b", 20)])
            .cluster(orders)
            .build()?;
        let options = RequestOptions::new().timeout(Duration::from_secs(1));
        let orders = client.service("orders")?.with_defaults(options);
        for _ in 0..6 {
            let response = orders
                .send(Request::post("/orders").body("two apples")?)
                .await?;
            let status = response.status();
            println!("{status} {}", response.into_body().text().await?);
        }
        println!("{}", client.explain("orders").await?.reason);
        client.shutdown().await?;
        Ok(())
    })
}
