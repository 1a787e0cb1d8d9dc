//! Spans of requests, exported by OTLP from a runtime of their own.
//!
//! Run it with `cargo run -p plimsoll-client --features opentelemetry --example tracing --
//! COLLECTOR ADDRESS...`, where COLLECTOR is a URI such as `http://127.0.0.1:4317`.
#![expect(clippy::print_stdout, reason = "an example")]

use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use plimsoll_client::{Client, Cluster, ExportRuntime, Request};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A provider whose exporter runs on the thread of `exporting`.
fn tracer_provider(
    exporting: &ExportRuntime,
    collector: &str,
) -> Result<SdkTracerProvider, BoxError> {
    let exporter = exporting.enter(|| {
        let builder = SpanExporter::builder().with_tonic();
        builder.with_endpoint(collector).build()
    })?;
    let resource = Resource::builder().with_service_name("shop").build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let collector = args.next().ok_or("usage: tracing COLLECTOR ADDRESS...")?;
    let addresses: Vec<String> = args.collect();

    let exporting = ExportRuntime::start()?;
    let provider = tracer_provider(&exporting, &collector)?;
    let client = Client::builder()
        .zone("zone-a")
        .cluster(Cluster::new("orders").zone("zone-a", &addresses))
        .tracer_provider(&provider)
        .build()?;

    let orders = client.service("orders")?;
    for _ in 0..4 {
        let response = orders
            .send(Request::get("http://orders/").body(())?)
            .await?;
        let status = response.status();
        println!("{status} {}", response.into_body().text().await?);
    }
    // Blocks this thread, the only one of the program's runtime, until the spans are sent.
    provider.shutdown()?;
    Ok(())
}
