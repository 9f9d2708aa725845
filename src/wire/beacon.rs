//! Classic fanout: the reserved topic, the liveness beacon, and what each record is (000 §4).

/// The one topic an application cannot use. A longer topic that begins with it is an application's.
pub(crate) const RESERVED_TOPIC: [u8; 5] = [0x01, 0x5A, 0x4C, 0x46, 0x31];
/// The one payload frame of a beacon.
pub(crate) const BEACON_PAYLOAD: [u8; 4] = [0x5A, 0x46, 0x01, 0x01];

/// What a record on a subscriber's socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FanoutRecord {
    /// The publisher says that it is there.
    Beacon,
    /// An application's record, subscribed to or not: the publisher is there.
    Application,
    /// The reserved topic with anything but a beacon behind it: a protocol error of this publisher.
    Malformed,
}

/// Tells what a record is by its topic frame, the count of all its frames, and the frame after the topic.
#[inline]
pub(crate) fn classify(topic: &[u8], frames: usize, second: Option<&[u8]>) -> FanoutRecord {
    if topic != RESERVED_TOPIC {
        FanoutRecord::Application
    } else if frames == 2 && second == Some(&BEACON_PAYLOAD) {
        FanoutRecord::Beacon
    } else {
        FanoutRecord::Malformed
    }
}
