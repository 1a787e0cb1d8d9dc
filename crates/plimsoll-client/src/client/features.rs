//! Refuses settings that this build cannot honor, with the name of the missing Cargo feature.

use plimsoll_xds::upstream::{Discovery, UpstreamOptions};

use crate::error::{Error, ErrorKind};

/// What of this crate is compiled in.
#[derive(Clone, Copy)]
struct Features {
    tls: bool,
    xds: bool,
}

const COMPILED: Features = Features {
    tls: cfg!(feature = "tls"),
    xds: cfg!(feature = "xds"),
};

/// Fails if `options` of `cluster` need a Cargo feature that is not enabled.
pub(crate) fn check(cluster: &str, options: &UpstreamOptions) -> Result<(), Error> {
    check_with(COMPILED, cluster, options)
}

/// Fails if certificates or keys of `options` cannot be read.
#[cfg(feature = "tls")]
pub(crate) fn check_certificates(cluster: &str, options: &UpstreamOptions) -> Result<(), Error> {
    let tls = options.tls.iter();
    let mut checked = tls.map(crate::upstream::tls::check_files);
    checked.try_for_each(|checked| {
        checked.map_err(|error| {
            let message = format!("clusters[{cluster}].tls.{error}");
            Error::new(ErrorKind::Config, message)
        })
    })
}

fn check_with(features: Features, cluster: &str, options: &UpstreamOptions) -> Result<(), Error> {
    let missing = missing(features, options);
    missing.map_or(Ok(()), |(what, feature)| {
        let message = format!(
            "cluster {cluster:?} uses {what}, which is not compiled in: enable the feature \
             {feature} of plimsoll-client"
        );
        Err(Error::new(ErrorKind::Config, message))
    })
}

/// Returns a setting and the feature that it needs.
fn missing(features: Features, options: &UpstreamOptions) -> Option<(&'static str, &'static str)> {
    if !features.tls && options.tls.is_some() {
        return Some(("TLS", "tls-ring (or tls-aws-lc-rs, or tls)"));
    }
    if !features.xds && matches!(options.discovery, Discovery::Eds { .. }) {
        return Some(("EDS", "xds"));
    }
    None
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::upstream::UpstreamTls;

    use super::*;

    #[test]
    fn a_missing_feature_is_named() {
        let none = UpstreamOptions::default();
        let tls = UpstreamOptions {
            tls: Some(UpstreamTls::default()),
            ..Default::default()
        };
        let eds = UpstreamOptions {
            discovery: Discovery::Eds {
                service_name: None,
                source: Default::default(),
            },
            ..Default::default()
        };
        let refusal = |tls, xds, options| {
            let refused = check_with(Features { tls, xds }, "orders", options);
            refused.err().map(|error| error.to_string())
        };
        let named = |error: Option<String>, feature| {
            error.is_some_and(|error| error.contains(&format!("enable the feature {feature} ")))
        };
        for other in [false, true] {
            assert_eq!(refusal(other, other, &none), None);
            assert_eq!(refusal(true, other, &tls), None);
            assert_eq!(refusal(other, true, &eds), None);
            let tls_or = "tls-ring (or tls-aws-lc-rs, or tls)";
            assert!(named(refusal(false, other, &tls), tls_or));
            assert!(named(refusal(other, false, &eds), "xds"));
        }
    }
}
