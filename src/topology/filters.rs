//! The filters of one subscriber: a set of prefixes, asked once for each record that comes. It knows bytes; it never knows
//! a socket or a publisher.

/// A set of prefixes, in order.
#[derive(Debug)]
pub(crate) struct Filters(Vec<Vec<u8>>);

impl Filters {
    /// The set of these. One that was named twice is one.
    pub(super) fn new(mut prefixes: Vec<Vec<u8>>) -> Self {
        prefixes.sort_unstable();
        prefixes.dedup();
        Self(prefixes)
    }

    /// Adds a prefix. Returns whether it is new.
    pub(super) fn add(&mut self, prefix: &[u8]) -> bool {
        let place = self.place(prefix);
        if let Err(at) = place {
            self.0.insert(at, prefix.to_vec());
        }
        place.is_err()
    }

    /// Takes a prefix away. Returns whether it was there.
    pub(super) fn remove(&mut self, prefix: &[u8]) -> bool {
        let place = self.place(prefix);
        if let Ok(at) = place {
            self.0.remove(at);
        }
        place.is_ok()
    }

    /// Every prefix once.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }

    /// Whether a topic begins with one of them.
    pub(super) fn fit(&self, mut topic: &[u8]) -> bool {
        loop {
            // A prefix never stands behind its topic, and all that stands between the two begins with it. So the nearest one
            // fits, or what it has in common with the topic is as long as any that does.
            let behind = self.0.partition_point(|prefix| prefix.as_slice() <= topic);
            let Some(nearest) = self.0[..behind].last() else { return false };
            if topic.starts_with(nearest) {
                return true;
            }
            let common = topic.iter().zip(nearest).take_while(|(one, other)| one == other).count();
            topic = &topic[..common];
        }
    }

    fn place(&self, prefix: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|each| each.as_slice().cmp(prefix))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Few letters, so that much begins alike.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(0..3_u8, 0..6)
    }

    proptest! {
        #[test]
        fn a_topic_fits_if_it_begins_with_any_of_them(prefixes in vec(text(), 0..12), topic in text()) {
            let expected = prefixes.iter().any(|prefix| topic.starts_with(prefix));
            prop_assert_eq!(Filters::new(prefixes).fit(&topic), expected);
        }

        #[test]
        fn what_was_added_and_taken_away_one_by_one_is_the_set_of_what_is_left(
            steps in vec((any::<bool>(), text()), 0..40)
        ) {
            let mut left = std::collections::BTreeSet::new();
            let mut filters = Filters::new(Vec::new());
            for (added, prefix) in steps {
                if added {
                    prop_assert_eq!(filters.add(&prefix), left.insert(prefix));
                } else {
                    prop_assert_eq!(filters.remove(&prefix), left.remove(&prefix));
                }
            }
            prop_assert!(filters.iter().eq(left.iter().map(Vec::as_slice)));
        }
    }
}
