//! `/`: the status page. It consists of one HTML document and loads only `/stats.json`.
//!
//! The document is assembled from the files below, which are compiled into the program. It embeds a
//! first set of statistics, so the page is complete at the first paint. Its content security policy
//! permits only the style and the script that carry the nonce of the response.
//!
//! | file | contents |
//! |---|---|
//! | `frame.html` | the sections, without numbers |
//! | `style.css` | light and dark scheme, small windows, print |
//! | `numbers.js` | number formats; counters and gauges of the charts |
//! | `chart.js` | line charts over time |
//! | `show.js` | updates the sections from statistics |
//! | `poll.js` | requests statistics, and reports failures |

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

use crate::api::stats::Stats;
use crate::state::SharedState;

const STYLE: &str = include_str!("style.css");
const FRAME: &str = include_str!("frame.html");
const SCRIPT: &str = concat!(
    include_str!("numbers.js"),
    include_str!("chart.js"),
    include_str!("show.js"),
    include_str!("poll.js"),
);

/// Three bars in a square. Without an icon, browsers would request /favicon.ico.
const ICON: &str = "data:image/svg+xml,\
    %3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Crect width='16' height='16' rx='3' fill='%230067a8'/%3E\
    %3Cpath d='M4 12V8M8 12V4M12 12V6' stroke='white' stroke-width='2'/%3E%3C/svg%3E";

/// The status page.
#[cfg_attr(test, utoipa::path(get, path = "/", responses(
    (status = 200, description = "The status page", body = String, content_type = "text/html"),
)))]
pub(crate) async fn page(State(state): SharedState) -> Response {
    let stats = state.snapshot().ok().map(|snapshot| Stats::of(&snapshot));
    respond(stats.as_ref(), rand::random())
}

fn respond(stats: Option<&Stats>, nonce: u128) -> Response {
    let nonce = format!("{nonce:032x}");
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
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
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>onrush</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<link rel=\"icon\" href=\"{ICON}\">\n\
         <style nonce=\"{nonce}\">\n{STYLE}</style>\n</head>\n<body>\n{FRAME}\
         <script type=\"application/json\" id=\"first\">{first}</script>\n\
         <script nonce=\"{nonce}\">\n'use strict';\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// Statistics as JSON for a `<script>` element, whose text must not contain `<`; `null` without
/// statistics.
fn data(stats: Option<&Stats>) -> String {
    let json = serde_json::to_string(&stats).unwrap_or_else(|_| "null".to_owned());
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(response: &Response, name: HeaderName) -> &str {
        response.headers()[name].to_str().expect("a text")
    }

    #[test]
    fn only_style_and_script_with_the_nonce_are_permitted() {
        let response = respond(None, 0xABC);
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
    fn embedded_statistics_cannot_end_their_element() {
        let stats = Stats { version: "</script><b>".to_owned(), pid: 7, ..Stats::default() };
        let page = html(Some(&stats), "n");
        assert_eq!(page.matches("</script>").count(), 2);
        let (_, rest) = page.split_once("id=\"first\">").expect("embedded data");
        let (json, _) = rest.split_once("</script>").expect("an end tag");
        assert_eq!(serde_json::from_str::<Stats>(json).expect("statistics"), stats);
        assert!(html(None, "n").contains("id=\"first\">null</script>"));
    }

    #[test]
    fn the_page_refers_to_no_other_host() {
        let page = html(None, "n").replace("http://www.w3.org/2000/svg", "");
        for word in
            ["http:", "https:", "src=\"", "@import", "url(", "innerHTML", " style=\"", " onclick"]
        {
            assert!(!page.contains(word), "{word}");
        }
    }
}
