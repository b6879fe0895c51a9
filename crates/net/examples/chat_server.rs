//! A chat server with WebSocket routes and authentication, and a page that talks to it.
//!
//!     cargo run -p estafette-net --example chat_server
//!
//! It prints the address of the page. There are two guests, with the tokens `apple` and `pear`.
//! Each path `/rooms/NAME` is a room. The end of the standard input (Ctrl-D) shuts the server down
//! in order.
//!
//! A request is answered before there is a WebSocket: with 404 for another path, 403 for a page of
//! another site, 401 without a known token. A browser's script cannot set headers, so the token may
//! come as a header, as a cookie, or as the name of a subprotocol.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use estafette_net::{
    Endpoint, EndpointMap, Event, Handle, Kind, Limits, Node, Options, Outcome, UpgradeRequest, UpgradeResponse,
};

/// Who may come in: token and name. A real server compares hashes of tokens from a data base.
const GUESTS: [(&str, &str); 2] = [("apple", "Zoe"), ("pear", "Max")];
/// The subprotocol of the messages: each is one line of text.
const SUBPROTOCOL: &str = "chat.v1";
/// The longest message, in bytes.
const MAX_MESSAGE: usize = 4096;
/// How long the guests have to leave at the end.
const FAREWELL: Duration = Duration::from_secs(5);
/// A web server sends the page; this example has a very small one.
const PAGE: &str = include_str!("chat_server.html");

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut server = Server::bind("127.0.0.1:0".parse()?)?;
    println!("the page: {}  other clients: {}/rooms/NAME  tokens: apple, pear", server.page, server.sockets);
    let handle = server.handle();
    thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        handle.shutdown(FAREWELL);
    });
    server.run()?;
    println!("{:?}", server.handle().counters());
    Ok(())
}

/// A guest and the room that he or she is in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Guest {
    name: &'static str,
    room: String,
}

/// Guests whose request was accepted and whose `Accepted` has not arrived yet.
type Arriving = Arc<Mutex<HashMap<Endpoint, Guest>>>;

/// The chat server, and the address of its page.
pub(crate) struct Server {
    node: Node<()>,
    arriving: Arriving,
    /// The URL of the page.
    pub(crate) page: String,
    /// The URL of the WebSockets, without a path.
    pub(crate) sockets: String,
}

impl Server {
    /// Listens for WebSockets at this address, and serves the page at another port of it.
    ///
    /// # Errors
    ///
    /// If the system refuses to listen there.
    pub(crate) fn bind(address: SocketAddr) -> Result<Server, Box<dyn Error>> {
        let pages = TcpListener::bind((address.ip(), 0))?;
        let page = format!("http://{}/", pages.local_addr()?);
        let mut limits = Limits::default();
        limits.message = MAX_MESSAGE;
        let node = Node::with_limits(limits)?;
        let handle = node.handle();
        let arriving = Arriving::default();
        let (noted, origin) = (arriving.clone(), page.trim_end_matches('/').to_owned());
        let options = Options::default().on_upgrade(move |request| match admit(request, &origin) {
            Ok(guest) => {
                lock(&noted).insert(request.endpoint(), guest);
                let accept = UpgradeResponse::accept();
                let speaks = request.subprotocols().any(|offered| offered == SUBPROTOCOL);
                if speaks { accept.subprotocol(SUBPROTOCOL) } else { accept }
            }
            Err(refusal) => refusal,
        });
        let listener = handle.listen_with(format!("ws://{address}"), &options)?;
        let sockets = handle.local_address(listener).ok_or("the listener has no address")?;
        let sockets = sockets.to_string().trim_end_matches('/').to_owned();
        let body = PAGE.replace("{sockets}", &sockets);
        thread::spawn(move || pages.incoming().flatten().for_each(|browser| drop(send_page(&browser, &body))));
        Ok(Server { node, arriving, page, sockets })
    }

    /// The handle of the node: to shut the server down.
    pub(crate) fn handle(&self) -> Handle<()> {
        self.node.handle()
    }

    /// Serves until the node has shut down.
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let (handle, arriving) = (self.node.handle(), self.arriving.clone());
        let mut guests = EndpointMap::new();
        self.node.run(|event| match event {
            Event::Accepted { endpoint, .. } => {
                if let Some(guest) = lock(&arriving).remove(&endpoint) {
                    broadcast(&handle, &guests, &guest.room, &format!("{} comes in", guest.name));
                    guests.insert(endpoint, guest);
                }
            }
            Event::AcceptFailed(failure) => {
                lock(&arriving).remove(&failure.endpoint);
                eprintln!("{failure}");
            }
            Event::Message(from, message) if message.kind() == Kind::Text => {
                if let (Some(guest), Ok(text)) = (guests.get(from), str::from_utf8(&message)) {
                    broadcast(&handle, &guests, &guest.room, &format!("{}: {text}", guest.name));
                }
            }
            Event::Closed { endpoint, .. } => {
                if let Some(guest) = guests.remove(endpoint) {
                    broadcast(&handle, &guests, &guest.room, &format!("{} leaves", guest.name));
                }
            }
            _ => {}
        })
    }
}

/// Decides about a request. The order matters: a page of another site learns nothing about tokens.
fn admit(request: &UpgradeRequest<'_>, origin: &str) -> Result<Guest, UpgradeResponse> {
    let room = request.path().strip_prefix("/rooms/").filter(|room| is_name(room));
    let room = room.ok_or_else(|| UpgradeResponse::reject(404, "a room has the path /rooms/NAME"))?;
    // Only browsers send an origin, and they always do.
    if request.origin().is_some_and(|from| from != origin) {
        return Err(UpgradeResponse::reject(403, "only the page of this server may connect"));
    }
    let in_header = request.header("Authorization").and_then(|value| value.strip_prefix("Bearer "));
    let in_name = || request.subprotocols().find_map(|name| name.strip_prefix("token."));
    let token = in_header.or_else(|| request.cookie("token")).or_else(in_name);
    match GUESTS.iter().find(|(known, _)| token == Some(known)) {
        Some((_, name)) => Ok(Guest { name, room: room.to_owned() }),
        None => Err(UpgradeResponse::reject(401, "a known token is needed").header("WWW-Authenticate", "Bearer")),
    }
}

/// Whether a room may have this name.
fn is_name(room: &str) -> bool {
    (1..=40).contains(&room.len()) && room.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Sends a line to all guests in a room.
fn broadcast(handle: &Handle<()>, guests: &EndpointMap<Guest>, room: &str, line: &str) {
    for (endpoint, guest) in guests.iter().filter(|(_, guest)| guest.room == room) {
        // A guest that reads too slowly misses lines and delays nobody.
        if handle.send_text(endpoint, line) == Outcome::Full {
            eprintln!("{} reads too slowly", guest.name);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request of a browser with the page, whatever the request is.
fn send_page(mut browser: &TcpStream, body: &str) -> io::Result<()> {
    browser.set_read_timeout(Some(Duration::from_secs(1)))?;
    let head = BufReader::new(browser.take(16 << 10)).lines();
    head.map_while(Result::ok).find(String::is_empty);
    write!(
        browser,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
