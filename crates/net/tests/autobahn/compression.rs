//! Cases 12 and 13: compression (permessage-deflate).
//!
//! They differ from the suite in two ways. Its files are replaced by made-up data of the same
//! kinds, and a case has fewer messages than 1,000.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use estafette_net::{Deflate, Options};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::{BINARY, CONTINUATION, Echoing, Frame, TEXT, close, handshake_answer, head};

/// The length of a message, and of its fragments; 0 for one frame.
const SIZES: [(usize, usize); 18] = [
    (16, 0),
    (64, 0),
    (256, 0),
    (1024, 0),
    (4096, 0),
    (8192, 0),
    (16384, 0),
    (32768, 0),
    (65536, 0),
    (131072, 0),
    (8192, 256),
    (16384, 256),
    (32768, 256),
    (65536, 256),
    (131072, 256),
    (131072, 1024),
    (131072, 4096),
    (131072, 32768),
];
/// How many bytes the messages of a case have together, and how many there are at most.
const BYTES: usize = 256 << 10;
const MESSAGES: usize = 30;

/// What the suite's client offers, and its server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parameters {
    /// Whether the other side must not refer to earlier messages, and how far back it may refer.
    no_context: bool,
    window_bits: Option<u8>,
}

struct Case {
    id: String,
    data: Vec<u8>,
    is_text: bool,
    size: usize,
    fragment: usize,
    /// What the client offers, the preferred one first.
    offers: Vec<Parameters>,
}

/// Text that is valid UTF-8 wherever it is cut.
fn json() -> Vec<u8> {
    (0..4000)
        .map(|i| format!("{{\"id\":{i},\"name\":\"user {}\",\"on\":{}}},\n", i * 7919 % 1000, i % 3 == 0))
        .collect::<String>()
        .into_bytes()
}

/// The kinds of data of case 12, and whether they are text.
fn kinds() -> [(Vec<u8>, bool); 5] {
    let mut random = fastrand::Rng::with_seed(1);
    let words = ["Habe", "nun", "ach", "Philosophie", "Juristerei", "und", "Medizin"];
    let prose: String = (0..30_000).map(|_| format!("{} ", words[random.usize(..words.len())])).collect();
    let picture: Vec<u8> = (0..200_000).map(|i: usize| (i % 512 / 2) as u8 ^ random.u8(..8)).collect();
    let noise: Vec<u8> = (0..200_000).map(|_| random.u8(..)).collect();
    let html: String = (0..4000).map(|i| format!("<li class=\"a{}\"><a href=\"/{i}\">{i}</a></li>\n", i % 5)).collect();
    [(prose.into_bytes(), false), (picture, false), (noise, false), (json(), true), (html.into_bytes(), true)]
}

fn cases() -> Vec<Case> {
    let usual = Parameters { no_context: false, window_bits: None };
    let of = |no_context, window_bits| Parameters { no_context, window_bits: Some(window_bits) };
    let no_context = Parameters { no_context: true, ..usual };
    let sized = |group: String, data: Vec<u8>, is_text: bool, offers: Vec<Parameters>| {
        let case = move |(i, &(size, fragment)): (usize, &(usize, usize))| Case {
            id: format!("{group}.{}", i + 1),
            data: data.clone(),
            is_text,
            size,
            fragment,
            offers: offers.clone(),
        };
        SIZES.iter().enumerate().map(case).collect::<Vec<_>>()
    };
    let data = kinds().into_iter().enumerate();
    let twelve = data.flat_map(|(i, (data, is_text))| sized(format!("12.{}", i + 1), data, is_text, vec![usual]));
    let offers = [
        vec![usual],
        vec![no_context],
        vec![of(false, 8)],
        vec![of(false, 15)],
        vec![of(true, 8)],
        vec![of(true, 15)],
        vec![of(true, 8), no_context, usual],
    ];
    let thirteen =
        offers.into_iter().enumerate().flat_map(|(i, offers)| sized(format!("13.{}", i + 1), json(), true, offers));
    twelve.chain(thirteen).collect()
}

impl Case {
    /// The messages: pieces of the data, which begins again at its end.
    fn messages(&self) -> Vec<Vec<u8>> {
        let count = (BYTES / self.size).clamp(1, MESSAGES);
        let twice = self.data.repeat(2);
        let starts = (0..count).map(|i| i * self.size % self.data.len());
        starts.map(|start| twice[start..start + self.size].to_vec()).collect()
    }

    fn offer(&self) -> String {
        let offers = self.offers.iter().map(|offer| {
            let context = if offer.no_context { "; server_no_context_takeover" } else { "" };
            let window = offer.window_bits.map_or_else(String::new, |bits| format!("; server_max_window_bits={bits}"));
            format!("permessage-deflate; client_no_context_takeover; client_max_window_bits{context}{window}")
        });
        offers.collect::<Vec<_>>().join(", ")
    }
}

/// The suite's side of a connection.
struct Peer {
    compress: Compress,
    compress_keeps_context: bool,
    decompress: Decompress,
    decompress_keeps_context: bool,
}

impl Peer {
    /// `sends` and `receives`: whether the context is kept, and the window.
    fn new(sends: (bool, u8), receives: (bool, u8)) -> Peer {
        Peer {
            compress: Compress::new_with_window_bits(Compression::new(6), false, sends.1.max(9)),
            compress_keeps_context: sends.0,
            decompress: Decompress::new_with_window_bits(false, receives.1.max(9)),
            decompress_keeps_context: receives.0,
        }
    }

    fn frames(&mut self, opcode: u8, message: &[u8], fragment: usize) -> Vec<Frame> {
        let mut compressed = Vec::with_capacity(2 * message.len() + 100);
        self.compress.compress_vec(message, &mut compressed, FlushCompress::Sync).unwrap();
        compressed.truncate(compressed.len() - 4);
        if !self.compress_keeps_context {
            self.compress.reset();
        }
        let mut frames = super::parts(opcode, &compressed, if fragment == 0 { compressed.len() } else { fragment });
        frames[0].reserved = 4;
        frames
    }

    /// The message of a frame.
    fn message(&mut self, frame: &Frame, len: usize) -> Vec<u8> {
        if frame.reserved == 0 {
            return frame.payload.clone();
        }
        let mut message = Vec::with_capacity(len + 1);
        let compressed = [&frame.payload[..], &[0, 0, 0xff, 0xff]].concat();
        self.decompress.decompress_vec(&compressed, &mut message, FlushDecompress::Sync).unwrap();
        if !self.decompress_keeps_context {
            self.decompress.reset(false);
        }
        message
    }
}

/// Sends the messages of a case, and checks that they come back.
fn play(case: &Case, mut peer: Peer, mut stream: TcpStream, masked: bool, compresses: bool) {
    let (opcode, messages) = (if case.is_text { TEXT } else { BINARY }, case.messages());
    let mut reading = stream.try_clone().unwrap();
    reading.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        reading.read_to_end(&mut answer).map(|_| answer)
    });
    for message in &messages {
        let frames = peer.frames(opcode, message, case.fragment);
        assert!(frames.iter().skip(1).all(|frame| frame.opcode == CONTINUATION));
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.bytes(masked)).collect();
        stream.write_all(&bytes).unwrap();
    }
    stream.write_all(&close(1000, "").bytes(masked)).unwrap();
    let answer = reader.join().unwrap().unwrap_or_else(|error| panic!("case {}: {error}", case.id));
    let mut frames = Frame::parse(&answer);
    assert_eq!(frames.pop(), Some(close(1000, "")), "case {}", case.id);
    assert_eq!(frames.len(), messages.len(), "case {}", case.id);
    for (i, (frame, message)) in frames.iter().zip(&messages).enumerate() {
        assert_eq!((frame.opcode, frame.last), (opcode, true), "case {}, message {i}", case.id);
        assert_eq!(frame.reserved == 4, compresses && case.size >= Deflate::default().min_len, "case {}", case.id);
        assert!(peer.message(frame, message.len()) == *message, "case {}, message {i} differs", case.id);
    }
}

#[test]
fn the_number_of_cases_is_that_of_the_suite() {
    assert_eq!(cases().len(), (5 + 7) * 18);
}

#[test]
fn a_server_passes_every_case() {
    let echoing = Echoing::new();
    let options = Options::default().deflate(Deflate::default());
    let listener = echoing.handle.listen_with("ws://127.0.0.1:0", &options).unwrap();
    let port = echoing.handle.local_address(listener).unwrap().port().unwrap();
    for case in cases() {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Extensions: {}\r\n\r\n",
            case.offer()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let answer = head(&mut stream);
        let extension = answer.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Extensions: "));
        let extension = extension.unwrap_or_else(|| panic!("case {}: {answer}", case.id));
        // The first offer is the one that is accepted, and its parameters are in the response.
        let offer = case.offers[0];
        let bits = offer.window_bits.unwrap_or(15);
        assert_eq!(extension.contains("server_no_context_takeover"), offer.no_context, "{extension}");
        assert_eq!(extension.contains("server_max_window_bits"), bits < 15, "{extension}");
        assert!(extension.contains("client_no_context_takeover"), "{extension}");
        let peer = Peer::new((false, 15), (!offer.no_context, bits));
        // zlib cannot compress with a window of 256 bytes. Then the messages are not compressed.
        play(&case, peer, stream, true, bits > 8);
    }
}

#[test]
fn a_client_passes_every_case() {
    let echoing = Echoing::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("ws://{}/case", listener.local_addr().unwrap());
    for case in cases() {
        echoing.handle.connect_with(url.as_str(), &Options::default().deflate(Deflate::default())).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let request = head(&mut stream);
        assert!(request.contains("\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"));
        // The suite's server asks the client for the parameters of the case.
        let asked = case.offers[0];
        let bits = asked.window_bits.unwrap_or(15);
        let context = if asked.no_context { "; client_no_context_takeover" } else { "" };
        let window = asked.window_bits.map_or_else(String::new, |bits| format!("; client_max_window_bits={bits}"));
        let extension =
            format!("Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover{context}{window}\r\n");
        stream.write_all(handshake_answer(&request, &extension).as_bytes()).unwrap();
        play(&case, Peer::new((false, 15), (!asked.no_context, bits)), stream, false, bits > 8);
    }
}
