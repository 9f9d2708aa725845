//! A slab whose keys outlive what they name: each key carries the generation of its insertion, so the key of something
//! that is gone is a `None`, never an index into its successor. It knows nothing of what it holds.

use std::num::NonZeroU32;

use slab::Slab;

/// Names one insertion into one [`Slots`].
///
/// Generations count insertions and start again after 2^32 - 1 of them. A key is given a second time only if the same
/// index happens to be filled exactly then: at a million insertions a second, more than 71 minutes later.
// The order of the fields makes the order of keys the order of insertion, until the generations start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    generation: NonZeroU32,
    index: u32,
}

impl Key {
    /// Where in the slab: dense, and used again.
    #[cfg(test)]
    pub(crate) const fn index(self) -> u32 {
        self.index
    }

    /// The whole key as one number, never zero.
    pub(crate) const fn to_u64(self) -> u64 {
        ((self.generation.get() as u64) << 32) | self.index as u64
    }

    /// The key that [`Key::to_u64`] made this number of; none for a number that it cannot have made.
    pub(crate) fn from_u64(number: u64) -> Option<Self> {
        let generation = NonZeroU32::new((number >> 32) as u32)?;
        Some(Self { generation, index: number as u32 })
    }
}

/// Values by [`Key`]. Inserting, finding and removing are O(1), and nothing allocates below the largest size reached.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slab: Slab<(NonZeroU32, T)>,
    /// The generation of the next insertion.
    next: NonZeroU32,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slab: Slab::new(), next: NonZeroU32::MIN }
    }

    /// Takes a value in. The caller bounds how many: 2^32 at the very most.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let generation = self.next;
        self.next = generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let index = self.slab.insert((generation, value));
        Key { generation, index: u32::try_from(index).expect("the caller bounds what is held") }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.slab.get(key.index as usize) {
            Some((generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slab.get_mut(key.index as usize) {
            Some((generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.contains(key).then(|| self.slab.remove(key.index as usize).1)
    }

    pub(crate) fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// The key of whatever is at `index` now.
    #[cfg(test)]
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        self.slab.get(index as usize).map(|(generation, _)| Key { generation: *generation, index })
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// All there is, by index.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slab
            .iter()
            .map(|(index, (generation, value))| (Key { generation: *generation, index: index as u32 }, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_key_of_something_gone_finds_nothing() {
        let mut slots = Slots::new();
        let gone = slots.insert('a');
        assert_eq!(slots.remove(gone), Some('a'));
        let there = slots.insert('b');
        assert_eq!(there.index(), gone.index());
        assert_eq!((slots.get(gone), slots.contains(gone)), (None, false));
        assert_eq!(slots.get_mut(gone), None);
        assert_eq!(slots.remove(gone), None);
        assert_eq!((slots.get(there), slots.key_at(there.index())), (Some(&'b'), Some(there)));
    }

    #[test]
    fn a_key_from_elsewhere_finds_nothing() {
        let slots = Slots::<()>::new();
        assert_eq!(Key::from_u64(7), None);
        let foreign = Key::from_u64(u64::MAX).unwrap();
        assert!(!slots.contains(foreign));
        assert_eq!(slots.key_at(u32::MAX), None);
    }

    #[test]
    fn generations_start_again_without_zero() {
        let mut slots = Slots::new();
        slots.next = NonZeroU32::MAX;
        let last = slots.insert(());
        let first = slots.insert(());
        assert_eq!((last.generation, first.generation), (NonZeroU32::MAX, NonZeroU32::MIN));
    }

    proptest! {
        #[test]
        fn a_number_gives_back_its_key(number: u64) {
            match Key::from_u64(number) {
                Some(key) => prop_assert_eq!(key.to_u64(), number),
                None => prop_assert!(number >> 32 == 0),
            }
        }

        /// Every step either inserts or removes through a key that was given at some time.
        #[test]
        fn slots_hold_what_a_plain_list_would(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200)) {
            let mut slots = Slots::new();
            let mut given: Vec<(Key, Option<usize>)> = Vec::new();
            for (step, (insert, which)) in steps.into_iter().enumerate() {
                if insert || given.is_empty() {
                    given.push((slots.insert(step), Some(step)));
                } else {
                    let (key, value) = which.get_mut(&mut given);
                    prop_assert_eq!(slots.remove(*key), value.take());
                }
                for (key, value) in &given {
                    prop_assert_eq!(slots.get(*key), value.as_ref());
                }
                let indices: Vec<u32> = slots.iter().map(|(key, _)| key.index()).collect();
                prop_assert!(indices.is_sorted());
                prop_assert_eq!(indices.len(), slots.len());
                prop_assert_eq!(slots.is_empty(), indices.is_empty());
            }
        }
    }
}
