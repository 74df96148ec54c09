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

/// The key that names the token file of a tracker.
pub const TOKEN_KEY: &str = "admin.token_file";

/// Why a token cannot be read from its file.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{setting}: {path} cannot be read: {cause}\n  {}", remedy(.setting, .cause))]
    Read {
        /// The key or flag that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The file does not contain a valid token. It may be another file, named by mistake, so no
    /// command that writes to it is suggested.
    #[error(
        "{setting}: {path} holds no token: {defect}\n  name a file with one line of {MIN_LENGTH} \
         to {MAX_LENGTH} printable characters without spaces; `head -c24 /dev/urandom | base64` \
         prints such a line"
    )]
    Form {
        /// The key or flag that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The problem with its content.
        defect: String,
    },
}

/// The remedy for a file that cannot be read.
fn remedy(setting: &str, cause: &io::Error) -> &'static str {
    match (setting, cause.kind()) {
        (TOKEN_KEY, _) => "the user that the tracker runs as must be able to read it",
        (_, io::ErrorKind::PermissionDenied) => "run this command as a user who may read it",
        _ => "name the file with the tracker's token",
    }
}

impl Token {
    /// Reads the token from its file, which this key or flag names; `None` without a file.
    ///
    /// # Errors
    /// [`TokenError`], with the remedy and without the contents of the file.
    pub fn load(setting: &'static str, path: Option<&Path>) -> Result<Option<Self>, TokenError> {
        let Some(path) = path else { return Ok(None) };
        let mut text = String::new();
        regular_file::open(path)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map_err(|cause| TokenError::Read { setting, path: path.to_owned(), cause })?;
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
            Some(defect) => Err(TokenError::Form { setting, path: path.to_owned(), defect }),
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
        Token::load(TOKEN_KEY, Some(file.path()))
    }

    #[test]
    fn only_the_token_itself_matches() {
        let token = load("  0123456789abcdef\n").unwrap().unwrap();
        assert!(token.is("0123456789abcdef"));
        for other in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(Token::load(TOKEN_KEY, None).unwrap(), None);
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
            assert!(!error.contains('>'), "it would overwrite the file: {error}");
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported_under_the_name_that_names_it() {
        let missing = Path::new("/nonexistent/token");
        let error = |setting| Token::load(setting, Some(missing)).unwrap_err().to_string();
        let of_tracker = error(TOKEN_KEY);
        assert!(of_tracker.starts_with("admin.token_file: /nonexistent/token"), "{of_tracker}");
        assert!(of_tracker.contains("must be able to read it"), "{of_tracker}");
        let of_flag = error("--token-file");
        assert!(of_flag.starts_with("--token-file: /nonexistent/token"), "{of_flag}");
        assert!(!of_flag.contains("admin.token_file"), "{of_flag}");
        let (setting, path) = ("--token-file", missing.to_owned());
        let denied = io::ErrorKind::PermissionDenied.into();
        let denied = TokenError::Read { setting, path, cause: denied }.to_string();
        assert!(denied.contains("run this command as"), "{denied}");
    }
}
