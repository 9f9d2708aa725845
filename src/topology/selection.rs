//! Which member a channel call goes to: ready members share the picks in proportion to weight, and as evenly in time as
//! whole picks allow. It knows members by number only, and asks the caller what they are fit for.
//!
//! With every pick a ready member of weight w earns w, and the one that is picked pays what all of them earned together,
//! W. So a credit of W is one pick that is owed. Only a member with credit may be picked, which keeps anyone from running
//! a whole pick ahead of its share; of those, the one picked is the one that would be owed a whole pick first, at
//! (W - credit) / w picks from now, which keeps anyone from falling a whole pick behind. Both are bounds known from
//! scheduling one processor: each pick of a member is a job with a window, and earliest deadline first meets them all.

use crate::link::connection::Connection;
use crate::name::Weight;
use crate::wire::HostState;

/// What a member is fit for at the moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// Ready and serving.
    Ready,
    /// Serving, as far as is known, and without a ready connection.
    NotReady,
    /// Draining, or otherwise out of service: out of selection, whatever its connection does.
    NotServing,
}

impl Fitness {
    /// What the peer of a connection is fit for.
    pub(crate) fn of(connection: Option<&Connection>) -> Self {
        match connection {
            Some(connection) if !connection.is_ready() => Self::NotReady,
            Some(connection) if connection.peer_state == HostState::Serving => Self::Ready,
            Some(_) => Self::NotServing,
            None => Self::NotReady,
        }
    }
}

/// How a channel call ends in selection (000 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// This member takes the call.
    Member(u32),
    /// A member of weight above 0 serves, and none of them is ready.
    Unavailable,
    /// No member is known, or all are of weight 0 or out of service.
    NotFound,
}

/// The members of one channel.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// By number, so that what a pick does never depends on the order of arrival.
    members: Vec<Member>,
}

#[derive(Debug, Clone, Copy)]
struct Member {
    number: u32,
    weight: Weight,
    /// At the pick under way.
    ready: bool,
    /// Earned and not yet spent; within one pick's price either way.
    credit: i64,
}

impl Members {
    /// Takes a member in, or changes the weight of one that is in; the next pick goes by it.
    pub(crate) fn set(&mut self, number: u32, weight: Weight) {
        match self.find(number) {
            Ok(at) => self.members[at].weight = weight,
            Err(at) => self.members.insert(at, Member { number, weight, ready: false, credit: 0 }),
        }
    }

    /// Takes a member out; false if it was not in.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.find(number).map(|at| self.members.remove(at)).is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Picks the member for one call. O(members); asks `fitness` once for each of weight above 0.
    pub(crate) fn pick(&mut self, mut fitness: impl FnMut(u32) -> Fitness) -> Selection {
        let mut serving = false;
        let mut price = 0;
        for member in &mut self.members {
            let fitness = if member.weight.get() == 0 { Fitness::NotServing } else { fitness(member.number) };
            serving |= fitness != Fitness::NotServing;
            member.ready = fitness == Fitness::Ready;
            if member.ready {
                price += member.earns();
            } else {
                // Who was away comes back with neither debt nor claim.
                member.credit = 0;
            }
        }
        let mut best: Option<&mut Member> = None;
        for member in self.members.iter_mut().filter(|member| member.ready) {
            // Only a change of weights or of who is ready leaves anyone outside these bounds: nobody pays for, or lives
            // on, what was earned at other prices.
            member.credit = member.credit.clamp(-price, price) + member.earns();
            if best.as_ref().is_none_or(|best| member.goes_before(best, price)) {
                best = Some(member);
            }
        }
        match best {
            Some(member) => {
                member.credit -= price;
                Selection::Member(member.number)
            }
            None if serving => Selection::Unavailable,
            None => Selection::NotFound,
        }
    }

    fn find(&self, number: u32) -> Result<usize, usize> {
        self.members.binary_search_by_key(&number, |member| member.number)
    }
}

impl Member {
    fn earns(&self) -> i64 {
        i64::from(self.weight.get())
    }

    /// Whether this one has credit and the other has none, or would be owed a whole pick earlier than the other.
    /// Products of a price and a weight: far inside an `i64` even for 2^32 members.
    fn goes_before(&self, other: &Self, price: i64) -> bool {
        match (self.credit > 0, other.credit > 0) {
            (true, false) => true,
            (false, true) => false,
            _ => (price - self.credit) * other.earns() < (price - other.credit) * self.earns(),
        }
    }
}

#[cfg(test)]
mod tests;
