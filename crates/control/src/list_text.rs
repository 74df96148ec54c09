//! An access list as text, generated while it is sent.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use onrush_proto::InfoHash;

use onrush_tracker::access::AccessList;

/// The response with a list: a comment with its meaning, then one info hash per line, with its
/// comment if these are wanted.
pub(crate) fn list_text(list: Arc<AccessList>, with_comments: bool) -> Response {
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (content_type, Body::new(ListBody::new(list, with_comments))).into_response()
}

/// Info hashes per chunk of the body.
const CHUNK: usize = 1_000;

/// The list as a body that is generated chunk by chunk: the text of millions of entries would take
/// hundreds of megabytes.
struct ListBody {
    list: Arc<AccessList>,
    with_comments: bool,
    head: Option<String>,
    /// The first info hash of the next chunk; `None` at the end.
    next: Option<[u8; 20]>,
}

impl ListBody {
    fn new(list: Arc<AccessList>, with_comments: bool) -> Self {
        let meaning = match &*list {
            AccessList::Open => "open: every info hash is served",
            AccessList::Allow(_) => "allow: only these info hashes are served",
            AccessList::Deny(_) => "deny: every info hash but these is served",
        };
        let head = Some(format!("# {meaning} ({} listed)\n", list.len()));
        Self { list, with_comments, head, next: Some([0; 20]) }
    }

    /// The next chunk; empty at the end.
    fn chunk(&mut self) -> String {
        let mut chunk = self.head.take().unwrap_or_default();
        let (Some(set), Some(next)) = (self.list.set(), self.next.take()) else {
            return chunk;
        };
        let mut hashes = set.iter_from(next);
        for hash in hashes.by_ref().take(CHUNK) {
            let hash = InfoHash(*hash);
            let comment = set.comment(&hash).filter(|_| self.with_comments);
            let comment = comment.map(|comment| format!(" # {comment}")).unwrap_or_default();
            // Writing into a String cannot fail.
            let _ = writeln!(chunk, "{hash}{comment}");
        }
        self.next = hashes.next().copied();
        chunk
    }
}

impl hyper::body::Body for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let chunk = self.chunk();
        Poll::Ready((!chunk.is_empty()).then(|| Ok(Frame::data(chunk.into()))))
    }
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
        let mut body = ListBody::new(Arc::new(AccessList::Deny(OverlaySet::new(list))), true);
        let chunks: Vec<String> =
            std::iter::repeat_with(|| body.chunk()).take_while(|chunk| !chunk.is_empty()).collect();
        assert_eq!(chunks.len(), 3);
        let text = chunks.concat();
        let (head, lines) = text.split_once('\n').unwrap();
        assert_eq!(head, "# deny: every info hash but these is served (2500 listed)");
        let read: Vec<InfoHash> = lines.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(read, hashes);
    }

    #[test]
    fn an_open_tracker_sends_only_the_comment() {
        let mut body = ListBody::new(Arc::new(AccessList::Open), true);
        assert_eq!(body.chunk(), "# open: every info hash is served (0 listed)\n");
        assert_eq!(body.chunk(), "");
    }
}
