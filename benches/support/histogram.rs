//! Times in buckets of 3 %, so that millions of them take no memory, with the exact maximum.

use std::time::Duration;

/// Buckets for each power of two.
const FINE: u32 = 32;
const FINE_BITS: u32 = FINE.trailing_zeros();

#[derive(Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; (64 * FINE) as usize], count: 0, max: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, time: Duration) {
        let nanos = time.as_nanos() as u64;
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that this share of all times does not exceed.
    pub fn at(&self, share: f64) -> Duration {
        let mut seen = 0;
        for (number, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if count > 0 && seen as f64 >= self.count as f64 * share {
                return Duration::from_nanos(upper(number as u32).min(self.max));
            }
        }
        self.max()
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The shares' times and the maximum, in milliseconds.
    pub fn text(&self, shares: &[f64]) -> String {
        if self.count == 0 {
            return "none".into();
        }
        let times = shares.iter().map(|&share| self.at(share)).chain([self.max()]);
        let texts: Vec<String> = times.map(|time| millis(time.as_secs_f64() * 1e3)).collect();
        texts.join(" / ")
    }
}

/// Three digits that matter.
fn millis(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(FINE) {
        return nanos as usize;
    }
    let power = nanos.ilog2();
    let fine = (nanos >> (power - FINE_BITS)) as u32 & (FINE - 1);
    ((power - FINE_BITS + 1) * FINE + fine) as usize
}

/// The largest time of a bucket.
fn upper(bucket: u32) -> u64 {
    if bucket < FINE {
        return bucket.into();
    }
    let shift = bucket / FINE - 1;
    ((u64::from(FINE + bucket % FINE) + 1) << shift) - 1
}
