//! Text of an error with its causes, for log lines and gRPC statuses, which have room for one line.

use std::error::Error;

/// Joins the messages of `error` and of its sources with `: `.
///
/// A message that the text already ends with is left out: some libraries repeat the source in
/// their own message, others wrap an error in one with the same text.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    fn chain(messages: &[&'static str]) -> String {
        let layers = messages.iter().rev();
        let error = layers.fold(None, |source, message| {
            Some(Box::new(Layer(message, source)))
        });
        describe(&*error.unwrap())
    }

    #[test]
    fn every_message_is_part_of_the_text_once() {
        assert_eq!(chain(&["no route"]), "no route");
        assert_eq!(
            chain(&["cannot connect", "refused"]),
            "cannot connect: refused"
        );
        let wrapped = ["tcp connect error", "tcp connect error", "refused"];
        assert_eq!(chain(&wrapped), "tcp connect error: refused");
        let repeated = ["io: refused", "refused"];
        assert_eq!(chain(&repeated), "io: refused");
    }
}
