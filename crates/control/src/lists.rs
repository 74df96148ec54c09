//! `/lists`: the list of info hashes in force, where the operator has switched that on.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use onrush_proto::InfoHash;

use super::problem::Problem;
use super::shared::Shared;
use crate::view::InForce;
use onrush_tracker::access::AccessList;

/// The list of info hashes in force, one a line, behind a comment that says what it means.
#[utoipa::path(get, path = "/lists", tag = "observation", responses(
    (status = 200, description = "The list", body = String, content_type = "text/plain"),
    (status = 404, description = "It is not published (admin.publish_lists)", body = Problem),
    (status = 503, description = "The tracker does not serve yet", body = Problem),
))]
pub(super) async fn lists(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let source = shared.source().ok_or_else(|| Problem::not_serving("starting"))?;
    let InForce { settings, lists, .. } = source.overview.in_force();
    if !settings.admin.publish_lists {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "this tracker does not publish its list: its operator may set admin.publish_lists = true",
        ));
    }
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok((kind, Body::new(Text::new(lists.access))).into_response())
}

/// Info hashes in a piece of the body.
const PIECE: usize = 1_000;

/// The list as a body that is made piece by piece: one of millions would take hundreds of megabytes.
struct Text {
    list: Arc<AccessList>,
    head: Option<String>,
    /// The first that is still to come; `None` at the end.
    next: Option<[u8; 20]>,
}

impl Text {
    fn new(list: Arc<AccessList>) -> Self {
        let what = match &*list {
            AccessList::Open => "open: every info hash is served",
            AccessList::Allow(_) => "allow: only these info hashes are served",
            AccessList::Deny(_) => "deny: every info hash but these is served",
        };
        let head = Some(format!("# {what} ({} listed)\n", list.len()));
        Self { list, head, next: Some([0; 20]) }
    }

    /// The next piece; empty at the end.
    fn piece(&mut self) -> String {
        let mut piece = self.head.take().unwrap_or_default();
        let (Some(listing), Some(next)) = (self.list.listing(), self.next.take()) else {
            return piece;
        };
        let mut hashes = listing.iter_from(next);
        for hash in hashes.by_ref().take(PIECE) {
            // Writing into a String cannot fail.
            let _ = writeln!(piece, "{}", InfoHash(*hash));
        }
        self.next = hashes.next().copied();
        piece
    }
}

impl hyper::body::Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.piece();
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::access::hash_list::HashList;
    use onrush_tracker::access::listing::Listing;

    #[test]
    fn a_long_list_comes_in_pieces_and_whole() {
        let hashes: Vec<InfoHash> = (0..2_500u32)
            .map(|number| {
                let mut hash = [0; 20];
                hash[..4].copy_from_slice(&number.to_be_bytes());
                InfoHash(hash)
            })
            .collect();
        let list = HashList::new(hashes.iter().map(|hash| hash.0).collect());
        let mut text = Text::new(Arc::new(AccessList::Deny(Listing::new(list))));
        let pieces: Vec<String> =
            std::iter::repeat_with(|| text.piece()).take_while(|piece| !piece.is_empty()).collect();
        assert_eq!(pieces.len(), 3);
        let whole = pieces.concat();
        let (head, lines) = whole.split_once('\n').unwrap();
        assert_eq!(head, "# deny: every info hash but these is served (2500 listed)");
        let read: Vec<InfoHash> = lines.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(read, hashes);
    }

    #[test]
    fn an_open_tracker_says_so() {
        let mut text = Text::new(Arc::new(AccessList::Open));
        assert_eq!(text.piece(), "# open: every info hash is served (0 listed)\n");
        assert_eq!(text.piece(), "");
    }
}
