//! What a node says of itself in hello, admit and update, as its peer reads it; and what may change from one to the next.

use std::cmp::Ordering;

use thiserror::Error;

use super::bytes::{DecodeError, Fault, Reader};
use super::values::{HostState, Lane, Name, Pair, Revision, Role, Sender, Topology};
use crate::name::{Endpoint, Generation, Weight};

/// An admission body: every field checked, nothing copied.
///
/// What WIRE.md ties to the topology holds: a ClientServer admission has the application lane, a role and no completion
/// endpoint; a RouteMesh one has no record limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admission<'a> {
    body: &'a [u8],
    topology: Topology,
    lane: Lane,
    role: Role,
    state: HostState,
    name: Name<'a>,
    rid: &'a [u8],
    generation: Generation,
    revision: Revision,
    pair: Pair,
    security: &'a str,
    endpoint: Option<&'a str>,
    completion: Option<&'a str>,
    max_message: u32,
    channels: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Admission<'a> {
    /// Reads a body that was kept from an earlier record. Positions in errors count from its first byte.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body, 0);
        let admission = Self::read(&mut reader)?;
        reader.end()?;
        Ok(admission)
    }

    /// Reads the body of a record, and leaves `reader` behind it.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.check_length()?;
        let start = reader.at();
        let topology = reader.checked("topology", Reader::u8, Topology::from_number)?;
        let mesh = topology == Topology::RouteMesh;
        Ok(Self {
            topology,
            lane: reader.checked("lane", Reader::u8, |number| {
                Lane::from_number(number).filter(|&lane| mesh || lane == Lane::Application)
            })?,
            role: reader.checked("role", Reader::u8, |number| {
                Role::from_number(number).filter(|&role| mesh || role != Role::None)
            })?,
            state: reader.checked("state", Reader::u8, HostState::from_number)?,
            name: Name::read(reader, "name")?,
            rid: reader.bytes8("rid")?,
            generation: reader.checked("generation", Reader::u64, |number| Generation::new(number).ok())?,
            revision: reader.checked("revision", Reader::u64, Revision::new)?,
            pair: reader.checked("pair", Reader::u64, Pair::new)?,
            security: reader.text8("security")?,
            endpoint: endpoint(reader, "endpoint")?,
            completion: completion(reader, mesh)?,
            max_message: reader
                .checked("max_message", Reader::u32, |bytes| (!mesh || bytes == 0).then_some(bytes))?,
            channels: channels(reader)?,
            extensions: extensions(reader)?,
            body: reader.since(start),
        })
    }

    /// The bytes of the body, to be kept for comparison with the next one.
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    pub(crate) fn topology(&self) -> Topology {
        self.topology
    }

    /// The lane this admission opens, or speaks for.
    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn state(&self) -> HostState {
        self.state
    }

    /// A mesh name in RouteMesh, a channel name in ClientServer.
    pub(crate) fn name(&self) -> Name<'a> {
        self.name
    }

    /// 1 to 255 bytes.
    pub(crate) fn rid(&self) -> &'a [u8] {
        self.rid
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn pair(&self) -> Pair {
        self.pair
    }

    /// 0 to 255 bytes; the empty one claims nothing.
    pub(crate) fn security(&self) -> &'a str {
        self.security
    }

    /// Where the node takes application lanes; dialable, though not always in the canonical spelling.
    pub(crate) fn endpoint(&self) -> Option<&'a str> {
        self.endpoint
    }

    /// Where the node takes completion lanes; never in ClientServer.
    pub(crate) fn completion(&self) -> Option<&'a str> {
        self.completion
    }

    /// The largest complete record a ClientServer node takes, in bytes; 0 is no limit.
    pub(crate) fn max_message(&self) -> u32 {
        self.max_message
    }

    /// The Server memberships, ascending by name.
    pub(crate) fn channels(&self) -> Channels<'a> {
        Channels(Reader::new(self.channels, 0))
    }

    /// The extensions, ascending by id, the unknown ones too.
    pub(crate) fn extensions(&self) -> Extensions<'a> {
        Extensions(Reader::new(self.extensions, 0))
    }

    /// An Object Client that serves nothing: two such nodes need no connection (000 §3).
    pub(crate) fn is_bare_client(&self) -> bool {
        self.role == Role::Client && self.channels.is_empty()
    }

    /// Whether this is an admission for such a lane from such a sender. Where a hello's is not, the answer is
    /// `reject 2`.
    pub(crate) fn fits(&self, topology: Topology, lane: Lane, sender: Sender) -> bool {
        let role_fits = match (topology, sender) {
            (Topology::RouteMesh, _) => true,
            (Topology::ClientServer, Sender::Dialler) => self.role == Role::Client,
            (Topology::ClientServer, Sender::Acceptor) => self.role == Role::Server,
        };
        self.topology == topology && self.lane == lane && role_fits
    }

    /// How this admission's revision stands to that of an `earlier` one of the same lifecycle generation, which may
    /// have come on another lane or in another attempt: lane and pair are the connection's and not compared.
    pub(crate) fn revision_order(&self, earlier: &Admission<'_>) -> RevisionOrder {
        match self.revision.cmp(&earlier.revision) {
            Ordering::Less => RevisionOrder::Older,
            Ordering::Greater => RevisionOrder::Newer,
            Ordering::Equal if self.says_the_same(earlier) => RevisionOrder::Same,
            Ordering::Equal => RevisionOrder::Conflicting,
        }
    }

    /// What this admission, as an update, does to the `earlier` one of the same connection, or why it may not. Only
    /// state, channel weights and extensions may differ, and the lane it came on.
    pub(crate) fn updates(&self, earlier: &Admission<'_>) -> Result<AdmissionChange, UpdateFault> {
        if let Some(what) = self.other_identity(earlier) {
            return Err(UpdateFault::Identity { what });
        }
        if self.pair != earlier.pair {
            return Err(UpdateFault::Identity { what: "pair" });
        }
        if !self.channels().map(|(name, _)| name).eq(earlier.channels().map(|(name, _)| name)) {
            return Err(UpdateFault::Identity { what: "channels" });
        }
        match self.revision_order(earlier) {
            RevisionOrder::Same => Ok(AdmissionChange::Repeated),
            RevisionOrder::Newer => Ok(AdmissionChange::Newer),
            RevisionOrder::Older => Err(UpdateFault::Older { revision: self.revision.get() }),
            RevisionOrder::Conflicting => Err(UpdateFault::Conflicting { revision: self.revision.get() }),
        }
    }

    /// The first field of the node's identity that differs.
    fn other_identity(&self, other: &Admission<'_>) -> Option<&'static str> {
        let same = [
            ("topology", self.topology == other.topology),
            ("role", self.role == other.role),
            ("name", self.name == other.name),
            ("rid", self.rid == other.rid),
            ("generation", self.generation == other.generation),
            ("security", self.security == other.security),
            ("endpoint", self.endpoint == other.endpoint),
            ("completion", self.completion == other.completion),
            ("max_message", self.max_message == other.max_message),
        ];
        same.into_iter().find_map(|(what, same)| (!same).then_some(what))
    }

    /// Whether the bodies have the same bytes but for lane, revision and pair: each field has one encoding only.
    fn says_the_same(&self, other: &Admission<'_>) -> bool {
        self.other_identity(other).is_none()
            && self.state == other.state
            && self.channels == other.channels
            && self.extensions == other.extensions
    }
}

/// How the revision of an admission stands to that of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionOrder {
    /// The same revision with the same bytes: nothing to do.
    Same,
    /// A higher one.
    Newer,
    /// A lower one: a hello that carries it is answered with reject 7, an update is a protocol error.
    Older,
    /// The same revision with other bytes: a protocol error.
    Conflicting,
}

/// What an update changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionChange {
    /// Nothing: the same revision, said again.
    Repeated,
    /// State, weights or extensions, as the new admission gives them.
    Newer,
}

/// Why an update is a protocol error. The earlier admission stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum UpdateFault {
    /// It changes what only another lifecycle generation may change.
    #[error("an update cannot change {what}")]
    Identity {
        /// Which field.
        what: &'static str,
    },
    /// Its revision is below the last one.
    #[error("revision {revision} was overtaken before")]
    Older {
        /// The update's revision.
        revision: u64,
    },
    /// Its revision is the last one and its content is not.
    #[error("revision {revision} said something else before")]
    Conflicting {
        /// The update's revision.
        revision: u64,
    },
}

/// The Server memberships of an admission; reads them from bytes that were checked.
#[derive(Debug, Clone)]
pub(crate) struct Channels<'a>(Reader<'a>);

impl<'a> Iterator for Channels<'a> {
    type Item = (Name<'a>, Weight);

    fn next(&mut self) -> Option<Self::Item> {
        membership(&mut self.0).ok()
    }
}

/// The extensions of an admission; reads them from bytes that were checked.
#[derive(Debug, Clone)]
pub(crate) struct Extensions<'a>(Reader<'a>);

impl<'a> Iterator for Extensions<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        extension(&mut self.0).ok()
    }
}

fn endpoint<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<Option<&'a str>, DecodeError> {
    let text = reader.text16(what)?;
    if text.is_empty() {
        return Ok(None);
    }
    let at = reader.at() - text.len();
    Endpoint::check(text).map_err(|error| Fault::Endpoint { what, error }.at(at))?;
    Ok(Some(text))
}

fn completion<'a>(reader: &mut Reader<'a>, mesh: bool) -> Result<Option<&'a str>, DecodeError> {
    let what = "completion";
    let at = reader.at();
    match endpoint(reader, what)? {
        Some(_) if !mesh => Err(Fault::NotEmpty { what }.at(at)),
        completion => Ok(completion),
    }
}

fn membership<'a>(reader: &mut Reader<'a>) -> Result<(Name<'a>, Weight), DecodeError> {
    let name = Name::read(reader, "channel")?;
    let weight = reader.checked("weight", Reader::u16, |weight| Weight::new(weight.into()).ok())?;
    Ok((name, weight))
}

/// Checks the list of memberships and gives its bytes, without the count.
fn channels<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let count = reader.u16("channels")?;
    let start = reader.at();
    let mut last = None;
    for _ in 0..count {
        let at = reader.at();
        let name = Some(membership(reader)?.0);
        if name <= last {
            return Err(Fault::Order { what: "channel" }.at(at));
        }
        last = name;
    }
    Ok(reader.since(start))
}

fn extension<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), DecodeError> {
    let id = reader.u8("extension id")?;
    let length = reader.u32("extension length")?;
    Ok((id, reader.take("extension", length as usize)?))
}

/// Checks the list of extensions and gives its bytes, without the total length.
fn extensions<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let total = reader.u32("extensions")?;
    let start = reader.at();
    let mut items = reader.part("extensions", total as usize)?;
    let mut last = None;
    while !items.is_at_end() {
        let at = items.at();
        let id = Some(extension(&mut items)?.0);
        if id <= last {
            return Err(Fault::Order { what: "extension id" }.at(at));
        }
        last = id;
    }
    Ok(reader.since(start))
}
