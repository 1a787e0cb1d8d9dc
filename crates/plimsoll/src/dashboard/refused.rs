//! Notices about clients that are refused, and about certificates that end.

use plimsoll_admin::state::{Notice, Severity};
use plimsoll_control::certificates::Stage;
use plimsoll_control::verdict::Signs;

pub(super) fn notices(signs: &Signs) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (stage, text) in &signs.ending {
        let severity = if *stage == Stage::Soon {
            Severity::Warning
        } else {
            Severity::Error
        };
        let text = format!("{text}; new connections fail without it");
        notices.push(Notice { severity, text });
    }
    let mut warn = |text| {
        let severity = Severity::Warning;
        notices.push(Notice { severity, text });
    };
    if let Some(refused) = &signs.refused_client {
        warn(format!("a node is refused: {refused}"));
    }
    if let Some((failed, remedy)) = &signs.failed_handshake {
        warn(format!("{failed}; {remedy}"));
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_refused_is_a_notice() {
        assert_eq!(notices(&Signs::default()), []);
        let signs = Signs {
            ending: vec![
                (Stage::Expired, "the certificate expired".to_owned()),
                (Stage::Soon, "the authority expires".to_owned()),
            ],
            refused_client: Some("1 of edge: no rule".to_owned()),
            failed_handshake: Some(("TLS failed".to_owned(), "renew it")),
            ..Signs::default()
        };
        let texts = notices(&signs).into_iter();
        let texts: Vec<_> = texts.map(|notice| (notice.severity, notice.text)).collect();
        let expected = [
            (
                Severity::Error,
                "the certificate expired; new connections fail without it",
            ),
            (
                Severity::Warning,
                "the authority expires; new connections fail without it",
            ),
            (Severity::Warning, "a node is refused: 1 of edge: no rule"),
            (Severity::Warning, "TLS failed; renew it"),
        ];
        assert_eq!(
            texts,
            expected.map(|(severity, text)| (severity, text.to_owned()))
        );
    }
}
