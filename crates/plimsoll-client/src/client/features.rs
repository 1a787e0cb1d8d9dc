//! Refuses settings that this build cannot honor, with the name of the missing Cargo feature.

use plimsoll_xds::upstream::{Discovery, UpstreamOptions};

use crate::error::{Error, ErrorKind};

/// Fails if `options` of `cluster` need a Cargo feature that is not enabled.
pub(crate) fn check(cluster: &str, options: &UpstreamOptions) -> Result<(), Error> {
    let missing = missing(options);
    missing.map_or(Ok(()), |(what, feature)| {
        let message = format!(
            "cluster {cluster:?} uses {what}, which is not compiled in: enable the feature \
             {feature} of plimsoll-client"
        );
        Err(Error::new(ErrorKind::Config, message))
    })
}

/// Returns a setting and the feature that it needs.
fn missing(options: &UpstreamOptions) -> Option<(&'static str, &'static str)> {
    if cfg!(not(feature = "tls")) && options.tls.is_some() {
        return Some(("TLS", "tls-ring (or tls-aws-lc-rs, or tls)"));
    }
    if cfg!(not(feature = "xds")) && matches!(options.discovery, Discovery::Eds { .. }) {
        return Some(("EDS", "xds"));
    }
    None
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::upstream::UpstreamTls;

    use super::*;

    /// Runs with all features, and without any in the step `features` of `make test`.
    #[test]
    fn a_missing_feature_is_named() {
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
        for (options, compiled_in, feature) in [
            (UpstreamOptions::default(), true, ""),
            (tls, cfg!(feature = "tls"), "tls-ring"),
            (eds, cfg!(feature = "xds"), "xds"),
        ] {
            match check("orders", &options) {
                Ok(()) => assert!(compiled_in, "{feature}"),
                Err(error) => {
                    assert!(!compiled_in, "{error}");
                    assert!(error.to_string().contains(feature), "{error}");
                }
            }
        }
    }
}
