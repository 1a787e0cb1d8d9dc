//! [`ConsulAccess`]: where the agent is, and the token for it.

use std::path::PathBuf;

use plimsoll_serve::http_client::HttpServer;

/// How an agent is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulAccess {
    pub server: HttpServer,
    /// Read for every request, so that a token can be rotated.
    pub token_file: Option<PathBuf>,
}

impl ConsulAccess {
    /// Reads the token as it is now.
    pub(crate) fn token(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let place = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
        match text.trim() {
            "" => Err(format!("{place}: is empty")),
            token => Ok(Some(token.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let access = |token_file| ConsulAccess {
            server: HttpServer::parse("http://a:1", None, None).unwrap(),
            token_file,
        };
        assert_eq!(access(None).token(), Ok(None));
        let access = access(Some(path.clone()));
        assert!(access.token().is_err());
        for text in ["one\n", "two"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(access.token().unwrap().as_deref(), Some(text.trim()));
        }
        std::fs::write(&path, " \n").unwrap();
        assert!(access.token().unwrap_err().ends_with("is empty"));
    }
}
