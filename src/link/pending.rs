//! A bounded set of things under way, each in the list of the connection it belongs to, so that what a lost connection
//! leaves behind costs no more than its own. It knows nothing of what is under way.

use super::Full;
use crate::slots::{Key, Slots};

/// What is under way, by key and by owner. An owner is the index of a connection: small, and used again only after
/// everything of its predecessor was popped.
///
/// Memory follows the most that was ever pending and the highest owner ever named; below both, nothing allocates.
#[derive(Debug)]
pub(super) struct Pending<T> {
    slots: Slots<Entry<T>>,
    /// By owner.
    chains: Vec<Chain>,
    most: u32,
    share: Share,
}

/// How many of the places one owner may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// All of them.
    All,
    /// A third of those that are free, and at least one: a lone owner gets a quarter of all, and each that follows a quarter
    /// of what is left, however long they hold on to it.
    ThirdOfFree,
}

#[derive(Debug)]
struct Entry<T> {
    owner: u32,
    older: Option<Key>,
    newer: Option<Key>,
    value: T,
}

/// One owner's entries, from the oldest to the newest.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    oldest: Option<Key>,
    newest: Option<Key>,
    len: u32,
}

impl<T> Pending<T> {
    /// Holds at most `most`.
    pub(super) const fn new(most: u32, share: Share) -> Self {
        Self { slots: Slots::new(), chains: Vec::new(), most, share }
    }

    /// Adds the newest of `owner`.
    pub(super) fn add(&mut self, owner: u32, value: T) -> Result<Key, Full> {
        let at = owner as usize;
        if at >= self.chains.len() {
            self.chains.resize(at + 1, Chain::default());
        }
        let free = self.most.saturating_sub(self.slots.len() as u32);
        if free == 0 {
            return Err(Full { most: self.most });
        }
        let most_each = match self.share {
            Share::All => self.most,
            Share::ThirdOfFree => (free / 3).max(1),
        };
        let chain = &mut self.chains[at];
        if chain.len >= most_each {
            return Err(Full { most: most_each });
        }
        let key = self.slots.insert(Entry { owner, older: chain.newest, newer: None, value });
        chain.len += 1;
        match chain.newest.replace(key) {
            Some(older) => neighbour(&mut self.slots, older).newer = Some(key),
            None => chain.oldest = Some(key),
        }
        Ok(key)
    }

    /// The owner and the value, if this is still pending.
    pub(super) fn get(&self, key: Key) -> Option<(u32, &T)> {
        self.slots.get(key).map(|entry| (entry.owner, &entry.value))
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.slots.contains(key)
    }

    /// Ends it, if it is still pending.
    pub(super) fn remove(&mut self, key: Key) -> Option<(u32, T)> {
        let Entry { owner, older, newer, value } = self.slots.remove(key)?;
        let chain = &mut self.chains[owner as usize];
        chain.len -= 1;
        match older {
            Some(older) => neighbour(&mut self.slots, older).newer = newer,
            None => chain.oldest = newer,
        }
        match newer {
            Some(newer) => neighbour(&mut self.slots, newer).older = older,
            None => chain.newest = older,
        }
        Some((owner, value))
    }

    /// Ends the oldest of `owner`.
    pub(super) fn pop(&mut self, owner: u32) -> Option<(Key, T)> {
        let key = self.chains.get(owner as usize)?.oldest?;
        self.remove(key).map(|(_, value)| (key, value))
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Walks everything: each entry hangs in its owner's list, once, and the lists hold nothing else.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        let mut walked = 0;
        for (owner, chain) in self.chains.iter().enumerate() {
            let (mut len, mut older, mut at) = (0, None, chain.oldest);
            while let Some(key) = at {
                let entry = self.slots.get(key).expect("a list holds what is pending");
                assert_eq!((entry.owner as usize, entry.older), (owner, older));
                (len, older, at) = (len + 1, at, entry.newer);
            }
            assert_eq!((chain.len, chain.newest), (len, older));
            walked += len;
        }
        assert_eq!(walked as usize, self.len());
        assert!(walked <= self.most);
    }
}

fn neighbour<T>(slots: &mut Slots<Entry<T>>, key: Key) -> &mut Entry<T> {
    slots.get_mut(key).expect("the neighbour of what is pending is pending")
}
