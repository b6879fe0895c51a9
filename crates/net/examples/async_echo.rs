//! An echo server in a tokio task, which counts messages.
//!
//!     cargo run -p estafette-net --features tokio --example async_echo -- tcp+msg://127.0.0.1:4000

use std::error::Error;
use std::time::Duration;

use estafette_net::{AsyncNode, Event, Node};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(url) = std::env::args().nth(1) else { return Err("usage: async_echo URL".into()) };
    let mut node = AsyncNode::new(Node::<()>::new()?)?;
    let handle = node.handle();
    let listener = handle.listen(url)?;
    if let Some(address) = handle.local_address(listener) {
        println!("listening at {address}");
    }
    let mut every = tokio::time::interval(Duration::from_secs(10));
    let mut count = 0_u64;
    loop {
        tokio::select! {
            // `next` is cancel safe: no event is lost if the other branch wins.
            event = node.next() => match event? {
                Some(Event::Message(from, message)) => {
                    count += 1;
                    let outcome = handle.send(from, &message);
                    if !outcome.is_accepted() {
                        eprintln!("not sent back: {outcome:?}");
                    }
                }
                Some(Event::Closed { reason, .. }) => eprintln!("{reason}"),
                Some(_) => {}
                None => return Ok(()),
            },
            _ = every.tick() => println!("{count} messages"),
        }
    }
}
