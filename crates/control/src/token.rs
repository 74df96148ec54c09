//! The token of the admin API: from its file, compared so that the time it takes tells nothing of it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq;
use thiserror::Error;

use onrush_config::secret_file::readable_by_others;

/// Characters of a token at least: who has to be kept out can ask some ten thousand times a second.
const LEAST: usize = 16;
/// At most.
const MOST: usize = 256;

/// A token. Not shown by anything.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a file is not good for a token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error(
        "admin.token_file: {path} cannot be read: {cause}\n  it has to be readable for the user that the tracker runs as"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// What is in it is none.
    #[error(
        "admin.token_file: {path} holds no token: {what}\n  write one line of {LEAST} to {MOST} printable \
         characters without spaces into it: `head -c24 /dev/urandom | base64 >{path}`"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Token {
    /// Reads a token from its file, if there is to be one.
    ///
    /// # Errors
    /// [`TokenError`], which says what to do and nothing of what the file holds.
    pub fn load(path: Option<&Path>) -> Result<Option<Self>, TokenError> {
        let Some(path) = path else { return Ok(None) };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map_err(|cause| TokenError::Read { path: path.to_owned(), cause })?;
        let token = text.trim();
        let wrong = if token.is_empty() {
            Some("it is empty".to_owned())
        } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            Some("it has more than one line, a space, or a character that is not ASCII".to_owned())
        } else if !(LEAST..=MOST).contains(&token.len()) {
            Some(format!("it has {} characters", token.len()))
        } else {
            None
        };
        match wrong {
            Some(what) => Err(TokenError::Form { path: path.to_owned(), what }),
            None => Ok(Some(Self(token.to_owned()))),
        }
    }

    /// What the operator should know of the file.
    pub fn warning(path: Option<&Path>) -> Option<String> {
        let path = path.filter(|path| readable_by_others(path, true))?;
        Some(format!(
            "the admin token in {0} can be read by others; mend it with: chmod o-rwx {0}",
            path.display()
        ))
    }

    /// What is sent to prove it.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether this is it, found out in the same time wherever it differs.
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
    fn a_token_is_itself_and_nothing_else() {
        let token = load("  0123456789abcdef\n").unwrap().unwrap();
        assert!(token.is("0123456789abcdef"));
        for other in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(Token::load(None).unwrap(), None);
    }

    #[test]
    fn what_is_no_token_is_told_without_showing_it() {
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
        assert!(error.contains("readable for the user"), "{error}");
    }
}
