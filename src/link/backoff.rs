//! How long to wait before the next attempt, so that a lost peer is found soon and a crowd that lost one peer at the same
//! moment does not come back as one (CASES 43). It bounds our own waiting and says nothing about the peer.

use std::time::Duration;

/// The base of the first wait: 100 ms.
pub(crate) const RETRY_FLOOR: Duration = Duration::from_millis(100);
/// The base of every wait once the doubling has come this far: 5 s.
pub(crate) const RETRY_CEILING: Duration = Duration::from_secs(5);
/// Every wait is shorter than this: the highest base and its whole window, 12.5 s.
#[cfg(test)]
pub(crate) const RETRY_WAIT_MAX: Duration = RETRY_CEILING.saturating_add(window(RETRY_CEILING));

const _: () = {
    assert!(!RETRY_FLOOR.is_zero());
    assert!(RETRY_FLOOR.as_nanos() < RETRY_CEILING.as_nanos());
    // A fifth of a crowd in one second is what a window of 5 s gives on average; chance needs room below it.
    assert!(window(RETRY_CEILING).as_millis() >= 7_500);
};

/// How much a wait may be longer than its base.
const fn window(base: Duration) -> Duration {
    Duration::from_nanos(base.as_nanos() as u64 / 2 * 3)
}

/// The waits of one retrying connection.
///
/// A wait is its base and an even random part of one and a half more: 100 to 250 ms, then 200 to 500 ms, and in the end 5
/// to 12.5 s. So even a crowd in step makes no more than 13 % of its attempts in any second of that last window. The
/// price is the longest wait; but if all waits ended within 5 s, some second would see a fifth of the crowd or more,
/// however they were drawn.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    base: Duration,
    draws: Draws,
}

/// A seeded sequence of numbers, SplitMix64: small, fast, and good from any seed.
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    state: u64,
}

impl Draws {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Backoff {
    /// Starts at the floor. Connections that may lose the same peer want different seeds, however near each other.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { base: RETRY_FLOOR, draws: Draws::new(seed) }
    }

    /// How long to wait before the next attempt; the base then doubles, up to the ceiling.
    pub(crate) fn next(&mut self) -> Duration {
        let base = self.base;
        self.base = (base * 2).min(RETRY_CEILING);
        base + part(window(base), self.draws.next())
    }

    /// Back to the floor: an attempt came through.
    pub(crate) fn reset(&mut self) {
        self.base = RETRY_FLOOR;
    }
}

/// The part of `span` that `drawn` is of 2^64; always less than the whole.
fn part(span: Duration, drawn: u64) -> Duration {
    Duration::from_nanos(((span.as_nanos() * u128::from(drawn)) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENTS: usize = 500;

    #[test]
    fn the_base_doubles_from_the_floor_to_the_ceiling_and_each_wait_adds_a_part_of_its_window() {
        for seed in 0..1_000 {
            let mut backoff = Backoff::new(seed);
            for _ in 0..2 {
                for base in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000].map(Duration::from_millis)
                {
                    let wait = backoff.next();
                    assert!(base <= wait && wait < base + window(base), "{wait:?} for {base:?}");
                    assert!(wait < RETRY_WAIT_MAX);
                }
                backoff.reset();
            }
        }
    }

    #[test]
    fn the_same_seed_waits_the_same() {
        let [mut one, mut other, mut different] = [7, 7, 8].map(Backoff::new);
        let waits: Vec<Duration> = (0..20).map(|_| one.next()).collect();
        assert!(waits.iter().all(|wait| *wait == other.next()));
        assert!(waits.iter().any(|wait| *wait != different.next()));
    }

    #[test]
    fn the_jitter_is_even_over_its_window() {
        let mut tenths = [0; 10];
        for seed in 0..10_000 {
            let jitter = Backoff::new(seed).next() - RETRY_FLOOR;
            tenths[(jitter.as_nanos() * 10 / window(RETRY_FLOOR).as_nanos()) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
    }

    /// When each client tries again after all lost the server at zero, up to `until`.
    fn attempts(first_seed: u64, until: Duration) -> Vec<Vec<Duration>> {
        let client = |seed| {
            let mut backoff = Backoff::new(seed);
            let next = |at: &Duration| Some(*at + backoff.next());
            std::iter::successors(Some(Duration::ZERO), next).skip(1).take_while(|at| *at < until).collect()
        };
        (first_seed..first_seed + CLIENTS as u64).map(client).collect()
    }

    /// The most of these moments that fall into one second, whichever second that is.
    fn crowd(mut moments: Vec<Duration>) -> usize {
        moments.sort_unstable();
        let within = |first: &Duration| moments.partition_point(|at| *at < *first + Duration::from_secs(1));
        moments.iter().enumerate().map(|(before, first)| within(first) - before).max().unwrap_or(0)
    }

    /// CASES 43. A window shorter than 5 s cannot spread a crowd so thin: the rule holds once all have come to the ceiling,
    /// which takes them 6.3 to 15.75 s.
    #[test]
    fn no_second_sees_a_fifth_of_500_clients_once_the_window_allows_it() {
        let allowed = Duration::from_secs(15);
        for first_seed in (0..20).map(|trial| trial * 1_000_003) {
            let all = attempts(first_seed, Duration::from_secs(120));
            let late = all.iter().flatten().copied().filter(|at| *at >= allowed).collect();
            let crowd = crowd(late);
            assert!(crowd <= CLIENTS / 5, "{crowd} of {CLIENTS} tried in one second");
        }
    }

    /// CASES 43: whenever the server comes back, everyone tries soon enough to be ready in 30 s.
    #[test]
    fn every_client_tries_within_the_longest_wait_of_the_servers_return() {
        let all = attempts(1, Duration::from_secs(60));
        for back in (0..40).map(Duration::from_secs) {
            let tries = |at: &Duration| *at >= back && *at < back + RETRY_WAIT_MAX;
            assert!(all.iter().all(|client| client.iter().any(tries)), "back after {back:?}");
        }
    }
}
