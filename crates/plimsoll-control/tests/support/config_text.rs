//! Interpreter of byte strings as the text of the control plane's configuration file: any text is
//! accepted, or refused with a short reason. Used by the tests of this crate and by the fuzz target
//! `config_text`.

use plimsoll_control::config::ControlConfig;
use plimsoll_serve::ConfigFile;

/// Length of an error besides what it quotes from the text.
const REASON: usize = 1000;

pub(crate) fn run(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let file = ConfigFile {
        name: "control.yaml".into(),
        text: text.to_owned(),
    };
    match ControlConfig::parse(&file, &[]) {
        Ok(_) => true,
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty());
            assert!(error.len() <= REASON + 4 * text.len(), "{}", error.len());
            false
        }
    }
}
