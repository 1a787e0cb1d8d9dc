//! Text of a proxy's configuration file: any text is accepted, or refused with a short reason.

use super::MemoryLimit;
use crate::config::ProxyConfig;

/// Large constant: a parsed configuration holds defaults of every message.
pub const MEMORY: MemoryLimit = MemoryLimit {
    base: 8 << 20,
    per_byte: 16 << 10,
};

/// Length of an error besides what it quotes from the text.
const REASON: usize = 1000;

/// Parses the input as a bootstrap file; an error must be short.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(error) = ProxyConfig::parse(text) {
        assert!(!error.reason().is_empty());
        let length = error.to_string().len();
        assert!(
            length <= REASON + 4 * text.len(),
            "{length} for {}",
            text.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_seeded;
    use super::*;

    #[test]
    fn damaged_files_are_refused_with_a_reason() {
        let example = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/proxy/gateway/proxy.yaml"
        );
        let file = std::fs::read_to_string(example).unwrap();
        assert!(ProxyConfig::parse(&file).is_ok());
        let lines: Vec<&str> = file.split_inclusive('\n').collect();
        for skipped in 0..lines.len() {
            let mut rest = lines.clone();
            rest.remove(skipped);
            run(rest.concat().as_bytes());
            let mut doubled = lines.clone();
            doubled.insert(skipped, lines[skipped]);
            run(doubled.concat().as_bytes());
        }
        let tokens = [
            "static_resources:\n",
            "  listeners:\n",
            "  - name: a\n",
            "- ",
            "    address: {socket_address: {address: 127.0.0.1, port_value: 1}}\n",
            "admin: ",
            "{",
            "}",
            "[",
            "]",
            "&a ",
            "*a ",
            "\"",
            "\n",
            ": ",
            "!!binary ",
            "|\n  x\n",
            "node: {id: x}\n",
        ];
        run_seeded(&tokens, 2000, MEMORY, run);
    }

    #[test]
    fn aliases_do_not_multiply() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = level - 1;
            let alias = format!("*a{before}");
            let list = vec![alias; 9].join(", ");
            text += &format!("a{level}: &a{level} [{list}]\n");
        }
        let used = allocation_counter::measure(|| run(text.as_bytes())).bytes_max;
        assert!(used < 32 << 20, "{used}");
    }
}
