//! Replaces the ports in documents and examples by free ones.
//!
//! Pages can then run in parallel, and next to a control plane that runs on the same machine.

use std::net::TcpListener;

/// Ports in documents, in their examples and in defaults. Consecutive ports stay consecutive,
/// because pages count up.
const KNOWN: [u16; 24] = [
    8080, 9901, 10001, 10002, 10003, 18000, 18001, 18080, 18100, 18101, 19000, 19001, 19002, 19003,
    19004, 19005, 19006, 19007, 19008, 19009, 19100, 19101, 19102, 19103,
];
/// Range of the replacement ports, below the ephemeral ports of the system.
const FIRST: u16 = 20_480;
const WINDOWS: u16 = 350;
const WIDTH: u16 = 32;

/// Window of unused ports. Its first port is kept bound to reserve the window.
pub(crate) struct Ports {
    held: TcpListener,
}

impl Ports {
    pub(crate) fn find() -> Self {
        let start = u16::try_from(std::process::id() % u32::from(WINDOWS)).unwrap_or_default();
        let windows = (0..WINDOWS).map(|n| FIRST + (start + n) % WINDOWS * WIDTH);
        let mut free = windows.filter_map(|first| {
            let held = bind(first)?;
            let count = u16::try_from(KNOWN.len()).unwrap();
            (1..=count)
                .all(|n| bind(first + n).is_some())
                .then_some(held)
        });
        let held = free.next().expect("some ports are free");
        Self { held }
    }

    fn first(&self) -> u16 {
        self.held.local_addr().unwrap().port()
    }

    /// Returns all ports of the window.
    pub(crate) fn all(&self) -> impl Iterator<Item = u16> {
        let first = self.first();
        first..first + WIDTH
    }

    /// Returns the replacement of a port.
    pub(crate) fn of(&self, port: u16) -> u16 {
        let at = KNOWN
            .iter()
            .position(|known| *known == port)
            .expect("the port is among the known ones");
        self.first() + 1 + u16::try_from(at).unwrap()
    }

    /// Replaces the ports in a text, and Envoy's `--base-id`, which must be unique too.
    pub(crate) fn rewrite(&self, text: &str) -> String {
        let mut rewritten = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, from) = rest.split_at(at);
            let end = from.find(|c: char| !c.is_ascii_digit());
            let (number, after) = from.split_at(end.unwrap_or(from.len()));
            rewritten.push_str(before);
            let known = number.parse().ok().filter(|port| KNOWN.contains(port));
            match known {
                Some(port) => rewritten.push_str(&self.of(port).to_string()),
                None if before.ends_with("--base-id ") => {
                    rewritten.push_str(&self.first().to_string());
                }
                None => rewritten.push_str(number),
            }
            rest = after;
        }
        rewritten + rest
    }
}

/// Returns a local port in the text that is not in `KNOWN` and would not be replaced.
pub(crate) fn unknown_port(text: &str) -> Option<&str> {
    let hosts = ["localhost:", "127.0.0.1:"];
    let named = hosts.iter().flat_map(|host| text.split(host).skip(1));
    let mut ports = named.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        &rest[..end.unwrap_or(rest.len())]
    });
    let known = |port: &str| port.parse().is_ok_and(|port| KNOWN.contains(&port));
    ports.find(|port| !port.is_empty() && !known(port))
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ports_are_replaced_and_other_numbers_stay() {
        let ports = Ports::find();
        let [a, b] = [10001, 10002].map(|port| ports.of(port));
        assert_eq!(b, a + 1);
        let text = "curl 127.0.0.1:10001/?[1-6000] :10002 110001 x";
        let expected = format!("curl 127.0.0.1:{a}/?[1-6000] :{b} 110001 x");
        assert_eq!(ports.rewrite(text), expected);
        let base = ports.rewrite("envoy --base-id 10 -l error");
        assert!(!base.contains(" 10 "), "{base}");
    }

    #[test]
    fn two_windows_have_no_port_in_common() {
        let (one, other) = (Ports::find(), Ports::find());
        assert!(one.of(8080).abs_diff(other.of(8080)) >= WIDTH);
    }

    #[test]
    fn an_unknown_port_is_found() {
        assert_eq!(unknown_port("curl localhost:18001/x 127.0.0.1:8080"), None);
        assert_eq!(unknown_port("curl -s localhost:4711/x"), Some("4711"));
        assert_eq!(unknown_port("--listen 127.0.0.1:$port"), None);
    }
}
