//! `/`: the status page. It consists of one HTML document and loads only `/stats.json` and
//! `/history.json`.
//!
//! The document is assembled from the files below, which are compiled into the program. It embeds
//! the list of losses and a first set of statistics, so the page is complete at the first paint.
//! Its content security policy permits only the style and the script that carry the nonce of the
//! response.
//!
//! | file | contents |
//! |---|---|
//! | `frame.html` | the sections, without numbers |
//! | `plain.rs` | the main numbers in a table, for browsers that run no scripts |
//! | `style.css` | light and dark scheme, small windows, print |
//! | `numbers.js` | number formats; counters and gauges of the charts |
//! | `chart.js` | line charts over time |
//! | `show.js` | updates the sections from statistics |
//! | `poll.js` | requests statistics, and reports failures |
//! | `icon.svg` | the icon: three bars in a square |

mod plain;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use nix::unistd::gethostname;
use serde::Serialize;

use crate::api::stats::Stats;
use crate::state::SharedState;
use onrush_tracker::metrics::{LOSSES, Loss};

const STYLE: &str = include_str!("style.css");
const FRAME: &str = include_str!("frame.html");
const SCRIPT: &str = concat!(
    include_str!("numbers.js"),
    include_str!("chart.js"),
    include_str!("show.js"),
    include_str!("poll.js"),
);

/// The icon. Its path is the one that browsers request for pages without a link to an icon, such as
/// `/stats.json`.
#[cfg_attr(test, utoipa::path(get, path = "/favicon.ico", responses(
    (status = 200, description = "The icon of the pages", body = String,
     content_type = "image/svg+xml"),
)))]
pub(crate) async fn icon() -> impl IntoResponse {
    let image = (header::CONTENT_TYPE, "image/svg+xml");
    ([image, (header::CACHE_CONTROL, "max-age=86400")], include_str!("icon.svg"))
}

/// The status page.
#[cfg_attr(test, utoipa::path(get, path = "/", responses(
    (status = 200, description = "The status page", body = String, content_type = "text/html"),
)))]
pub(crate) async fn page(State(state): SharedState) -> Response {
    let shown = Shown {
        stats: state.snapshot().ok().map(|snapshot| Stats::of(&snapshot)),
        host: gethostname().ok().map(|name| name.to_string_lossy().into_owned()),
    };
    respond(&shown, rand::random())
}

/// Content of the page when it is loaded.
#[derive(Default)]
struct Shown {
    /// `None` until the tracker has started.
    stats: Option<Stats>,
    /// The name of the host, if it is known.
    host: Option<String>,
}

fn respond(shown: &Shown, nonce: u128) -> Response {
    let nonce = format!("{nonce:032x}");
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let headers: [(HeaderName, String); 4] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, html(shown, &nonce)).into_response()
}

fn html(shown: &Shown, nonce: &str) -> String {
    let first = data(&shown.stats);
    let host = shown.host.as_deref().map(plain::escaped);
    let title = host.as_ref().map_or_else(String::new, |host| format!("{host} · "));
    let heading = host.map_or_else(String::new, |host| format!(" <small>on {host}</small>"));
    let fields = |Loss { key, label, help, .. }: &Loss| {
        BTreeMap::from([("key", *key), ("label", *label), ("help", *help)])
    };
    let losses = data(&LOSSES.iter().map(fields).collect::<Vec<_>>());
    let plain = plain::content(shown.stats.as_ref());
    let frame = FRAME.replace("{plain}", &plain).replace("{host}", &heading);
    let refresh = plain::REFRESH;
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{title}onrush</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n\
         <link rel=\"icon\" href=\"favicon.ico\">\n\
         <style nonce=\"{nonce}\">\n{STYLE}</style>\n\
         <noscript><meta http-equiv=\"refresh\" content=\"{refresh}\">\
         <style nonce=\"{nonce}\">.live {{ display: none; }}</style></noscript>\n\
         </head>\n<body>\n{frame}\
         <script type=\"application/json\" id=\"first\">{first}</script>\n\
         <script nonce=\"{nonce}\">\n'use strict';\nconst LOSSES = {losses};\n{SCRIPT}</script>\n\
         </body>\n</html>\n"
    )
}

/// JSON for a `<script>` element, whose text must not contain `<`.
fn data(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
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
        let response = respond(&Shown::default(), 0xABC);
        let nonce = "00000000000000000000000000000abc";
        let policy = header_of(&response, header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(policy.contains(&format!("script-src 'nonce-{nonce}';")), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header_of(&response, header::CONTENT_TYPE), "text/html; charset=utf-8");
        assert_eq!(header_of(&response, header::CACHE_CONTROL), "no-store");
        let page = html(&Shown::default(), nonce);
        assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 3);
    }

    #[test]
    fn embedded_statistics_cannot_end_their_element() {
        let stats = Stats { version: "</script><b>".to_owned(), pid: 7, ..Stats::default() };
        let page = html(&Shown { stats: Some(stats.clone()), ..Shown::default() }, "n");
        assert_eq!(page.matches("</script>").count(), 2);
        let (_, rest) = page.split_once("id=\"first\">").expect("embedded data");
        let (json, _) = rest.split_once("</script>").expect("an end tag");
        assert_eq!(serde_json::from_str::<Stats>(json).expect("statistics"), stats);
        assert!(html(&Shown::default(), "n").contains("id=\"first\">null</script>"));
    }

    #[test]
    fn the_page_refers_to_no_other_host() {
        let page = html(&Shown::default(), "n").replace("http://www.w3.org/2000/svg", "");
        for word in
            ["http:", "https:", "src=\"", "@import", "url(", "innerHTML", " style=\"", " onclick"]
        {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn the_page_names_its_host() {
        let host = Some("tracker-1<b>".to_owned());
        let page = html(&Shown { host, ..Shown::default() }, "n");
        assert!(page.contains("<title>tracker-1&lt;b&gt; · onrush</title>"), "{page}");
        assert!(page.contains("on tracker-1&lt;b&gt;</small></h1>"), "{page}");
        assert!(html(&Shown::default(), "n").contains("<title>onrush</title>"));
    }

    #[test]
    fn scripts_know_every_loss() {
        let page = html(&Shown::default(), "n");
        let (_, rest) = page.split_once("const LOSSES = ").expect("the list");
        let (list, _) = rest.split_once(";\n").expect("its end");
        let list: Vec<BTreeMap<String, String>> = serde_json::from_str(list).expect("JSON");
        let keys: Vec<_> = list.iter().map(|loss| loss["key"].as_str()).collect();
        assert_eq!(keys, LOSSES.iter().map(|loss| loss.key).collect::<Vec<_>>());
        assert!(list.iter().all(|loss| !loss["label"].is_empty() && !loss["help"].is_empty()));
    }

    /// Without scripts the page has all numbers, and hides the parts that only scripts fill.
    #[test]
    fn without_scripts_the_page_has_the_numbers() {
        let mut stats = Stats { version: "0.1.0".to_owned(), ..Stats::default() };
        stats.totals.traffic.peers = 1_234_567;
        let page = html(&Shown { stats: Some(stats), ..Shown::default() }, "n");
        let elements = page.split("<noscript>").skip(1);
        let plain: String = elements.filter_map(|rest| rest.split("</noscript>").next()).collect();
        for part in ["<td>1,234,567</td>", "<td>0.1.0</td>", "http-equiv=\"refresh\"", ".live {"] {
            assert!(plain.contains(part), "{part}: {plain}");
        }
        for part in ["<main class=\"live\">", "class=\"state live\"", "class=\"says live\""] {
            assert!(page.contains(part), "{part}");
        }
    }
}
