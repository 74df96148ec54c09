//! The token of the admin API: read from a file, compared in constant time.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;
use thiserror::Error;

use onrush_config::regular_file;
use onrush_config::secret_file::readable_by_others;

/// Minimum length: an attacker can try about ten thousand tokens per second.
const MIN_LENGTH: usize = 16;
/// Maximum length.
const MAX_LENGTH: usize = 256;

/// A token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a token cannot be read from its file.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error(
        "admin.token_file: {path} cannot be read: {cause}\n  the user that the tracker runs as \
         must be able to read it"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The file does not contain a valid token.
    #[error(
        "admin.token_file: {path} holds no token: {defect}\n  write one line of {MIN_LENGTH} to \
         {MAX_LENGTH} printable characters without spaces into it: `head -c24 /dev/urandom | \
         base64 >{path}`"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        defect: String,
    },
}

impl Token {
    /// Reads the token from its file; `None` without a file.
    ///
    /// # Errors
    /// [`TokenError`], with the remedy and without the contents of the file.
    pub fn load(path: Option<&Path>) -> Result<Option<Self>, TokenError> {
        let Some(path) = path else { return Ok(None) };
        let mut text = String::new();
        regular_file::open(path)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map_err(|cause| TokenError::Read { path: path.to_owned(), cause })?;
        let token = text.trim();
        let defect = if token.is_empty() {
            Some("it is empty".to_owned())
        } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            Some("it has more than one line, a space, or a character that is not ASCII".to_owned())
        } else if !(MIN_LENGTH..=MAX_LENGTH).contains(&token.len()) {
            Some(format!("it has {} characters", token.len()))
        } else {
            None
        };
        match defect {
            Some(defect) => Err(TokenError::Form { path: path.to_owned(), defect }),
            None => Ok(Some(Self(token.to_owned()))),
        }
    }

    /// A warning if other users can read the file.
    pub fn warning(path: Option<&Path>) -> Option<String> {
        let path = path.filter(|path| readable_by_others(path, true))?;
        Some(format!(
            "other users can read the admin token in {0}: run chmod o-rwx {0}",
            path.display()
        ))
    }

    /// The value of the `Authorization` header (RFC 6750).
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether `given` is the token; takes the same time wherever the two differ.
    pub fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Option<Token>, TokenError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Token::load(Some(file.path()))
    }

    #[test]
    fn only_the_token_itself_matches() {
        let token = load("  0123456789abcdef\n").unwrap().unwrap();
        assert!(token.is("0123456789abcdef"));
        for other in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(Token::load(None).unwrap(), None);
    }

    #[test]
    fn an_invalid_token_is_reported_without_its_text() {
        for (text, what) in [
            ("", "it is empty"),
            ("0123456789\nabcdef", "more than one line"),
            ("secret", "it has 6 characters"),
            ("pass word pass word", "a space"),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("head -c24"), "{error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        let error = Token::load(Some(Path::new("/nonexistent/token"))).unwrap_err().to_string();
        assert!(error.contains("must be able to read it"), "{error}");
    }
}
