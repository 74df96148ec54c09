//! An access list as text, generated while it is sent.

use std::convert::Infallible;
use std::fmt::Write;
use std::iter;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use onrush_proto::InfoHash;

use onrush_tracker::access::AccessList;

/// The response with a list: a comment with its meaning, then one info hash per line, with its
/// comment if these are wanted.
pub(crate) fn list_text(list: Arc<AccessList>, with_comments: bool) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    let chunks = chunks(list, with_comments).map(Ok::<_, Infallible>);
    (content_type, Body::from_stream(stream::iter(chunks))).into_response()
}

/// Info hashes per chunk of the body.
const CHUNK: usize = 1_000;

/// The text in chunks, each made when it is asked for: the text of millions of entries would take
/// hundreds of megabytes.
fn chunks(list: Arc<AccessList>, with_comments: bool) -> impl Iterator<Item = String> {
    let meaning = match &*list {
        AccessList::Open => "open: every info hash is served",
        AccessList::Allow(_) => "allow: only these info hashes are served",
        AccessList::Deny(_) => "deny: every info hash but these is served",
    };
    let head = format!("# {meaning} ({} listed)\n", list.len());
    let mut next = Some([0; 20]);
    let lines = iter::from_fn(move || {
        let (set, first) = (list.set()?, next.take()?);
        let mut hashes = set.iter_from(first);
        let mut chunk = String::new();
        for hash in hashes.by_ref().take(CHUNK) {
            let hash = InfoHash(*hash);
            let comment = set.comment(&hash).filter(|_| with_comments);
            let comment = comment.map(|comment| format!(" # {comment}")).unwrap_or_default();
            // Writing into a String cannot fail.
            let _ = writeln!(chunk, "{hash}{comment}");
        }
        next = hashes.next().copied();
        Some(chunk)
    });
    iter::once(head).chain(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::access::overlay::OverlaySet;
    use onrush_tracker::access::set::InfoHashSet;

    #[test]
    fn a_long_list_is_sent_completely_in_chunks() {
        let hashes: Vec<InfoHash> = (0..2_500u32)
            .map(|number| {
                let mut hash = [0; 20];
                hash[..4].copy_from_slice(&number.to_be_bytes());
                InfoHash(hash)
            })
            .collect();
        let list = InfoHashSet::new(hashes.iter().map(|hash| hash.0).collect());
        let list = Arc::new(AccessList::Deny(OverlaySet::new(list)));
        let chunks: Vec<String> = chunks(list, true).collect();
        assert_eq!(chunks.len(), 1 + 3);
        let text = chunks.concat();
        let (head, lines) = text.split_once('\n').unwrap();
        assert_eq!(head, "# deny: every info hash but these is served (2500 listed)");
        let read: Vec<InfoHash> = lines.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(read, hashes);
    }

    #[test]
    fn an_open_tracker_sends_only_the_comment() {
        let sent: Vec<String> = chunks(Arc::new(AccessList::Open), true).collect();
        assert_eq!(sent, ["# open: every info hash is served (0 listed)\n"]);
    }
}
