//! Who publishes: what a subscriber can say of a publisher without ever having spoken to it.

use crate::name::{ChannelName, Endpoint, Generation, Rid};

/// A publisher as its subscriber knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub(crate) channel: ChannelName,
    pub(crate) endpoint: Endpoint,
    pub(crate) rid: Option<Rid>,
    pub(crate) generation: Option<Generation>,
}

impl Source {
    /// The channel it publishes on.
    pub fn channel(&self) -> &ChannelName {
        &self.channel
    }

    /// Where it publishes.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its routing id, if it came from a descriptor.
    pub fn rid(&self) -> Option<&Rid> {
        self.rid.as_ref()
    }

    /// Its lifecycle generation, if it came from a descriptor.
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }
}
