//! [`Published`]: one report in all formats, encoded once and copied into every response.
//!
//! `plimsoll_xds::orca` encodes. Written by `state`, read by `call` and `open_rca`.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_xds::grpc_frame::frame;
use plimsoll_xds::orca::{self, OrcaFormat};

pub(crate) const ENDPOINT_LOAD_METRICS: HeaderName =
    HeaderName::from_static(orca::ENDPOINT_LOAD_METRICS);
pub(crate) const ENDPOINT_LOAD_METRICS_BIN: HeaderName =
    HeaderName::from_static(orca::ENDPOINT_LOAD_METRICS_BIN);

pub(crate) type Header = (HeaderName, HeaderValue);

#[derive(Debug, Default)]
pub(crate) struct Published {
    report: OrcaLoadReport,
    /// Encoded headers in the order of [`index`]; `None` for an empty report.
    headers: [Option<Header>; 4],
    frame: Bytes,
}

impl Published {
    pub(crate) fn new(report: OrcaLoadReport) -> Self {
        let has_content = report != OrcaLoadReport::default();
        let form = |format| has_content.then(|| header(&report, format)).flatten();
        Self {
            headers: FORMATS.map(form),
            frame: frame(&orca::encode_message(&report)),
            report,
        }
    }

    pub(crate) const fn report(&self) -> &OrcaLoadReport {
        &self.report
    }

    /// The report as a header. Clones share their bytes.
    pub(crate) const fn header(&self, format: OrcaFormat) -> Option<&Header> {
        self.headers[index(format)].as_ref()
    }

    pub(crate) fn frame(&self) -> Bytes {
        self.frame.clone()
    }
}

/// Encodes a report as a header; falls back to JSON if the text format cannot express the report.
pub(crate) fn header(report: &OrcaLoadReport, format: OrcaFormat) -> Option<Header> {
    let json = |_| orca::encode(report, OrcaFormat::Json);
    let (name, value) = orca::encode(report, format).or_else(json).ok()?;
    let name = match name {
        orca::ENDPOINT_LOAD_METRICS_BIN => ENDPOINT_LOAD_METRICS_BIN,
        _ => ENDPOINT_LOAD_METRICS,
    };
    Some((name, HeaderValue::try_from(value).ok()?))
}

const FORMATS: [OrcaFormat; 4] = [
    OrcaFormat::Text,
    OrcaFormat::Json,
    OrcaFormat::Bin,
    OrcaFormat::BinHeader,
];

const fn index(format: OrcaFormat) -> usize {
    match format {
        OrcaFormat::Text => 0,
        OrcaFormat::Json => 1,
        OrcaFormat::Bin => 2,
        OrcaFormat::BinHeader => 3,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::orca::OrcaLimits;
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;

    fn parse((name, value): &Header) -> OrcaLoadReport {
        let pair = (name.as_str(), value.as_bytes());
        orca::parse([pair], &OrcaLimits::default()).unwrap()
    }

    /// Reports as this crate writes them: finite, non-negative values and valid names.
    fn any_report() -> impl Strategy<Value = OrcaLoadReport> {
        let value = || prop_oneof![Just(0.0), 0.0..2.0, 0.0..f64::MAX];
        let map = || btree_map("[!-+\\--9;<>-~]{1,12}", value(), 0..4);
        let fields = (value(), value(), value(), value(), value());
        (fields, map(), map(), map()).prop_map(|(fields, named, utilization, cost)| {
            let (cpu, mem, app, rps, eps) = fields;
            OrcaLoadReport {
                cpu_utilization: cpu,
                mem_utilization: mem,
                application_utilization: app,
                rps: 0,
                rps_fractional: rps,
                eps,
                named_metrics: named.into_iter().collect(),
                utilization: utilization.into_iter().collect(),
                request_cost: cost.into_iter().collect(),
                ..Default::default()
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_emitted_reads_back_as_the_same_numbers(report in any_report()) {
            let published = Published::new(report.clone());
            for format in FORMATS {
                match published.header(format) {
                    Some(header) => prop_assert_eq!(&parse(header), &report),
                    None => prop_assert_eq!(&report, &OrcaLoadReport::default()),
                }
            }
            let message = orca::parse_message(&published.frame()[5..], &OrcaLimits::default());
            prop_assert_eq!(message.as_ref(), Ok(&report));
        }
    }

    #[test]
    fn every_format_has_its_header() {
        let published = Published::new(OrcaLoadReport {
            cpu_utilization: 0.5,
            ..Default::default()
        });
        let text = |format| {
            let (name, value) = published.header(format).unwrap();
            format!("{name}: {}", value.to_str().unwrap())
        };
        let expected = "endpoint-load-metrics: TEXT cpu_utilization=0.5";
        assert_eq!(text(OrcaFormat::Text), expected);
        let expected = "endpoint-load-metrics: JSON {\"cpu_utilization\":0.5}";
        assert_eq!(text(OrcaFormat::Json), expected);
        let expected = "endpoint-load-metrics: BIN CQAAAAAAAOA/";
        assert_eq!(text(OrcaFormat::Bin), expected);
        let expected = "endpoint-load-metrics-bin: CQAAAAAAAOA/";
        assert_eq!(text(OrcaFormat::BinHeader), expected);
    }

    #[test]
    fn a_request_cost_falls_back_from_text_to_json() {
        let mut report = OrcaLoadReport::default();
        report.request_cost.insert("rows", 2.0);
        let (_, value) = header(&report, OrcaFormat::Text).unwrap();
        assert_eq!(value, "JSON {\"request_cost\":{\"rows\":2.0}}");
    }

    #[test]
    fn an_empty_report_has_no_header_and_an_empty_message() {
        let published = Published::new(OrcaLoadReport::default());
        assert!(FORMATS.iter().all(|form| published.header(*form).is_none()));
        assert_eq!(published.frame(), [0, 0, 0, 0, 0][..]);
    }
}
