//! Names, numbers and endpoints that come from outside, checked once and trusted from then on.
//!
//! A value of one of these types is legal on the wire and in a ZeroMQ call by construction, so no inner room checks it
//! again. This room knows no socket and no connection.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::str::FromStr;

use thiserror::Error;

/// The longest name, RID or security identity, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The heaviest weight a Server membership can carry.
pub const WEIGHT_MAX: u16 = 10_000;
/// The longest `ipc://` path, in bytes: what the smallest `sun_path` of the supported platforms holds.
pub const IPC_PATH_BYTES_MAX: usize = 103;

/// What is wrong with a name or a number. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// A name that must say something is empty.
    #[error("{what} is empty; it takes 1 to {NAME_BYTES_MAX} bytes")]
    Empty {
        /// Which kind of name.
        what: &'static str,
    },
    /// A name is longer than the wire can carry.
    #[error("{what} has {bytes} bytes; at most {NAME_BYTES_MAX} fit")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// How long it was.
        bytes: usize,
    },
    /// A text name has a NUL byte.
    #[error("{what} has a NUL byte at {at}")]
    Nul {
        /// Which kind of name.
        what: &'static str,
        /// Where the first NUL stands.
        at: usize,
    },
    /// A number that must not be zero is zero.
    #[error("{what} is zero; any other value will do")]
    Zero {
        /// Which number.
        what: &'static str,
    },
    /// A weight above [`WEIGHT_MAX`].
    #[error("weight {weight} is above {WEIGHT_MAX}")]
    WeightTooHigh {
        /// The weight that was asked for.
        weight: u32,
    },
}

/// What is wrong with an endpoint. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Neither `tcp://` nor `ipc://`.
    #[error("an endpoint begins with tcp:// or ipc://")]
    Scheme,
    /// The host is not a literal IP address, or the port is missing or no number.
    #[error(
        "tcp:// takes a literal IP address and a port, as in tcp://127.0.0.1:5555 or tcp://[::1]:5555; resolve a host name first"
    )]
    NotLiteral,
    /// A wildcard host or port where a peer would have to dial it.
    #[error("a wildcard host or port can be bound, not dialled or advertised")]
    Wildcard,
    /// The `ipc://` path is empty.
    #[error("ipc:// takes a path")]
    NoPath,
    /// The `ipc://` path is too long.
    #[error("the ipc:// path has {bytes} bytes; at most {IPC_PATH_BYTES_MAX} fit a socket address")]
    PathTooLong {
        /// How long it was.
        bytes: usize,
    },
    /// The endpoint has a NUL byte.
    #[error("the endpoint has a NUL byte at {at}")]
    Nul {
        /// Where the first NUL stands.
        at: usize,
    },
}

/// Checks a text name's length and that it has no NUL.
fn check_text(what: &'static str, text: &str) -> Result<(), NameError> {
    check_length(what, text.len())?;
    match text.bytes().position(|byte| byte == 0) {
        Some(at) => Err(NameError::Nul { what, at }),
        None => Ok(()),
    }
}

fn check_length(what: &'static str, bytes: usize) -> Result<(), NameError> {
    match bytes {
        0 => Err(NameError::Empty { what }),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(NameError::TooLong { what, bytes }),
    }
}

/// A text name of 1 to 255 bytes without NUL: the shape that channel and mesh names share.
macro_rules! text_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes a name of 1 to 255 bytes of UTF-8 without NUL.
            pub fn new(name: &str) -> Result<Self, NameError> {
                check_text($what, name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_name! {
    /// The registration name that identifies one channel: 1 to 255 bytes of UTF-8 without NUL (000 §1).
    ///
    /// ```
    /// use wakeful::ChannelName;
    /// assert_eq!(ChannelName::new("orders")?.as_str(), "orders");
    /// assert!(ChannelName::new("").is_err());
    /// # Ok::<(), wakeful::NameError>(())
    /// ```
    ChannelName, "channel name"
}
text_name! {
    /// The registration name that identifies one RouteMesh: 1 to 255 bytes of UTF-8 without NUL (000 §1).
    MeshName, "mesh name"
}

/// One registered topology by its name: what a peer is connected by (000 §1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopologyName {
    /// A RouteMesh.
    RouteMesh(MeshName),
    /// A ClientServer channel.
    ClientServer(ChannelName),
    /// A Classic fanout channel.
    Fanout(ChannelName),
}

impl TopologyName {
    /// The mesh's or the channel's name as text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::RouteMesh(mesh) => mesh.as_str(),
            Self::ClientServer(channel) | Self::Fanout(channel) => channel.as_str(),
        }
    }
}

impl fmt::Display for TopologyName {
    /// As in `RouteMesh lobby`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::RouteMesh(_) => "RouteMesh",
            Self::ClientServer(_) => "ClientServer",
            Self::Fanout(_) => "Fanout",
        };
        write!(f, "{kind} {}", self.as_str())
    }
}

/// A node's routing id: 1 to 255 bytes, any value. It names a peer on the wire; it is not a ZeroMQ routing id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid(Box<[u8]>);

impl Rid {
    /// Takes 1 to 255 bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let bytes = bytes.as_ref();
        check_length("RID", bytes.len())?;
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Rid {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rid({self})")
    }
}

impl FromStr for Rid {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// A security identity: 0 to 255 bytes of UTF-8 without NUL. The empty one claims nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecurityId(Box<str>);

impl SecurityId {
    /// Takes 0 to 255 bytes of UTF-8 without NUL.
    pub fn new(identity: &str) -> Result<Self, NameError> {
        if !identity.is_empty() {
            check_text("security identity", identity)?;
        }
        Ok(Self(identity.into()))
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A non-zero number that is told apart only by its value.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            pub(crate) const FIRST: Self = Self(NonZeroU64::MIN);

            /// Takes any value but zero.
            pub const fn new(value: u64) -> Result<Self, NameError> {
                match NonZeroU64::new(value) {
                    Some(value) => Ok(Self(value)),
                    None => Err(NameError::Zero { what: $what }),
                }
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

token! {
    /// A lifecycle generation: which run of a process this is (000 §5). An opaque token, equal or not: it has no order,
    /// so that no code can compare generations by size (000 §6).
    ///
    /// ```
    /// use wakeful::Generation;
    /// assert_eq!(Generation::new(7)?.get(), 7);
    /// assert!(Generation::new(0).is_err());
    /// # Ok::<(), wakeful::NameError>(())
    /// ```
    Generation, "lifecycle generation"
}

/// The weight of a Server membership, 0 to 10,000. Weight 0 leaves selection and keeps the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// Takes 0 to [`WEIGHT_MAX`].
    pub const fn new(weight: u32) -> Result<Self, NameError> {
        if weight <= WEIGHT_MAX as u32 {
            Ok(Self(weight as u16))
        } else {
            Err(NameError::WeightTooHigh { weight })
        }
    }

    /// The weight.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Where a peer listens: `tcp://` with a literal IP address and a port, or `ipc://` with a path. Always dialable, never a
/// wildcard, and never a host name: ZeroMQ would resolve it on the thread that carries everyone's traffic.
///
/// ```
/// use wakeful::Endpoint;
/// let endpoint: Endpoint = "tcp://127.0.0.1:5555".parse()?;
/// assert_eq!(endpoint.as_str(), "tcp://127.0.0.1:5555");
/// assert!("tcp://example.org:5555".parse::<Endpoint>().is_err());
/// assert!("tcp://0.0.0.0:5555".parse::<Endpoint>().is_err());
/// # Ok::<(), wakeful::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(Box<str>);

/// Where to listen: as an [`Endpoint`], and also with a wildcard: host `*`, `0.0.0.0` or `[::]`, port `*` or 0, path `*`.
/// To dial what was bound: `Endpoint::try_from(&bound)`.
///
/// ```
/// use wakeful::BindEndpoint;
/// assert!("tcp://127.0.0.1:0".parse::<BindEndpoint>()?.is_wildcard());
/// assert!(!"ipc:///tmp/orders".parse::<BindEndpoint>()?.is_wildcard());
/// # Ok::<(), wakeful::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindEndpoint {
    text: Box<str>,
    wildcard: bool,
}

impl Endpoint {
    /// Checks a text as parsing does, but builds nothing: for bytes of a peer.
    pub(crate) fn check(text: &str) -> Result<(), EndpointError> {
        if let Some(at) = text.find('\0') {
            return Err(EndpointError::Nul { at });
        }
        if let Some(path) = text.strip_prefix("ipc://") {
            return match path.len() {
                0 => Err(EndpointError::NoPath),
                1..=IPC_PATH_BYTES_MAX if path == "*" => Err(EndpointError::Wildcard),
                1..=IPC_PATH_BYTES_MAX => Ok(()),
                bytes => Err(EndpointError::PathTooLong { bytes }),
            };
        }
        let address = text.strip_prefix("tcp://").ok_or(EndpointError::Scheme)?;
        match address.parse::<SocketAddr>() {
            Ok(address) if is_wildcard(address) => Err(EndpointError::Wildcard),
            Ok(_) => Ok(()),
            Err(_) if address.contains('*') => Err(EndpointError::Wildcard),
            Err(_) => Err(EndpointError::NotLiteral),
        }
    }

    /// The endpoint as ZeroMQ takes it, in one canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the address is IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.0.starts_with("tcp://[")
    }
}

impl BindEndpoint {
    /// The endpoint as ZeroMQ takes it, in one canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether host, port or path is left open, so that nobody could dial this text.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Whether the address is IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.text.starts_with("tcp://[")
    }

    /// Whether the host is left open, which no bind fills in.
    pub(crate) fn has_open_host(&self) -> bool {
        let address = self.text.strip_prefix("tcp://").and_then(|address| address.parse::<SocketAddr>().ok());
        address.is_some_and(|address| address.ip().to_canonical().is_unspecified())
    }
}

impl FromStr for BindEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            return Err(EndpointError::Nul { at });
        }
        if let Some(path) = text.strip_prefix("ipc://") {
            return match path.len() {
                0 => Err(EndpointError::NoPath),
                1..=IPC_PATH_BYTES_MAX => Ok(Self { text: text.into(), wildcard: path == "*" }),
                bytes => Err(EndpointError::PathTooLong { bytes }),
            };
        }
        let address = parse_tcp(text.strip_prefix("tcp://").ok_or(EndpointError::Scheme)?)?;
        Ok(Self { text: format!("tcp://{address}").into(), wildcard: is_wildcard(address) })
    }
}

/// Whether the host or the port is left open; `::ffff:0.0.0.0` is `0.0.0.0` to the kernel.
fn is_wildcard(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_unspecified() || address.port() == 0
}

/// Reads `host:port`, where either may be `*`.
fn parse_tcp(address: &str) -> Result<SocketAddr, EndpointError> {
    let (host, port) = address.rsplit_once(':').ok_or(EndpointError::NotLiteral)?;
    let host = if host == "*" { "0.0.0.0" } else { host };
    let port = if port == "*" { "0" } else { port };
    format!("{host}:{port}").parse().map_err(|_| EndpointError::NotLiteral)
}

impl TryFrom<&BindEndpoint> for Endpoint {
    type Error = EndpointError;

    fn try_from(bound: &BindEndpoint) -> Result<Self, EndpointError> {
        if bound.wildcard { Err(EndpointError::Wildcard) } else { Ok(Self(bound.text.clone())) }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::try_from(&text.parse::<BindEndpoint>()?)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BindEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_1_to_255_bytes_without_nul() {
        assert_eq!(ChannelName::new(""), Err(NameError::Empty { what: "channel name" }));
        assert_eq!(ChannelName::new("a\0b"), Err(NameError::Nul { what: "channel name", at: 1 }));
        assert!(MeshName::new(&"m".repeat(255)).is_ok());
        assert_eq!(
            MeshName::new(&"m".repeat(256)),
            Err(NameError::TooLong { what: "mesh name", bytes: 256 })
        );
    }

    #[test]
    fn a_rid_is_any_1_to_255_bytes() {
        assert_eq!(Rid::new([]), Err(NameError::Empty { what: "RID" }));
        assert!(Rid::new([0; 255]).is_ok());
        assert_eq!(Rid::new([0; 256]), Err(NameError::TooLong { what: "RID", bytes: 256 }));
        assert_eq!(Rid::new([b'a', 0xFF]).unwrap().to_string(), "a\\xff");
    }

    #[test]
    fn a_security_identity_may_be_empty() {
        assert_eq!(SecurityId::new("").unwrap(), SecurityId::default());
        assert!(SecurityId::new("a\0").is_err());
    }

    #[test]
    fn zero_is_no_generation_and_10_001_no_weight() {
        assert_eq!(Generation::new(0), Err(NameError::Zero { what: "lifecycle generation" }));
        assert_eq!(Weight::new(10_000).unwrap().get(), 10_000);
        assert_eq!(Weight::new(10_001), Err(NameError::WeightTooHigh { weight: 10_001 }));
    }

    #[test]
    fn an_endpoint_is_a_literal_address_or_a_path() {
        for (text, canonical) in [
            ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
            ("tcp://[0:0::1]:5555", "tcp://[::1]:5555"),
            ("ipc:///tmp/a", "ipc:///tmp/a"),
            ("ipc://@abstract", "ipc://@abstract"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().as_str(), canonical, "{text}");
            assert_eq!(Endpoint::check(text), Ok(()), "{text}");
        }
        for (text, error) in [
            ("", EndpointError::Scheme),
            ("udp://127.0.0.1:1", EndpointError::Scheme),
            ("inproc://a", EndpointError::Scheme),
            ("tcp://", EndpointError::NotLiteral),
            ("tcp://localhost:1", EndpointError::NotLiteral),
            ("tcp://127.0.0.1", EndpointError::NotLiteral),
            ("tcp://127.0.0.1:65536", EndpointError::NotLiteral),
            ("tcp://127.0.0.1:1;127.0.0.1:2", EndpointError::NotLiteral),
            ("tcp://::1:5555", EndpointError::NotLiteral),
            ("tcp://*:1", EndpointError::Wildcard),
            ("tcp://0.0.0.0:1", EndpointError::Wildcard),
            ("tcp://[::]:1", EndpointError::Wildcard),
            ("tcp://[::ffff:0.0.0.0]:1", EndpointError::Wildcard),
            ("tcp://127.0.0.1:0", EndpointError::Wildcard),
            ("tcp://127.0.0.1:*", EndpointError::Wildcard),
            ("ipc://*", EndpointError::Wildcard),
            ("ipc://", EndpointError::NoPath),
            ("ipc:///a\0", EndpointError::Nul { at: 8 }),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
            assert_eq!(Endpoint::check(text), Err(error), "{text}");
        }
        let long = format!("ipc://{}", "p".repeat(104));
        assert_eq!(long.parse::<Endpoint>(), Err(EndpointError::PathTooLong { bytes: 104 }));
        assert_eq!(Endpoint::check(&long), Err(EndpointError::PathTooLong { bytes: 104 }));
    }

    #[test]
    fn a_wildcard_may_be_bound() {
        for (text, canonical) in
            [("tcp://*:5555", "tcp://0.0.0.0:5555"), ("tcp://[::]:*", "tcp://[::]:0"), ("ipc://*", "ipc://*")]
        {
            let bound: BindEndpoint = text.parse().unwrap();
            assert!(bound.is_wildcard());
            assert_eq!(bound.as_str(), canonical);
        }
        assert!("tcp://[::1]:5555".parse::<BindEndpoint>().unwrap().is_ipv6());
    }
}
