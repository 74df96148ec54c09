//! Answers to which a reply may come.
//!
//! aquatic_ws replies to an answer as to an announce, with the counts of the swarm, and before them
//! with a failure where it has forgotten the offer; other trackers do not reply. Such a reply names
//! a swarm and no message. Replies come in the order of the messages, so it is that of an answer in
//! the swarm that was sent before the request, if the tracker replies to answers at all.

use std::collections::VecDeque;

use onrush_proto::InfoHash;

/// The answers of a connection to which a reply may come.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Their swarms, each with the number of the last request before it.
    sent: VecDeque<(u32, InfoHash)>,
    /// Number of requests that were sent.
    requests: u32,
}

/// Whose reply a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Request,
    /// That of the request, or of an answer before it.
    Either,
    Answer,
    /// Of no message.
    Unasked,
}

impl Answers {
    /// Notes a request, and returns its number.
    pub(super) fn send_request(&mut self) -> u32 {
        self.requests += 1;
        self.requests
    }

    /// Notes an answer.
    pub(super) fn send(&mut self, swarm: InfoHash) {
        self.sent.push_back((self.requests, swarm));
    }

    /// Whose reply the counts of a swarm, or a failure there, are. `request` is the number of the
    /// announce of that swarm without a reply, if there is one; `have_replies` is whether the
    /// tracker replies to answers, once that is known.
    pub(super) fn whose(
        &mut self,
        (swarm, is_failure): (InfoHash, bool),
        request: Option<u32>,
        have_replies: &mut Option<bool>,
    ) -> Whose {
        let is_of = |(after, of): &(u32, InfoHash)| {
            *of == swarm && request.is_none_or(|request| *after < request)
        };
        let at = self.sent.iter().position(is_of);
        match (at, request, *have_replies) {
            // The counts follow it.
            (Some(_), None, _) | (Some(_), Some(_), Some(true)) if is_failure => Whose::Answer,
            (Some(at), None, _) => {
                *have_replies = Some(true);
                self.sent.drain(..=at);
                Whose::Answer
            }
            // The other of the two replies comes later, and counts as the reply to the answer.
            (Some(_), Some(_), None | Some(true)) if !is_failure => Whose::Either,
            _ => self.of_request(request, have_replies),
        }
    }

    /// A reply to a request, if there is one: none comes to the answers before it any more.
    pub(super) fn of_request(
        &mut self,
        request: Option<u32>,
        have_replies: &mut Option<bool>,
    ) -> Whose {
        let Some(request) = request else { return Whose::Unasked };
        let before = self.sent.partition_point(|(after, _)| *after < request);
        if before > 0 {
            have_replies.get_or_insert(false);
            self.sent.drain(..before);
        }
        Whose::Request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InfoHash = InfoHash([1; 20]);
    const TWO: InfoHash = InfoHash([2; 20]);

    #[test]
    fn a_tracker_replies_to_answers() {
        let (mut answers, mut known) = (Answers::default(), None);
        assert_eq!(answers.whose((ONE, false), None, &mut known), Whose::Unasked);
        answers.send(ONE);
        let request = Some(answers.send_request());
        answers.send(ONE);
        assert_eq!(answers.whose((ONE, false), request, &mut known), Whose::Either);
        // The one that is left, and that of the second answer.
        for _ in 0..2 {
            assert_eq!(answers.whose((TWO, false), None, &mut known), Whose::Unasked);
            assert_eq!(answers.whose((ONE, false), None, &mut known), Whose::Answer);
        }
        assert_eq!(answers.whose((ONE, false), None, &mut known), Whose::Unasked);
        assert_eq!(known, Some(true));
        // A failure, and the counts of the same answer.
        answers.send(TWO);
        let request = Some(answers.send_request());
        assert_eq!(answers.whose((TWO, true), request, &mut known), Whose::Answer);
        assert_eq!(answers.whose((TWO, false), None, &mut known), Whose::Answer);
        assert_eq!(answers.whose((TWO, true), request, &mut known), Whose::Request);
    }

    #[test]
    fn a_tracker_does_not_reply_to_answers() {
        let (mut answers, mut known) = (Answers::default(), None);
        answers.send(ONE);
        let request = Some(answers.send_request());
        // Until that is known a failure is that of the request.
        assert_eq!(answers.whose((ONE, true), request, &mut known), Whose::Request);
        assert_eq!(known, Some(false));
        for is_failure in [false, true] {
            answers.send(ONE);
            let request = Some(answers.send_request());
            answers.send(TWO);
            assert_eq!(answers.whose((ONE, is_failure), request, &mut known), Whose::Request);
            assert_eq!(answers.of_request(None, &mut known), Whose::Unasked);
        }
        assert_eq!(answers.sent.len(), 1, "that behind the last request");
    }
}
