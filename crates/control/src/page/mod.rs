//! `/`: the tracker's state for people, as one page that needs nothing else but `/stats.json`.
//!
//! The page is put together here from its parts, which are texts of this program. A first reading goes with it,
//! so that it is whole when it is first seen. Whatever is not one of these parts, or not of this answer, a
//! browser does not run: each answer has a number of its own that its style and script are named by.
//!
//! | part | what is in it |
//! |---|---|
//! | `frame.html` | the sections, without numbers |
//! | `style.css` | light, dark, small windows, paper |
//! | `numbers.js` | numbers as they are read; rates |
//! | `chart.js` | lines over time |
//! | `show.js` | from a reading to the sections |
//! | `poll.js` | when is asked, and what is said while nobody answers |

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

use crate::api::stats::Stats;
use crate::state::ServerState;

const STYLE: &str = include_str!("style.css");
const FRAME: &str = include_str!("frame.html");
const SCRIPT: &str = concat!(
    include_str!("numbers.js"),
    include_str!("chart.js"),
    include_str!("show.js"),
    include_str!("poll.js"),
);

/// A square of three bars, so that no browser asks for a picture.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Crect width='16' height='16' rx='3' fill='%230067a8'/%3E\
    %3Cpath d='M4 12V8M8 12V4M12 12V6' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

/// The status page.
#[utoipa::path(get, path = "/", tag = "observation", responses(
    (status = 200, description = "The state of the tracker, for people", body = String, content_type = "text/html"),
))]
pub(crate) async fn page(State(state): State<Arc<ServerState>>) -> Response {
    let stats = state.snapshot().ok().map(|snapshot| Stats::of(&snapshot));
    answer(stats.as_ref(), rand::random())
}

fn answer(stats: Option<&Stats>, nonce: u128) -> Response {
    let nonce = format!("{nonce:032x}");
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers: [(HeaderName, String); 4] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, html(stats, &nonce)).into_response()
}

fn html(stats: Option<&Stats>, nonce: &str) -> String {
    let first = data(stats);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>onrush</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<link rel=\"icon\" href=\"{ICON}\">\n\
         <style nonce=\"{nonce}\">\n{STYLE}</style>\n</head>\n<body>\n{FRAME}\
         <script type=\"application/json\" id=\"first\">{first}</script>\n\
         <script nonce=\"{nonce}\">\n'use strict';\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// A reading as JSON that cannot end the element it stands in; `null` while there is none.
fn data(stats: Option<&Stats>) -> String {
    let json = serde_json::to_string(&stats).unwrap_or_else(|_| "null".to_owned());
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(response: &Response, name: HeaderName) -> &str {
        response.headers()[name].to_str().expect("is text")
    }

    #[test]
    fn only_what_is_named_by_the_answers_own_number_is_run() {
        let response = answer(None, 0xABC);
        let nonce = "00000000000000000000000000000abc";
        let policy = header_of(&response, header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(policy.contains(&format!("script-src 'nonce-{nonce}';")), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header_of(&response, header::CONTENT_TYPE), "text/html; charset=utf-8");
        assert_eq!(header_of(&response, header::CACHE_CONTROL), "no-store");
        let page = html(None, nonce);
        assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    }

    #[test]
    fn a_reading_goes_with_the_page_and_cannot_leave_its_element() {
        let stats = Stats { version: "</script><b>".to_owned(), pid: 7, ..Stats::default() };
        let page = html(Some(&stats), "n");
        assert_eq!(page.matches("</script>").count(), 2);
        let (_, rest) = page.split_once("id=\"first\">").expect("has data");
        let (json, _) = rest.split_once("</script>").expect("ends");
        assert_eq!(serde_json::from_str::<Stats>(json).expect("is a reading"), stats);
        assert!(html(None, "n").contains("id=\"first\">null</script>"));
    }

    #[test]
    fn nothing_is_asked_of_others() {
        let page = html(None, "n").replace("http://www.w3.org/2000/svg", "");
        for word in
            ["http:", "https:", "src=\"", "@import", "url(", "innerHTML", " style=\"", " onclick"]
        {
            assert!(!page.contains(word), "{word}");
        }
    }
}
