//! Tables of `envoy.extensions.transport_sockets.tls.v3`. What would make a connection safer than
//! it is here must never be passed over.

use super::Class::Request;
use super::Inside::{DefaultOr, Many, One, Value};
use super::Kind;

/// The table of a transport socket, by the full name of its type.
pub(super) fn kind(full_name: &str) -> Option<&'static Kind> {
    let tls = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    (full_name == tls).then_some(&UPSTREAM_TLS)
}

pub(super) static UPSTREAM_TLS: Kind = Kind {
    read: &[
        (1, "common_tls_context", One(&COMMON_TLS)),
        (2, "sni", Value),
        (6, "auto_host_sni", Value),
        (7, "auto_sni_san_validation", Value),
    ],
    // rustls neither renegotiates nor accepts keys for the wrong usage.
    unread: &[
        (3, "allow_renegotiation"),
        (4, "max_session_keys"),
        (5, "enforce_rsa_key_usage"),
    ],
    ..Kind::EMPTY
};

pub(super) static COMMON_TLS: Kind = Kind {
    read: &[
        (2, "tls_certificates", Many(&TLS_CERTIFICATE)),
        (3, "validation_context", One(&VALIDATION)),
        (4, "alpn_protocols", Value),
    ],
    refused: &[
        (1, "tls_params", Request),
        (6, "tls_certificate_sds_secret_configs", Request),
        (7, "validation_context_sds_secret_config", Request),
        (8, "combined_validation_context", Request),
        (9, "tls_certificate_certificate_provider", Request),
        (10, "validation_context_certificate_provider", Request),
        (11, "tls_certificate_certificate_provider_instance", Request),
        (
            12,
            "validation_context_certificate_provider_instance",
            Request,
        ),
        (13, "custom_handshaker", Request),
        (14, "tls_certificate_provider_instance", Request),
        (16, "custom_tls_certificate_selector", Request),
    ],
    unread: &[(15, "key_log")],
};

pub(super) static TLS_CERTIFICATE: Kind = Kind {
    read: &[(1, "certificate_chain", Value), (2, "private_key", Value)],
    // Staples and timestamps are sent by servers; files are read when the cluster arrives.
    unread: &[
        (4, "ocsp_staple"),
        (5, "signed_certificate_timestamp"),
        (7, "watched_directory"),
    ],
    refused: &[
        (3, "password", Request),
        (6, "private_key_provider", Request),
        (8, "pkcs12", Request),
        (9, "tls_params", Request),
    ],
};

pub(super) static VALIDATION: Kind = Kind {
    read: &[
        (1, "trusted_ca", Value),
        (9, "match_subject_alt_names", Value),
        (
            15,
            "match_typed_subject_alt_names",
            Many(&SUBJECT_ALT_NAME_MATCHER),
        ),
        (17, "system_root_certs", Value),
        (
            6,
            "require_signed_certificate_timestamp",
            DefaultOr(Request),
        ),
    ],
    // The first is about revocation lists, which are refused; the last about servers.
    unread: &[
        (14, "only_verify_leaf_cert_crl"),
        (11, "watched_directory"),
        (18, "suppress_client_ca_list"),
    ],
    refused: &[
        (2, "verify_certificate_hash", Request),
        (3, "verify_certificate_spki", Request),
        (7, "crl", Request),
        (8, "allow_expired_certificate", Request),
        (10, "trust_chain_verification", Request),
        (12, "custom_validator_config", Request),
        (13, "ca_certificate_provider_instance", Request),
        (16, "max_verify_depth", Request),
    ],
};

pub(super) static SUBJECT_ALT_NAME_MATCHER: Kind = Kind {
    read: &[(1, "san_type", Value), (2, "matcher", Value)],
    refused: &[(3, "oid", Request)],
    ..Kind::EMPTY
};
