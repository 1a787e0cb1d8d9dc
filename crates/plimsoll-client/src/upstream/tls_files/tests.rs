//! Files of TLS settings that appear, change and become unusable.

use super::*;

/// A new certificate, in PEM format.
fn certificate() -> String {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]);
    made.unwrap().cert.pem()
}

/// Stamps have the resolution of the file system, so that versions differ in length too.
fn write(path: &str, text: &str, version: usize) {
    std::fs::write(path, format!("{text}{}", "\n".repeat(version))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem").display().to_string();
    let settings = UpstreamTls {
        ca: TrustedCa::Pem(DataSource::Filename(ca.clone())),
        ..UpstreamTls::default()
    };
    let tls = ReloadingTls::new(&settings, &UpstreamOptions::default());
    let error = tls.current().await.unwrap_err();
    assert!(error.to_string().contains("ca.pem"), "{error}");
    // A file that appears later is found.
    write(&ca, &certificate(), 0);
    tokio::time::advance(CHECK_INTERVAL).await;
    let first = tls.current().await.unwrap();
    tokio::time::advance(CHECK_INTERVAL).await;
    assert!(
        Arc::ptr_eq(&first, &tls.current().await.unwrap()),
        "unchanged"
    );
    write(&ca, &certificate(), 1);
    assert!(
        Arc::ptr_eq(&first, &tls.current().await.unwrap()),
        "checked once a second"
    );
    tokio::time::advance(CHECK_INTERVAL).await;
    let second = tls.current().await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    // The last usable certificates stay in force.
    write(&ca, "nonsense", 2);
    tokio::time::advance(CHECK_INTERVAL).await;
    assert!(Arc::ptr_eq(&second, &tls.current().await.unwrap()));
    write(&ca, &certificate(), 3);
    tokio::time::advance(CHECK_INTERVAL).await;
    assert!(!Arc::ptr_eq(&second, &tls.current().await.unwrap()));
}

#[tokio::test]
async fn devices_and_huge_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let huge = folder.path().join("huge.pem");
    let file = std::fs::File::create(&huge).unwrap();
    file.set_len(1 << 40).unwrap();
    let huge = huge.display().to_string();
    for (path, expected) in [
        ("/dev/zero", "not a regular file"),
        (huge.as_str(), "more than"),
    ] {
        let settings = UpstreamTls {
            ca: TrustedCa::Pem(DataSource::Filename(path.to_owned())),
            ..UpstreamTls::default()
        };
        let tls = ReloadingTls::new(&settings, &UpstreamOptions::default());
        let error = tls.current().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
