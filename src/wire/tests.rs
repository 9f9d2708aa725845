//! The wire against WIRE.md: its worked bytes, its table cell by cell, its bounds, and properties over any bytes.

mod admission;
mod properties;
mod records;

use super::*;
use crate::name::{ChannelName, Generation, MeshName, Rid, SecurityId, Weight};

const PAIR: Pair = Pair::new(0xA1).unwrap();

/// A full RouteMesh node with everything a body can hold.
fn mesh_body() -> AdmissionBody {
    let identity = Identity {
        service: Service::RouteMesh {
            mesh: MeshName::new("m").unwrap(),
            role: Role::Client,
            completion: Some("tcp://127.0.0.1:2".parse().unwrap()),
        },
        rid: Rid::new([0xFF, 0]).unwrap(),
        generation: Generation::new(7).unwrap(),
        security: SecurityId::new("s").unwrap(),
        endpoint: Some("tcp://127.0.0.1:1".parse().unwrap()),
    };
    let channels = vec![channel("b", 10_000), channel("a", 0)];
    let extensions = vec![(9, Box::from([0xEE])), (0, Box::from([]))];
    AdmissionBody::new(identity, HostState::Serving, channels, extensions).unwrap()
}

/// A ClientServer client or server without a membership, an endpoint or an extension.
fn client_server_body(service: impl FnOnce(ChannelName, u32) -> Service) -> AdmissionBody {
    let identity = Identity {
        service: service(ChannelName::new("orders").unwrap(), 4096),
        rid: Rid::new("r").unwrap(),
        generation: Generation::new(u64::MAX).unwrap(),
        security: SecurityId::default(),
        endpoint: None,
    };
    AdmissionBody::new(identity, HostState::Preparing, Vec::new(), Vec::new()).unwrap()
}

fn client(channel: ChannelName, max_message: u32) -> Service {
    Service::Client { channel, max_message }
}

fn server(channel: ChannelName, max_message: u32) -> Service {
    Service::Server { channel, max_message }
}

fn channel(name: &str, weight: u32) -> (ChannelName, Weight) {
    (ChannelName::new(name).unwrap(), Weight::new(weight).unwrap())
}

fn emitted(body: &AdmissionBody, announce: Announce, lane: Lane) -> Vec<u8> {
    let mut head = Vec::new();
    body.emit(announce, lane, PAIR, &mut head);
    head
}

fn fault(head: &[u8], parts: usize) -> DecodeError {
    Record::parse(head, parts).expect_err("a record that must not parse")
}
