//! One request to a tracker's HTTP side, and its answer.

use std::time::Duration;

use serde::de::DeserializeOwned;
use thiserror::Error;
use ureq::http::Response;
use ureq::typestate::WithBody;
use ureq::{Agent, RequestBuilder};

use crate::Token;
use crate::problem::Problem;

/// Bytes of an answer at most: `/metrics` of a thousand workers is a tenth of it.
const MOST: u64 = 256 << 20;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Failure {
    /// What was asked for is wrong; whole lines.
    #[error("{0}")]
    Wrong(String),
    /// Nobody is there, or not in time.
    #[error(
        "{url} cannot be reached: {cause}\n  is it running, and is this its admin.listen? (--url, or --config FILE)"
    )]
    Unreachable {
        /// Who was asked.
        url: String,
        /// Why not.
        cause: String,
    },
    /// The tracker said no.
    #[error("{0}")]
    Refused(String),
    /// Something else answered.
    #[error("{0} answered, but not as this version of onrush does: {1}")]
    Strange(String, String),
}

/// A tracker's HTTP side.
pub struct Client {
    agent: Agent,
    url: String,
    token: Option<Token>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub text: String,
    url: String,
}

impl Answer {
    /// The body as what it should be.
    ///
    /// # Errors
    /// [`Failure::Strange`].
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.text)
            .map_err(|error| Failure::Strange(self.url.clone(), error.to_string()))
    }
}

impl Client {
    /// Of the tracker at `url`, with the token of its admin API.
    ///
    /// # Errors
    /// [`Failure::Wrong`], when this is no URL that can be asked.
    pub fn new(url: &str, token: Option<Token>, patience: Duration) -> Result<Self, Failure> {
        if !url.starts_with("http://") {
            return Err(Failure::Wrong(format!(
                "onrush: --url {url}: write it as http://HOST:PORT, like http://127.0.0.1:6970\n"
            )));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false)
            // It goes to the tracker and nowhere else, whatever the environment says.
            .proxy(None)
            .max_redirects(0);
        let agent = config.build().new_agent();
        Ok(Self { agent, url: url.trim_end_matches('/').to_owned(), token })
    }

    /// Who is asked.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What is at a path.
    ///
    /// # Errors
    /// [`Failure`]; an answer that is no is one.
    pub fn get(&self, path: &str) -> Result<Answer, Failure> {
        good(self.any(path)?)
    }

    /// The same, where no is an answer like any other.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn any(&self, path: &str) -> Result<Answer, Failure> {
        let request = self.agent.get(self.at(path));
        let request = match self.authorization() {
            Some(value) => request.header("Authorization", value),
            None => request,
        };
        self.read(path, request.call())
    }

    /// Sends a body to a path.
    ///
    /// # Errors
    /// [`Failure`]; an answer that is no is one.
    pub fn post(&self, path: &str, body: &str) -> Result<Answer, Failure> {
        good(self.read(path, self.with_body(self.agent.post(self.at(path)), body))?)
    }

    /// Sends a body to a path, for what is to go.
    ///
    /// # Errors
    /// [`Failure`]; an answer that is no is one.
    pub fn delete(&self, path: &str, body: &str) -> Result<Answer, Failure> {
        let request = self.agent.delete(self.at(path)).force_send_body();
        good(self.read(path, self.with_body(request, body))?)
    }

    fn with_body(
        &self,
        request: RequestBuilder<WithBody>,
        body: &str,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = match self.authorization() {
            Some(value) => request.header("Authorization", value),
            None => request,
        };
        request.content_type("application/json").send(body)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(Token::header)
    }

    fn read(
        &self,
        path: &str,
        answered: Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<Answer, Failure> {
        let unreachable = |cause: ureq::Error| Failure::Unreachable {
            url: self.url.clone(),
            cause: cause.to_string(),
        };
        let mut response = answered.map_err(unreachable)?;
        let status = response.status().as_u16();
        let text =
            response.body_mut().with_config().limit(MOST).read_to_string().map_err(unreachable)?;
        Ok(Answer { status, text, url: self.at(path) })
    }
}

/// Only what is not no.
fn good(answer: Answer) -> Result<Answer, Failure> {
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    let said = serde_json::from_str::<Problem>(&answer.text);
    let why = said.map_or_else(|_| answer.text.trim().to_owned(), |problem| problem.error);
    let hint = match answer.status {
        401 => "\n  give the token with --token-file, or the tracker's configuration with --config",
        _ => "",
    };
    Err(Failure::Refused(format!("{why}{hint}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, Failure> {
        Client::new(url, None, Duration::from_secs(2))
    }

    #[test]
    fn what_is_no_url_is_told_with_an_example() {
        for url in ["127.0.0.1:6970", "https://tracker.example.org", ""] {
            let error = client(url).err().unwrap().to_string();
            assert!(error.contains("like http://127.0.0.1:6970"), "{error}");
        }
    }

    #[test]
    fn where_nobody_listens_the_address_is_named() {
        // Bound and given back: nobody has it for the moment.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://{address}");
        let error = client(&url).unwrap().get("/health").unwrap_err().to_string();
        assert!(error.starts_with(&format!("{url} cannot be reached")), "{error}");
        assert!(error.contains("admin.listen"), "{error}");
    }
}
