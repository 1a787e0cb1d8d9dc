//! Servers without tower services count requests and write reports through the handle.

use plimsoll_orca::{OrcaFormat, OrcaLayer};

#[test]
fn a_handle_counts_requests_and_writes_headers() {
    let layer = OrcaLayer::builder()
        .cpu(false)
        .memory(false)
        .build()
        .unwrap();
    let orca = layer.handle();
    drop(layer);
    assert_eq!(orca.header(OrcaFormat::Text), None, "nothing to report yet");
    let first = orca.begin_request();
    let second = orca.begin_request();
    assert_eq!((orca.in_flight(), orca.errors()), (2, 0));
    second.fail();
    assert_eq!((orca.in_flight(), orca.errors()), (1, 1));
    drop(first);
    assert_eq!((orca.in_flight(), orca.errors()), (0, 1));
    orca.set_named_metric("queue", 2.0).unwrap();
    orca.refresh();
    let (name, value) = orca.header(OrcaFormat::Text).unwrap();
    assert_eq!(name, "endpoint-load-metrics");
    let text = value.to_str().unwrap();
    assert!(text.contains("named_metrics.queue=2"), "{text}");
}
