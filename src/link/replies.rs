//! The replies this engine owes: requests that the host received and has not answered yet. It knows where an answer goes
//! and by which number, and nothing of what was asked.

use super::Full;
use super::pending::{Pending, Share};
use crate::slots::Key;

/// The right to answer one request, handed to the host with it and usable once, on the engine that gave it.
///
/// A reply that was refused with `WouldBlock` leaves its token usable. The token ends with the reply, or with the
/// connection that the request came by: a reply never goes to another connection or another process (000 §6). Using it
/// after that is an error that changes nothing. A token dropped unused leaves the caller to its own time-out, and keeps
/// its place until [`Outbox::forget`](crate::Outbox::forget).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyToken(Key);

/// The requests that wait for the host's answer.
#[derive(Debug)]
pub(crate) struct Replies {
    /// The caller's correlations, whatever they are: their meaning is the caller's.
    pending: Pending<u64>,
}

impl Replies {
    /// At most `most` unanswered requests at a time, of which no connection can take the room of all others.
    pub(crate) const fn new(most: u32) -> Self {
        Self { pending: Pending::new(most, Share::ThirdOfFree) }
    }

    /// Takes note of a request from connection `owner`.
    pub(crate) fn expect(&mut self, owner: u32, correlation: u64) -> Result<ReplyToken, Full> {
        self.pending.add(owner, correlation).map(ReplyToken)
    }

    /// The connection and the correlation to answer; the token stays usable.
    pub(crate) fn peek(&self, token: ReplyToken) -> Option<(u32, u64)> {
        self.pending.get(token.0).map(|(owner, &correlation)| (owner, correlation))
    }

    /// The same, and uses the token up: for a reply that the transport took.
    pub(crate) fn take(&mut self, token: ReplyToken) -> Option<(u32, u64)> {
        self.pending.remove(token.0)
    }

    /// Ends every token of a connection that has ended. `owner` may stand for another connection afterwards.
    pub(crate) fn forget(&mut self, owner: u32) {
        while self.pending.pop(owner).is_some() {}
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_usable_once() {
        let mut replies = Replies::new(100);
        let token = replies.expect(3, 77).unwrap();
        assert_eq!(replies.peek(token), Some((3, 77)));
        assert_eq!(replies.peek(token), Some((3, 77)), "a refused reply leaves the token usable");
        assert_eq!(replies.take(token), Some((3, 77)));
        assert_eq!((replies.take(token), replies.peek(token)), (None, None));
        let next = replies.expect(3, 77).unwrap();
        assert_ne!(next, token);
        assert_eq!(replies.take(token), None);
    }

    #[test]
    fn each_that_holds_on_to_all_it_gets_has_a_quarter_of_what_was_left() {
        let mut replies = Replies::new(65_536);
        let fill = |replies: &mut Replies, owner| {
            (0..65_536).map(|number| replies.expect(owner, number)).take_while(Result::is_ok).count()
        };
        let mut left = 65_536;
        for owner in 0..20 {
            let got = fill(&mut replies, owner);
            assert!(got.abs_diff(left / 4) <= 1, "{owner} got {got} of {left}");
            left -= got;
        }
        assert!(left > 200, "{left} are left for the next");
        assert!(replies.expect(0, 1).is_err(), "one that has more than its share gets no more");
    }

    #[test]
    fn when_all_is_taken_a_place_that_comes_free_is_given_again() {
        let mut replies = Replies::new(3);
        let [first, second, _] = [0, 1, 2].map(|owner| replies.expect(owner, 1).unwrap());
        assert_eq!(replies.expect(3, 1), Err(Full { most: 3 }));
        assert_eq!(replies.take(first), Some((0, 1)));
        assert_eq!(replies.expect(1, 2), Err(Full { most: 1 }), "not to who has one already");
        assert!(replies.expect(3, 1).is_ok());
        assert_eq!(replies.take(second), Some((1, 1)));
    }

    #[test]
    fn a_token_ends_with_its_connection() {
        let mut replies = Replies::new(100);
        let [lost, kept] = [1, 2].map(|owner| replies.expect(owner, 9).unwrap());
        replies.forget(1);
        replies.forget(7);
        let successor = replies.expect(1, 9).unwrap();
        assert_eq!(replies.take(lost), None);
        assert_eq!((replies.take(kept), replies.take(successor)), (Some((2, 9)), Some((1, 9))));
    }

    proptest! {
        /// A step expects a reply, uses some token that was given at some time, or ends a connection.
        #[test]
        fn each_token_answers_its_own_request_at_most_once(
            steps in prop::collection::vec((0..4_u8, 0..4_u32, any::<prop::sample::Index>()), 0..200),
        ) {
            let mut replies = Replies::new(20);
            let mut given: Vec<(ReplyToken, Option<(u32, u64)>)> = Vec::new();
            for (number, (step, owner, which)) in (1..).zip(steps) {
                let of_owner = given.iter().filter(|(_, open)| open.is_some_and(|open| open.0 == owner)).count();
                match step {
                    0 | 1 => match replies.expect(owner, number) {
                        Ok(token) => {
                            let free_before = 21 - replies.len();
                            prop_assert!(of_owner < (free_before / 3).max(1) && replies.len() <= 20);
                            given.push((token, Some((owner, number))));
                        }
                        Err(full) => prop_assert!(replies.len() == 20 || of_owner >= full.most as usize),
                    },
                    2 if !given.is_empty() => {
                        let (token, open) = which.get_mut(&mut given);
                        prop_assert_eq!(replies.peek(*token), *open);
                        prop_assert_eq!(replies.take(*token), open.take());
                    }
                    _ => {
                        replies.forget(owner);
                        for (_, open) in &mut given {
                            *open = open.filter(|open| open.0 != owner);
                        }
                    }
                }
                replies.pending.verify();
                prop_assert_eq!(replies.len(), given.iter().filter(|(_, open)| open.is_some()).count());
            }
        }
    }
}
