//! `plimsoll proxy` with curl and h2load as clients: HTTP/1.0, HTTP/1.1 and HTTP/2, plaintext and
//! TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::echo::Echo;
use crate::support::proxy::{Proxy, cluster, file, listener, route_all_to};
use crate::support::{certificate, scratch, wait_to_see};

/// Output of curl per transfer: version (`1` is 1.0), status, new connections, bytes.
const FIGURES: &str = "%{http_version} %{http_code} %{num_connects} %{size_download}\n";

/// Proxy with a plaintext and a TLS listener.
struct Testbed {
    proxy: Proxy,
    directory: PathBuf,
    authority: PathBuf,
}

impl Testbed {
    fn start(name: &str) -> Self {
        let directory = scratch(name);
        let echo = Echo::start();
        let (authority, tls) = certificate::issue(&directory);
        let mut secured = listener("secured", &route_all_to("echo"));
        secured["filter_chains"][0]["transport_socket"] = tls;
        let listeners = [listener("plain", &route_all_to("echo")), secured];
        let clusters = [cluster("echo", &[("zone-a", &[echo.address])])];
        let proxy = Proxy::start(&directory, "proxy", &file("zone-a", &listeners, &clusters));
        Self {
            proxy,
            directory,
            authority,
        }
    }

    fn plain(&self, path: &str) -> String {
        format!("http://{}{path}", self.proxy.listener("plain"))
    }

    fn secured(&self, path: &str) -> String {
        let port = self.proxy.listener("secured").port();
        format!("https://localhost:{port}{path}")
    }

    /// Runs curl and returns its output.
    fn curl(&self, args: &[&str]) -> String {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "30", "--ipv4"]);
        command.arg("--cacert").arg(&self.authority);
        output(command.args(args))
    }

    /// Runs curl and parses the response of [`Echo`].
    fn echo(&self, args: &[&str]) -> Value {
        let text = self.curl(args);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// Writes a file of `length` bytes and returns its argument for curl.
    fn upload(&self, length: usize) -> String {
        let path = self.directory.join("upload");
        std::fs::write(&path, vec![1; length]).unwrap();
        format!("@{}", path.display())
    }
}

#[test]
fn curl_uses_every_http_version() {
    let testbed = Testbed::start("curl-versions");
    let figures = |args: &[&str]| {
        let more = ["--output", "/dev/null", "--write-out", FIGURES];
        testbed.curl(&[&more, args].concat())
    };
    let (plain, secured) = (testbed.plain("/bytes/5000"), testbed.secured("/bytes/5000"));
    assert_eq!(figures(&["--http1.1", &plain]), "1.1 200 1 5000\n");
    assert_eq!(figures(&["--http1.0", &plain]), "1 200 1 5000\n");
    let prior = "--http2-prior-knowledge";
    assert_eq!(figures(&[prior, &plain]), "2 200 1 5000\n");
    // ALPN decides; curl offers both versions by default.
    assert_eq!(figures(&[&secured]), "2 200 1 5000\n");
    assert_eq!(figures(&["--http1.1", &secured]), "1.1 200 1 5000\n");
    // curl offers an upgrade to HTTP/2 (h2c) and stays with HTTP/1.1 if it is declined.
    assert_eq!(figures(&["--http2", &plain]), "1.1 200 1 5000\n");

    // A large chunked body without content-length.
    let (plain, secured) = (
        testbed.plain("/chunked/3000000"),
        testbed.secured("/chunked/3000000"),
    );
    assert_eq!(figures(&["--http1.1", &plain]), "1.1 200 1 3000000\n");
    assert_eq!(figures(&["--http1.0", &plain]), "1 200 1 3000000\n");
    assert_eq!(figures(&[&secured]), "2 200 1 3000000\n");
}

#[test]
fn connections_are_kept_alive() {
    let testbed = Testbed::start("curl-keep-alive");
    for (url, version) in [
        (testbed.plain("/bytes/10"), "1.1"),
        (testbed.secured("/bytes/10"), "2"),
    ] {
        let mut args = Vec::new();
        for _ in 0..3 {
            args.extend(["--output", "/dev/null"]);
            args.extend([url.as_str()]);
        }
        args.extend(["--write-out", FIGURES]);
        let kept = format!("{version} 200 1 10\n{version} 200 0 10\n{version} 200 0 10\n");
        assert_eq!(testbed.curl(&args), kept);
    }
    // The response to HEAD has a length and no body, and the next response is not mistaken for one.
    let plain = testbed.plain("/");
    let next = testbed.plain("/bytes/3");
    let figures = ["--write-out", FIGURES];
    let head = ["--silent", "--head", &plain, "--next", "--silent", &next];
    let text = testbed.curl(&[&head[..], &figures].concat());
    assert!(text.contains("content-length: 4711\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\nxxx1.1 200 0 3\n"), "{text}");
}

#[test]
fn uploads_arrive_complete() {
    let testbed = Testbed::start("curl-uploads");
    let data = testbed.upload(3_000_000);
    let data = ["--data-binary", &data];
    let (plain, secured) = (testbed.plain("/up?x=1"), testbed.secured("/up?x=1"));
    for (version, url) in [
        ("--http1.1", &plain),
        ("--http2-prior-knowledge", &plain),
        ("--http2", &secured),
        ("--http1.1", &secured),
    ] {
        let echo = testbed.echo(&[&data[..], &[version, "--header", "x-test: y", url]].concat());
        let case = format!("{version} {url}: {echo}");
        assert_eq!(echo["method"], "POST", "{case}");
        assert_eq!(echo["path"], "/up?x=1", "{case}");
        assert_eq!(
            (&echo["length"], &echo["sum"]),
            (&3_000_000.into(), &3_000_000.into()),
            "{case}"
        );
        assert_eq!(echo["content_length"], "3000000", "{case}");
        assert_eq!(echo["x_test"], "y", "{case}");
        let scheme = url.split(':').next().unwrap();
        assert_eq!(echo["forwarded_proto"], scheme, "{case}");
        let authority = url.split('/').nth(2).unwrap();
        assert_eq!(echo["host"], authority, "{case}");
    }
    // Chunked upload.
    let chunked = [
        "--header",
        "transfer-encoding: chunked",
        "--http1.1",
        &plain,
    ];
    let echo = testbed.echo(&[&data[..], &chunked].concat());
    assert_eq!(echo["length"], 3_000_000, "{echo}");
    assert_eq!(echo["content_length"], Value::Null, "{echo}");
    assert_eq!(echo["transfer_encoding"], "chunked", "{echo}");
    // With expect: 100-continue.
    let expect = [
        "--header",
        "expect: 100-continue",
        "--http1.1",
        "--include",
        &plain,
    ];
    let text = testbed.curl(&[&data[..], &expect].concat());
    assert!(
        text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
        "{text}"
    );
    assert!(text.contains("\"expect\":null,"), "{text}");
    assert!(text.contains("\"length\":3000000,"), "{text}");
}

#[test]
fn no_request_of_h2load_fails() {
    let testbed = Testbed::start("h2load");
    let upload = testbed.upload(10_000);
    let upload = format!("--data={}", upload.trim_start_matches('@'));
    let (plain, secured) = (testbed.plain("/bytes/1024"), testbed.secured("/bytes/1024"));
    for args in [
        &["--h1", &plain][..],
        &["-m10", &plain],
        &["-m10", &secured],
        &["--h1", &upload, &plain],
        &["-m10", &upload, &secured],
    ] {
        let mut command = Command::new("h2load");
        let text = output(command.args(["-n2000", "-c20", "-T20s"]).args(args));
        let all = "requests: 2000 total, 2000 started, 2000 done, 2000 succeeded, 0 failed, \
                   0 errored, 0 timeout\n";
        assert!(text.contains(all), "{args:?}: {text}");
        let statuses = "status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx\n";
        assert!(text.contains(statuses), "{args:?}: {text}");
    }
    // A request may be counted after its client has the last byte.
    let answered = || testbed.proxy.stat("http.plain.downstream_rq_2xx");
    wait_to_see("all requests are counted", answered, |count| *count == 6000);
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        let program = Path::new(command.get_program()).display();
        panic!("{program}: {error}; is it installed? Run `make test` once")
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}{text}");
    text
}
