//! Circular lists threaded through the slab of checks. A check hangs in at most one ring on each axis; joining, leaving
//! and moving on are O(1) and allocate nothing. This file knows the links of a check and nothing else of it.

use slab::Slab;

use super::Check;

/// A check's neighbours in one ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    /// In no ring.
    pub(super) const LOOSE: Self = Self { previous: u32::MAX, next: u32::MAX };
}

/// Which of a check's two sets of links a ring runs along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Asks = 0,
    Deadlines = 1,
}

/// One ring, entered at its head; the tail is the one before the head.
#[derive(Debug)]
pub(super) struct Ring {
    axis: Axis,
    head: Option<u32>,
}

impl Ring {
    pub(super) const fn new(axis: Axis) -> Self {
        Self { axis, head: None }
    }

    pub(super) fn head(&self) -> Option<u32> {
        self.head
    }

    /// The one after `index`, or none if that would be the head again.
    pub(super) fn after(&self, checks: &Slab<Check>, index: u32) -> Option<u32> {
        let next = links(checks, self.axis, index).next;
        (Some(next) != self.head).then_some(next)
    }

    /// Adds a loose check at the tail.
    pub(super) fn join(&mut self, checks: &mut Slab<Check>, index: u32) {
        debug_assert_eq!(
            links(checks, self.axis, index).next,
            Links::LOOSE.next,
            "only a loose check joins a ring"
        );
        let Some(head) = self.head else {
            *links_mut(checks, self.axis, index) = Links { previous: index, next: index };
            self.head = Some(index);
            return;
        };
        let tail = links(checks, self.axis, head).previous;
        *links_mut(checks, self.axis, index) = Links { previous: tail, next: head };
        links_mut(checks, self.axis, tail).next = index;
        links_mut(checks, self.axis, head).previous = index;
    }

    /// Moves the entry point on by one: the old head is now the tail.
    pub(super) fn rotate(&mut self, checks: &Slab<Check>) {
        self.head = self.head.map(|head| links(checks, self.axis, head).next);
    }

    /// Empties the ring into `members`, from the head on.
    pub(super) fn take(&mut self, checks: &mut Slab<Check>, members: &mut Vec<u32>) {
        while let Some(index) = self.head {
            members.push(index);
            leave([self], checks, index);
        }
    }
}

/// Takes a check out of whichever of these rings, all of one axis, it hangs in. Leaves a loose check alone.
pub(super) fn leave<const N: usize>(rings: [&mut Ring; N], checks: &mut Slab<Check>, index: u32) {
    let axis = rings[0].axis;
    let Links { previous, next } = links(checks, axis, index);
    if next == Links::LOOSE.next {
        return;
    }
    links_mut(checks, axis, previous).next = next;
    links_mut(checks, axis, next).previous = previous;
    *links_mut(checks, axis, index) = Links::LOOSE;
    for ring in rings {
        if ring.head == Some(index) {
            ring.head = (next != index).then_some(next);
        }
    }
}

fn links(checks: &Slab<Check>, axis: Axis, index: u32) -> Links {
    checks[index as usize].links[axis as usize]
}

fn links_mut(checks: &mut Slab<Check>, axis: Axis, index: u32) -> &mut Links {
    &mut checks[index as usize].links[axis as usize]
}
