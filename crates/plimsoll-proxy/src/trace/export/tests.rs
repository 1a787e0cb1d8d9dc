//! Tests of the exporter without a collector: batches, retries, log lines and counters.

use http::{HeaderMap, Method};
use plimsoll_core::model::locality::Locality;
use plimsoll_testing::CapturedLogs;
use prost::Message as _;
use tracing::Level;

use super::*;
use crate::config::{OtlpProtocol, Sampling, TracingConfig};
use crate::router::RequestView;
use crate::trace::context::TraceContext;
use crate::trace::messages::Span;

fn collector(max_cache_size: usize) -> Arc<CollectorConfig> {
    Arc::new(CollectorConfig {
        protocol: OtlpProtocol::Http,
        cluster: "collector".to_owned(),
        authority: None,
        path: "/v1/traces".parse().unwrap(),
        headers: Vec::new(),
        timeout: Duration::from_secs(1),
        service_name: "shop".to_owned(),
        max_cache_size,
    })
}

/// A client without the cluster of the collector: every export fails at once.
fn client() -> Client {
    Client::builder().build().unwrap()
}

fn task() -> ExportTask {
    ExportTask {
        client: client(),
        pool: 0,
        node: [KeyValue::text("zone", "a")].into(),
        collector: collector(8),
        counters: Arc::default(),
        stopping: CancellationToken::new(),
        is_failing: false,
    }
}

fn span() -> Box<SpanRecord> {
    let config = Arc::new(TracingConfig {
        sampling: Sampling {
            client: 100,
            random: 10_000,
            overall: 100,
        },
        max_path_tag_length: 256,
        custom_tags: Vec::new(),
        collector: None,
    });
    let context = TraceContext {
        trace_id: 1,
        span_id: 2,
        parent: None,
        sampled: true,
    };
    let view = RequestView {
        host: "shop.example",
        path: "/",
        path_and_query: "/",
        method: &Method::GET,
        scheme: "http",
        headers: &HeaderMap::new(),
    };
    Box::new(SpanRecord::start(&config, context, &view, true))
}

fn queue(
    spans: usize,
) -> (
    mpsc::Sender<Box<SpanRecord>>,
    mpsc::Receiver<Box<SpanRecord>>,
) {
    let (sender, queue) = mpsc::channel(2 * BATCH);
    for _ in 0..spans {
        sender.try_send(span()).unwrap();
    }
    (sender, queue)
}

#[tokio::test]
async fn failures_are_logged_once_until_an_export_succeeds() {
    let mut task = task();
    let error = ExportError {
        reason: "refused".to_owned(),
        retriable: true,
    };
    let lines = CapturedLogs::default();
    tracing::subscriber::with_default(lines.clone(), || {
        task.log_success();
        for _ in 0..2 {
            task.log_failure(&error);
            task.log_failure(&error);
            task.log_success();
            task.log_success();
        }
    });
    let lines = lines.0.lock().unwrap();
    let levels: Vec<Level> = lines.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::WARN, Level::INFO, Level::WARN, Level::INFO]);
    let (failed, restored) = (&lines[0].1, &lines[1].1);
    assert!(failed.contains("cannot export spans; retrying"), "{failed}");
    assert!(failed.contains("cluster=\"collector\""), "{failed}");
    assert!(failed.contains("error=refused"), "{failed}");
    assert!(restored.contains("spans are exported again"), "{restored}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_full_or_has_the_spans_of_an_interval() {
    let task = task();
    let (sender, mut queue) = queue(BATCH + 3);
    let mut batch = Vec::new();
    let started = Instant::now();
    assert!(task.collect(&mut queue, &mut batch).await);
    assert_eq!((batch.len(), queue.len()), (BATCH, 3));
    assert_eq!(
        started.elapsed(),
        Duration::ZERO,
        "a full batch does not wait"
    );
    batch.clear();
    let later = tokio::spawn(async move {
        sleep(FLUSH_INTERVAL / 2).await;
        sender.try_send(span()).unwrap();
        sleep(FLUSH_INTERVAL).await;
        sender
    });
    assert!(task.collect(&mut queue, &mut batch).await);
    assert_eq!(batch.len(), 4);
    assert_eq!(started.elapsed(), FLUSH_INTERVAL);
    batch.clear();
    let sender = later.await.unwrap();
    sender.try_send(span()).unwrap();
    drop(sender);
    assert!(!task.collect(&mut queue, &mut batch).await, "that was all");
    assert_eq!(batch.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_empties_the_queue_without_waiting() {
    let task = task();
    let (_sender, mut queue) = queue(BATCH + 3);
    task.stopping.cancel();
    let mut sizes = Vec::new();
    let started = Instant::now();
    loop {
        let mut batch = Vec::new();
        let is_open = task.collect(&mut queue, &mut batch).await;
        sizes.push(batch.len());
        if !is_open {
            break;
        }
    }
    assert_eq!(sizes, [BATCH, 3]);
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(!task.collect(&mut queue, &mut Vec::new()).await);
}

#[tokio::test(start_paused = true)]
async fn waiting_times_double_and_end_with_the_last_attempt() {
    let task = task();
    let millis = Duration::from_millis;
    for (attempt, again, waited) in [(0, true, 500), (1, true, 1000), (2, false, 0)] {
        let started = Instant::now();
        assert_eq!(task.back_off(attempt).await, again, "{attempt}");
        assert_eq!(started.elapsed(), millis(waited), "{attempt}");
    }
    task.stopping.cancel();
    let started = Instant::now();
    assert!(!task.back_off(0).await);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_dropped_after_its_attempts() {
    let mut task = task();
    let mut batch = vec![span(), span(), span()];
    let started = Instant::now();
    task.export(&mut batch).await;
    assert!(batch.is_empty() && task.is_failing);
    assert_eq!(started.elapsed(), Duration::from_millis(1500));
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(
        (load(&task.counters.sent), load(&task.counters.dropped)),
        (0, 3)
    );
}

#[tokio::test]
async fn export_requests_name_the_service_the_library_and_the_node() {
    let task = task();
    let mut batch = vec![span(), span()];
    let bytes = task.message(&mut batch);
    assert!(batch.is_empty());
    let request = ExportRequest::<Span>::decode(bytes).unwrap();
    let [resource] = &request.resource_items[..] else {
        panic!("one resource: {request:?}");
    };
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    let expected = [
        KeyValue::text("service.name", "shop"),
        KeyValue::text("telemetry.sdk.name", "plimsoll"),
        KeyValue::text("telemetry.sdk.language", "rust"),
        KeyValue::text("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    assert_eq!(attributes[..], expected);
    let scope = &resource.scope_items[0];
    assert_eq!(scope.scope.as_ref().unwrap().name, "plimsoll");
    assert_eq!(scope.items.len(), 2);
    let zone = KeyValue::text("zone", "a");
    assert!(
        scope
            .items
            .iter()
            .all(|span| span.attributes.contains(&zone))
    );
}

#[tokio::test]
async fn listeners_with_the_same_collector_share_an_exporter() {
    let node = NodeConfig {
        id: "n1".to_owned(),
        cluster: "fleet".to_owned(),
        locality: Locality::zone_only("a"),
    };
    let exporters = Exporters::new(client(), 0, &node);
    let expected = [KeyValue::text("node_id", "n1"), KeyValue::text("zone", "a")];
    assert_eq!(exporters.node[..], expected);
    assert_eq!(exporters.counts(), (0, 0));
    let [first, same] = [8, 8].map(|size| exporters.open(&collector(size)).unwrap());
    let other = exporters.open(&collector(9)).unwrap();
    assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
    assert_eq!(exporters.lock().exporters.len(), 2);
    drop((first, same));
    let again = exporters.open(&collector(9)).unwrap();
    assert!(Arc::ptr_eq(&again, &other));
    assert_eq!(
        exporters.lock().exporters.len(),
        1,
        "the other is forgotten"
    );
    again.send(span());
    exporters.shut_down().await;
    assert_eq!(exporters.counts(), (0, 1));
    assert!(exporters.lock().tasks.is_empty());
    assert!(exporters.ended.is_cancelled());
}

#[test]
fn spans_that_do_not_fit_are_dropped_and_counted() {
    let (spans, mut queue) = mpsc::channel(2);
    let exporter = Exporter {
        spans,
        counters: Arc::default(),
    };
    for _ in 0..5 {
        exporter.send(span());
    }
    assert_eq!(exporter.counters.dropped.load(Ordering::Relaxed), 3);
    assert_eq!(exporter.counters.sent.load(Ordering::Relaxed), 0);
    assert!(queue.try_recv().is_ok());
}
