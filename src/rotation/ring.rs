//! A circular list threaded through the entries of a slab: the order in which turns are taken.
//!
//! The head is whoever is next. Moving the head on by one sends the served one to the tail, so the ring is its own
//! cursor: it cannot be forgotten, and it survives any removal. Every step is O(1) and allocates nothing.

use slab::Slab;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// An entry's place in a ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    pub(super) const OUT: Self = Self { prev: NONE, next: NONE };

    pub(super) fn is_in(self) -> bool {
        self.next != NONE
    }

    #[cfg(test)]
    pub(super) fn ends(self) -> (u32, u32) {
        (self.prev, self.next)
    }
}

/// A slab entry that has a place in one ring.
pub(super) trait Linked {
    fn link(&mut self) -> &mut Link;
}

#[derive(Debug)]
pub(super) struct Ring {
    head: u32,
}

impl Ring {
    pub(super) const EMPTY: Self = Self { head: NONE };

    /// Whoever is next.
    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Puts an entry that is in no ring behind all others.
    pub(super) fn push<T: Linked>(&mut self, entries: &mut Slab<T>, index: u32) {
        debug_assert!(!link(entries, index).is_in());
        if self.head == NONE {
            self.head = index;
            *link(entries, index) = Link { prev: index, next: index };
            return;
        }
        let head = self.head;
        let tail = link(entries, head).prev;
        *link(entries, index) = Link { prev: tail, next: head };
        link(entries, tail).next = index;
        link(entries, head).prev = index;
    }

    /// Takes an entry of this ring out of it. If it was next, the one after it is.
    pub(super) fn remove<T: Linked>(&mut self, entries: &mut Slab<T>, index: u32) {
        let Link { prev, next } = std::mem::replace(link(entries, index), Link::OUT);
        debug_assert!(next != NONE);
        if next == index {
            self.head = NONE;
            return;
        }
        link(entries, prev).next = next;
        link(entries, next).prev = prev;
        if self.head == index {
            self.head = next;
        }
    }

    /// Makes the entry behind this one the next, and this one the last.
    pub(super) fn start_after<T: Linked>(&mut self, entries: &mut Slab<T>, index: u32) {
        self.head = link(entries, index).next;
    }
}

fn link<T: Linked>(entries: &mut Slab<T>, index: u32) -> &mut Link {
    entries[index as usize].link()
}
