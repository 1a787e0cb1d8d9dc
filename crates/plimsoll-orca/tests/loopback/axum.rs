//! An axum router with the layer.

use std::time::Duration;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::{Extension, Router, routing};
use plimsoll_orca::{FieldError, OpenRcaService, OrcaHandle, OrcaLayer, OrcaRecorder, When};
use plimsoll_testing::tasks::{wait_to_see, wait_until};

use super::grpc::{self, Reports};
use super::{get, listen, report};

async fn costly(
    Extension(orca): Extension<OrcaRecorder>,
    Path(rows): Path<f64>,
) -> Result<String, (StatusCode, String)> {
    let refused = |error: FieldError| (StatusCode::BAD_REQUEST, error.to_string());
    orca.set_request_cost("rows", rows).map_err(refused)?;
    orca.set_named_metric("queue", 4.0).map_err(refused)?;
    Ok(format!("{rows} rows"))
}

async fn serve(layer: OrcaLayer) -> (std::net::SocketAddr, OrcaHandle) {
    let handle = layer.handle();
    let app = Router::new()
        .route("/", routing::get(|| async { "hello" }))
        .route("/rows/{rows}", routing::get(costly))
        .route(
            "/broken",
            routing::get(|| async { StatusCode::INTERNAL_SERVER_ERROR }),
        )
        .route_service(OpenRcaService::PATH, handle.open_rca_service())
        .layer(layer);
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, handle)
}

#[tokio::test]
async fn the_default_layer_adds_the_header() {
    let (address, handle) = serve(plimsoll_orca::layer()).await;
    let headers = async || {
        let response = get(address, "/", &[]).await;
        assert_eq!(response.body(), "hello");
        assert_eq!(response.headers()["content-length"], "5", "as it was");
        response.into_parts().0.headers
    };
    let headers = wait_to_see("requests, CPU and memory are reported", headers, |seen| {
        let reported = report(seen).unwrap_or_default();
        let cpu_and_memory = reported.cpu_utilization > 0.0 && reported.mem_utilization > 0.0;
        reported.rps_fractional > 0.0 && (cpu_and_memory || !cfg!(target_os = "linux"))
    })
    .await;
    let value = headers["endpoint-load-metrics"].to_str();
    assert!(value.unwrap().starts_with("TEXT "));
    wait_until("all is served", async || handle.in_flight() == 0).await;
}

#[tokio::test]
async fn requests_and_errors_are_measured() {
    // Long enough for a slow machine.
    let minute = OrcaLayer::builder().window(Duration::from_secs(60));
    let (address, handle) = serve(minute.build().unwrap()).await;
    get(address, "/broken", &[]).await;
    get(address, "/", &[]).await;
    wait_until("one error of two requests", async || {
        let report = handle.report();
        report.eps > 0.0 && (report.rps_fractional - 2.0 * report.eps).abs() < 0.01
    })
    .await;
    assert_eq!(handle.errors(), 1);
}

#[tokio::test]
async fn handlers_add_to_the_report_of_their_response() {
    let (address, _) = serve(plimsoll_orca::layer()).await;
    let response = get(address, "/rows/12.5", &[]).await;
    let reported = report(response.headers()).unwrap();
    assert_eq!(reported.request_cost.get("rows"), Some(12.5));
    assert_eq!(reported.named_metrics.get("queue"), Some(4.0));
    let refused = get(address, "/rows/NaN", &[]).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let reason = "request_cost.rows: must be a finite number of at least 0, is NaN";
    assert_eq!(refused.body(), reason);
}

#[tokio::test]
async fn clients_choose_the_format() {
    let layer = OrcaLayer::builder().when(When::OnRequest).build().unwrap();
    layer.handle().set_cpu_utilization(0.5).unwrap();
    layer.handle().refresh();
    let (address, _) = serve(layer).await;
    assert_eq!(report(get(address, "/", &[]).await.headers()), None);
    for form in ["TEXT", "JSON", "BIN"] {
        let asking = [("endpoint-load-metrics-format", form)];
        let response = get(address, "/", &asking).await;
        let value = response.headers()["endpoint-load-metrics"]
            .to_str()
            .unwrap();
        assert!(value.starts_with(form), "{value}");
        let reported = report(response.headers()).unwrap();
        assert_eq!(reported.cpu_utilization, 0.5);
    }
}

#[tokio::test]
async fn an_axum_router_reports_out_of_band() {
    let layer = OrcaLayer::builder().concurrency_limit(10).build().unwrap();
    let (address, handle) = serve(layer).await;
    handle.set_application_utilization(0.25).unwrap();
    handle.refresh();
    let mut reports: Reports = grpc::ask(address, 1).await;
    let first = reports.next().await.unwrap();
    assert_eq!(first.application_utilization, 0.25);
    assert_eq!(handle.in_flight(), 0, "the stream does not count as load");
    handle.shutdown();
    assert_eq!(reports.end().await, tonic::Code::Unavailable);
}
