//! Detection of gRPC by `content-type`, shared by routes, deadlines, local replies, request
//! accounting and load reports.

/// Returns whether a `content-type` is gRPC by Envoy's definition: `application/grpc`, alone or
/// followed by a codec (`+proto`) or a parameter (`;`).
///
/// `application/grpc-web` is not: its body carries the trailers, so neither `grpc-status` nor a
/// load report is expected in HTTP trailers.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    matches!(rest, Some([] | [b'+' | b';', ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_web_is_not_grpc() {
        for (content_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpc-web-text", false),
            ("application/grpcx", false),
            ("application/json", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(content_type.as_bytes()), expected, "{content_type}");
        }
    }
}
