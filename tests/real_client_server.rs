//! ClientServer over real loopback sockets.
mod support;
use support::*;
use wakeful::*;

#[test]
fn smoke() {
    let (mut server, mut client) = pair();
    client.send("hello");
    server.inbox.echo = true;
    let request = client.engine.outbox().request(&channel(), &[b"a", b"b"], s(5)).unwrap();
    let mut replied = Vec::new();
    until(&mut [&mut server, &mut client], "a reply", |nodes| {
        replied.extend(nodes[1].events());
        !replied.is_empty()
    });
    assert_eq!(replied, vec![Owned::Replied { request, parts: vec![b"a".to_vec(), b"b".to_vec()] }]);
    println!("{:?}", server.events());
    client.pass(s(1));
    println!("{:#?}", client.engine.snapshot());
}
