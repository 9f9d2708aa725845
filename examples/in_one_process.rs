//! The whole job in one process, over TCP: a server, a client, one message, one request and its reply.
//!
//! `cargo run --example in_one_process`

use std::error::Error;
use std::time::Duration;

use wakeful::{ChannelName, Client, Config, Endpoint, Engine, Event, Inbox, Outbox, Owned, Rid, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let orders = ChannelName::new("orders")?;

    // The server listens on a port that the system chooses, prints what comes, and answers requests.
    let mut server = Engine::new(Config::default())?;
    let listening =
        server.serve(Server::new(orders.clone(), Rid::new("gateway")?, "tcp://127.0.0.1:0".parse()?))?;
    let mut gateway = |event: Event<'_>, outbox: &mut Outbox<'_>| match event {
        Event::Ready { peer } => println!("gateway: {} is ready", peer.rid()),
        Event::Message { peer, parts, .. } => println!("gateway: {} says {}", peer.rid(), text(parts)),
        Event::Request { peer, parts, token, .. } => {
            println!("gateway: {} asks {}", peer.rid(), text(parts));
            outbox.reply(token, &[b"101.25"]).expect("it has just asked, so there is a way back");
        }
        _ => {}
    };

    // The client collects its events, and reads them between its turns.
    let mut client = Engine::new(Config::default())?;
    client
        .connect(Client::new(orders.clone(), Rid::new("trader")?).server(Endpoint::try_from(&listening)?))?;
    let mut inbox = Inbox::default();

    // One loop drives both. A real host has one engine, and this is where its own work goes too.
    loop {
        server.turn(&mut gateway);
        client.wait(Some(Duration::from_millis(1)));
        client.turn(&mut inbox);
        match inbox.next() {
            Some(Owned::Ready { peer }) => {
                println!("trader:  {} is ready", peer.rid());
                client.outbox().send(&orders, &[b"hello"])?;
                client.outbox().request(&orders, &[b"price of", b"XYZ"], Duration::from_secs(2))?;
            }
            Some(Owned::Replied { parts, .. }) => {
                println!("trader:  the answer is {}", String::from_utf8_lossy(&parts.concat()));
                return Ok(());
            }
            Some(Owned::Failed { failure, .. }) => return Err(format!("no connection: {failure}").into()),
            _ => {}
        }
    }
}

/// The parts of a record as one line.
fn text<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    String::from_utf8_lossy(&parts.into_iter().collect::<Vec<_>>().join(&b' ')).into_owned()
}
