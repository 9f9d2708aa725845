//! ZeroMQ contexts, opened on demand. It counts lanes; it never knows what they are for.

/// How many lanes one context carries. A lane takes three of its 1,023 sockets (its own, its monitor and the monitor's
/// reader); the rest is left for closed ones that ZeroMQ has not cleared away yet.
const LANES_MAX: usize = 300;

const _: () = assert!(3 * LANES_MAX < 1023);

/// The contexts of one engine. Each runs one I/O thread and one reaper thread of ZeroMQ's own, and stays once opened:
/// ending one waits for its threads, which no turn may do.
#[derive(Default)]
pub(super) struct Contexts(Vec<Shared>);

struct Shared {
    context: zmq::Context,
    lanes: usize,
}

impl Contexts {
    /// The first context with room for another lane, and its number. The lane counts once it is `taken`.
    pub(super) fn with_room(&mut self) -> (usize, &zmq::Context) {
        let number = self.0.iter().position(|shared| shared.lanes < LANES_MAX).unwrap_or(self.0.len());
        if number == self.0.len() {
            self.0.push(Shared { context: zmq::Context::new(), lanes: 0 });
        }
        (number, &self.0[number].context)
    }

    /// Counts a lane in.
    pub(super) fn take(&mut self, number: usize) {
        self.0[number].lanes += 1;
    }

    /// Counts a lane out.
    pub(super) fn give_back(&mut self, number: usize) {
        self.0[number].lanes -= 1;
    }

    /// How many contexts were opened.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
