//! curl and h2load before `plimsoll proxy`: HTTP/1.0, HTTP/1.1 and HTTP/2, in the clear and over
//! TLS.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::echo::Echo;
use crate::support::proxy::{Proxy, cluster, everything, file, listener};
use crate::support::{certificate, scratch};

/// What curl says of each transfer: version (`1` is 1.0), status, new connections, bytes.
const FIGURES: &str = "%{http_version} %{http_code} %{num_connects} %{size_download}\n";

/// A proxy with a listener in the clear and one with TLS, and what is behind it.
struct World {
    proxy: Proxy,
    folder: PathBuf,
    authority: PathBuf,
}

impl World {
    fn start(name: &str) -> Self {
        let folder = scratch(name);
        let echo = Echo::start();
        let (authority, tls) = certificate::issue(&folder);
        let mut secured = listener("secured", &everything("echo"));
        secured["filter_chains"][0]["transport_socket"] = tls;
        let listeners = [listener("plain", &everything("echo")), secured];
        let clusters = [cluster("echo", &[("zone-a", &[echo.address])])];
        let proxy = Proxy::start(&folder, "proxy", &file("zone-a", &listeners, &clusters));
        Self {
            proxy,
            folder,
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

    /// What curl prints.
    fn curl(&self, args: &[&str]) -> String {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "30", "--ipv4"]);
        command.arg("--cacert").arg(&self.authority);
        output(command.args(args))
    }

    /// The same, which is what [`Echo`] says.
    fn asked(&self, args: &[&str]) -> Value {
        let text = self.curl(args);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// A file of so many bytes, as curl takes it.
    fn upload(&self, length: usize) -> String {
        let path = self.folder.join("upload");
        std::fs::write(&path, vec![1; length]).unwrap();
        format!("@{}", path.display())
    }
}

#[test]
fn curl_speaks_every_version() {
    let world = World::start("curl-versions");
    let figures = |args: &[&str]| {
        let more = ["--output", "/dev/null", "--write-out", FIGURES];
        world.curl(&[&more, args].concat())
    };
    let (plain, secured) = (world.plain("/bytes/5000"), world.secured("/bytes/5000"));
    assert_eq!(figures(&["--http1.1", &plain]), "1.1 200 1 5000\n");
    assert_eq!(figures(&["--http1.0", &plain]), "1 200 1 5000\n");
    let prior = "--http2-prior-knowledge";
    assert_eq!(figures(&[prior, &plain]), "2 200 1 5000\n");
    // ALPN decides; curl offers both unless it is told otherwise.
    assert_eq!(figures(&[&secured]), "2 200 1 5000\n");
    assert_eq!(figures(&["--http1.1", &secured]), "1.1 200 1 5000\n");
    // curl offers to go on with HTTP/2 and goes on with HTTP/1.1 when the offer is not taken.
    assert_eq!(figures(&["--http2", &plain]), "1.1 200 1 5000\n");

    // Large and in chunks, without a length.
    let (plain, secured) = (
        world.plain("/chunked/3000000"),
        world.secured("/chunked/3000000"),
    );
    assert_eq!(figures(&["--http1.1", &plain]), "1.1 200 1 3000000\n");
    assert_eq!(figures(&["--http1.0", &plain]), "1 200 1 3000000\n");
    assert_eq!(figures(&[&secured]), "2 200 1 3000000\n");
}

#[test]
fn curl_keeps_its_connection() {
    let world = World::start("curl-keep-alive");
    for (url, version) in [
        (world.plain("/bytes/10"), "1.1"),
        (world.secured("/bytes/10"), "2"),
    ] {
        let mut args = Vec::new();
        for _ in 0..3 {
            args.extend(["--output", "/dev/null"]);
            args.extend([url.as_str()]);
        }
        args.extend(["--write-out", FIGURES]);
        let kept = format!("{version} 200 1 10\n{version} 200 0 10\n{version} 200 0 10\n");
        assert_eq!(world.curl(&args), kept);
    }
    // The answer to a HEAD has a length and no body; the next answer is not taken for one.
    let plain = world.plain("/");
    let next = world.plain("/bytes/3");
    let figures = ["--write-out", FIGURES];
    let head = ["--silent", "--head", &plain, "--next", "--silent", &next];
    let text = world.curl(&[&head[..], &figures].concat());
    assert!(text.contains("content-length: 4711\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\nxxx1.1 200 0 3\n"), "{text}");
}

#[test]
fn curl_uploads() {
    let world = World::start("curl-uploads");
    let data = world.upload(3_000_000);
    let data = ["--data-binary", &data];
    let (plain, secured) = (world.plain("/up?x=1"), world.secured("/up?x=1"));
    for (version, url) in [
        ("--http1.1", &plain),
        ("--http2-prior-knowledge", &plain),
        ("--http2", &secured),
        ("--http1.1", &secured),
    ] {
        let said = world.asked(&[&data[..], &[version, "--header", "x-test: y", url]].concat());
        let case = format!("{version} {url}: {said}");
        assert_eq!(said["method"], "POST", "{case}");
        assert_eq!(said["path"], "/up?x=1", "{case}");
        assert_eq!(
            (&said["length"], &said["sum"]),
            (&3_000_000.into(), &3_000_000.into()),
            "{case}"
        );
        assert_eq!(said["content_length"], "3000000", "{case}");
        assert_eq!(said["x_test"], "y", "{case}");
        let scheme = url.split(':').next().unwrap();
        assert_eq!(said["forwarded_proto"], scheme, "{case}");
        let authority = url.split('/').nth(2).unwrap();
        assert_eq!(said["host"], authority, "{case}");
    }
    // In chunks.
    let chunked = [
        "--header",
        "transfer-encoding: chunked",
        "--http1.1",
        &plain,
    ];
    let said = world.asked(&[&data[..], &chunked].concat());
    assert_eq!(said["length"], 3_000_000, "{said}");
    assert_eq!(said["content_length"], Value::Null, "{said}");
    assert_eq!(said["transfer_encoding"], "chunked", "{said}");
    // Asked first: told to go on.
    let expect = [
        "--header",
        "expect: 100-continue",
        "--http1.1",
        "--include",
        &plain,
    ];
    let text = world.curl(&[&data[..], &expect].concat());
    assert!(
        text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
        "{text}"
    );
    assert!(text.contains("\"expect\":null,"), "{text}");
    assert!(text.contains("\"length\":3000000,"), "{text}");
}

#[test]
fn h2load_loses_nothing() {
    let world = World::start("h2load");
    let upload = world.upload(10_000);
    let upload = format!("--data={}", upload.trim_start_matches('@'));
    let (plain, secured) = (world.plain("/bytes/1024"), world.secured("/bytes/1024"));
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
    let answered = world.proxy.stat("http.plain.downstream_rq_2xx");
    assert_eq!(answered, 6000);
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
